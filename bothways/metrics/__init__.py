"""How good predictions are. No torch here: whatever made the predictions, they are scored alike."""

from bothways.metrics.answers import answer_scores, best_threshold
from bothways.metrics.basic import (
    classification,
    interval,
    multi_label,
    perplexity,
    regression,
    reliability,
    spread,
    unigram_loss,
    unigram_shares,
)
from bothways.metrics.entities import entity_scores, span_scores
from bothways.metrics.ranking import ranking_scores

__all__ = [
    "answer_scores",
    "best_threshold",
    "classification",
    "entity_scores",
    "interval",
    "multi_label",
    "perplexity",
    "ranking_scores",
    "regression",
    "reliability",
    "span_scores",
    "spread",
    "unigram_loss",
    "unigram_shares",
]
