"""All scores of one kind of predictions, each with its 95 % interval, and how many rows they are of."""

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any

from bothways import metrics
from bothways.data.examples import Sentence
from bothways.data.squad import Question
from bothways.data.tags import Scheme


def class_scores(gold: Sequence[str], predicted: Sequence[str], positive: str | None) -> dict[str, Any]:
    scores = metrics.classification(gold, predicted, positive=positive)
    bounds = metrics.classification_intervals(gold, predicted, positive=positive)
    return {**metrics.with_intervals(scores, bounds), "texts": len(gold)}


def label_set_scores(
    gold: Sequence[Collection[str]], predicted: Sequence[Collection[str]], names: Sequence[str]
) -> dict[str, Any]:
    bounds = metrics.multi_label_intervals(gold, predicted)
    return {**metrics.with_intervals(metrics.multi_label(gold, predicted, names), bounds), "texts": len(gold)}


def number_scores(gold: Sequence[float], predicted: Sequence[float]) -> dict[str, Any]:
    bounds = metrics.regression_intervals(gold, predicted)
    return {**metrics.with_intervals(metrics.regression(gold, predicted), bounds), "texts": len(gold)}


def entity_scores(gold: Sequence[Sentence], predicted: Sequence[Sequence[str]], scheme: Scheme) -> dict[str, Any]:
    """predicted: the tags of each sentence, in any scheme but plain."""
    tags = [one.tags for one in gold]
    bounds = metrics.entity_intervals(tags, predicted, scheme, documents_of(gold))
    return {**metrics.with_intervals(metrics.entity_scores(tags, predicted, scheme), bounds), "sentences": len(gold)}


def documents_of(sentences: Sequence[Sentence]) -> list[Hashable]:
    """What each sentence is part of: its document, else itself."""
    return [one.where if one.document is None else (file_of(one), one.document) for one in sentences]


def file_of(sentence: Sentence) -> str:
    return sentence.where.rpartition(":")[0]


def answer_scores(questions: Sequence[Question], predicted: Mapping[str, str]) -> dict[str, Any]:
    """predicted: an answer by the question's id."""
    gold = {one.id: [text for text, _ in one.answers] for one in questions}
    bounds = metrics.answer_intervals(gold, predicted, {one.id: one.context for one in questions})
    return metrics.with_intervals(metrics.answer_scores(gold, predicted), bounds)


def pair_scores(gold: Sequence[float], cosines: Sequence[float]) -> dict[str, Any]:
    """Correlations alone: a cosine has not the scores' unit."""
    names = ("spearman", "pearson")
    scores, bounds = metrics.regression(gold, cosines), metrics.regression_intervals(gold, cosines)
    return {**metrics.with_intervals({name: scores[name] for name in names}, bounds), "pairs": len(gold)}


def ranking_scores(
    judgements: Mapping[str, Mapping[str, float]], ranking: Mapping[str, Sequence[str]], *, k: int = 10
) -> dict[str, Any]:
    bounds = metrics.ranking_intervals(judgements, ranking, k=k)
    return metrics.with_intervals(metrics.ranking_scores(judgements, ranking, k=k), bounds)
