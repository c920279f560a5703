"""Metrics: accuracy, F1, correlations, entity F1, SQuAD scores, nDCG, confidence intervals.

Nothing here imports torch; predictions may come from any system.
"""

from bothways.measure.metrics.answers import answer_intervals, answer_scores, best_threshold
from bothways.measure.metrics.classification import (
    classification,
    classification_intervals,
    mean_and_std,
    multi_label,
    multi_label_intervals,
    perplexity,
    regression,
    regression_intervals,
    reliability,
    unigram_loss,
    unigram_probabilities,
)
from bothways.measure.metrics.entities import entity_intervals, entity_scores, span_scores
from bothways.measure.metrics.intervals import (
    TIE,
    Interval,
    Intervals,
    difference_interval,
    few_rows_warning,
    mean_intervals,
    wilson_interval,
    with_intervals,
)
from bothways.measure.metrics.ranking_metrics import query_scores, ranking_intervals, ranking_scores

__all__ = [
    "TIE",
    "Interval",
    "Intervals",
    "answer_intervals",
    "answer_scores",
    "best_threshold",
    "classification",
    "classification_intervals",
    "difference_interval",
    "entity_intervals",
    "entity_scores",
    "few_rows_warning",
    "mean_and_std",
    "mean_intervals",
    "multi_label",
    "multi_label_intervals",
    "perplexity",
    "query_scores",
    "ranking_intervals",
    "ranking_scores",
    "regression",
    "regression_intervals",
    "reliability",
    "span_scores",
    "unigram_loss",
    "unigram_probabilities",
    "wilson_interval",
    "with_intervals",
]
