"""One evaluator per task: predict rows with a model, and score the predictions.

They are shared by fine-tuning, `evaluate`, `quantize` and `export`. `predict` and `score` take rows of a file;
`compare` takes gold labels and predictions from any source. For rows without labels, the predictions of a changed model
are compared with those of the unchanged model, the reference.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from operator import eq
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np

from bothways import metrics
from bothways.data.near_duplicates import first_locations, text_key
from bothways.data.squad import Question
from bothways.data.tagged_words import Sentence
from bothways.data.tags import Scheme
from bothways.tasks.scores import Scores
from bothways.tasks.tagged_texts import all_words, to_iob2

if TYPE_CHECKING:
    from bothways.inference.predictor import Predictor

Row = TypeVar("Row")
Prediction = TypeVar("Prediction")


class TextRow(NamedTuple):
    """A text or a pair of texts. label: a class, a set of labels or a number; None without labels. unit: name of the
    independent unit (`Table.units`); None: the row."""

    text: str
    pair: str | None = None
    label: Any = None
    unit: str | None = None


class Evaluator(ABC, Generic[Row, Prediction]):
    """Predictions for rows of one task, and their scores."""

    @abstractmethod
    def predict(self, model: "Predictor", rows: Sequence[Row]) -> list[Prediction]:
        """One prediction per row."""

    @abstractmethod
    def score(
        self,
        rows: Sequence[Row],
        predictions: Sequence[Prediction],
        reference: Sequence[Prediction] | None = None,
        *,
        intervals: bool = False,
    ) -> Scores:
        """Scores against the labels of the rows, or for rows without labels against the predictions `reference`.

        intervals: add 95 % intervals, which take longer to compute than the scores.
        """


# --- texts and pairs of texts -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClassEvaluator(Evaluator[TextRow, str]):
    """Classification: accuracy, F1, Matthews correlation. positive: the label that `f1` is computed for."""

    positive: str | None = None

    def predict(self, model: "Predictor", rows: Sequence[TextRow]) -> list[str]:
        return [prediction.label for prediction in model.classify(*columns_of(rows))]

    def score(
        self,
        rows: Sequence[TextRow],
        predictions: Sequence[str],
        reference: Sequence[str] | None = None,
        *,
        intervals: bool = False,
    ) -> Scores:
        if not has_labels(rows):
            return agreement("same label", predictions, reference)
        return self.compare([row.label for row in rows], predictions, units_of(rows), intervals=intervals)

    def compare(
        self,
        gold: Sequence[str],
        predictions: Sequence[str],
        units: Sequence[Hashable] | None = None,
        *,
        intervals: bool = True,
    ) -> Scores:
        """units: rows of a unit are not independent of each other; None: all rows are."""
        bounds = None
        if intervals:
            bounds = metrics.classification_intervals(gold, predictions, positive=self.positive, groups=units)
        scores = metrics.classification(gold, predictions, positive=self.positive)
        return Scores.with_intervals("accuracy", scores, bounds, counts={"texts": len(gold)}, secondary="f1_macro")


@dataclass(frozen=True)
class LabelSetEvaluator(Evaluator[TextRow, Collection[str]]):
    """Multi-label classification: F1, and accuracy of whole sets. names: all labels."""

    names: Sequence[str]

    def predict(self, model: "Predictor", rows: Sequence[TextRow]) -> list[Collection[str]]:
        return [prediction.labels for prediction in model.classify(*columns_of(rows))]

    def score(
        self,
        rows: Sequence[TextRow],
        predictions: Sequence[Collection[str]],
        reference: Sequence[Collection[str]] | None = None,
        *,
        intervals: bool = False,
    ) -> Scores:
        if not has_labels(rows):
            return agreement("same label", predictions, reference)
        return self.compare([row.label for row in rows], predictions, units_of(rows), intervals=intervals)

    def compare(
        self,
        gold: Sequence[Collection[str]],
        predictions: Sequence[Collection[str]],
        units: Sequence[Hashable] | None = None,
        *,
        intervals: bool = True,
    ) -> Scores:
        bounds = metrics.multi_label_intervals(gold, predictions, units) if intervals else None
        scores = metrics.multi_label(gold, predictions, self.names)
        return Scores.with_intervals("f1_micro", scores, bounds, counts={"texts": len(gold)}, secondary="accuracy")


@dataclass(frozen=True)
class NumberEvaluator(Evaluator[TextRow, float]):
    """Regression: rank and linear correlation, and errors."""

    def predict(self, model: "Predictor", rows: Sequence[TextRow]) -> list[float]:
        scores: list[float] = model.regress(*columns_of(rows)).tolist()
        return scores

    def score(
        self,
        rows: Sequence[TextRow],
        predictions: Sequence[float],
        reference: Sequence[float] | None = None,
        *,
        intervals: bool = False,
    ) -> Scores:
        if has_labels(rows):
            return self.compare([row.label for row in rows], predictions, units_of(rows), intervals=intervals)
        assert reference is not None
        return self.compare(reference, predictions, intervals=intervals)

    def compare(
        self,
        gold: Sequence[float],
        predictions: Sequence[float],
        units: Sequence[Hashable] | None = None,
        *,
        intervals: bool = True,
    ) -> Scores:
        bounds = metrics.regression_intervals(gold, predictions, units) if intervals else None
        scores = metrics.regression(gold, predictions)
        return Scores.with_intervals("spearman", scores, bounds, counts={"texts": len(gold)}, secondary="pearson")


@dataclass(frozen=True)
class VectorEvaluator(Evaluator[TextRow, np.ndarray]):
    """Sentence embeddings: cosine similarity with the vectors of the reference."""

    def predict(self, model: "Predictor", rows: Sequence[TextRow]) -> list[np.ndarray]:
        return list(model.embed([row.text for row in rows]))

    def score(
        self,
        rows: Sequence[TextRow],
        predictions: Sequence[np.ndarray],
        reference: Sequence[np.ndarray] | None = None,
        *,
        intervals: bool = False,
    ) -> Scores:
        cosines_N = 100 * (np.array(predictions) * np.array(reference)).sum(1)
        scores = {"mean cosine": float(cosines_N.mean()), "least cosine": float(cosines_N.min())}
        return Scores("mean cosine", scores, {"texts": len(rows)}, secondary="least cosine", maximum=100)


@dataclass(frozen=True)
class MaskEvaluator(Evaluator[str, list[str]]):
    """Masked words: the percentage of guesses that equal the reference's. Rows are texts with masks."""

    def predict(self, model: "Predictor", rows: Sequence[str]) -> list[list[str]]:
        return [[best.token for best, *_ in model.fill(text, top=1)] for text in rows]

    def score(
        self,
        rows: Sequence[str],
        predictions: Sequence[list[str]],
        reference: Sequence[list[str]] | None = None,
        *,
        intervals: bool = False,
    ) -> Scores:
        assert reference is not None
        return agreement("same guesses", [*chain.from_iterable(predictions)], [*chain.from_iterable(reference)])


# --- tags -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TagEvaluator(Evaluator[list[Sentence], list[list[str]]]):
    """Tags of words: F1 of exact entities (NER), or for plain tags accuracy. Rows are sentences that are read together.

    scheme: tag scheme of the gold tags. plain: whether gold or predicted tags are plain, one label per word.
    """

    scheme: Scheme
    plain: bool

    def predict(self, model: "Predictor", rows: Sequence[list[Sentence]]) -> list[list[list[str]]]:
        """The tags of each sentence of each row."""
        predictions = []
        for row, tags in zip(rows, model.tag_words([all_words(row) for row in rows]), strict=True):
            rest = iter(tags)
            predictions.append([[*islice(rest, len(sentence.words))] for sentence in row])
        return predictions

    def score(
        self,
        rows: Sequence[list[Sentence]],
        predictions: Sequence[list[list[str]]],
        reference: Sequence[list[list[str]]] | None = None,
        *,
        intervals: bool = False,
    ) -> Scores:
        sentences = [*chain.from_iterable(rows)]
        gold = [sentence.tags if self.plain else to_iob2(sentence, self.scheme).tags for sentence in sentences]
        documents = documents_of(sentences)
        return self.compare(gold, [*chain.from_iterable(predictions)], documents, intervals=intervals)

    def compare(
        self,
        gold: Sequence[Sequence[str]],
        predictions: Sequence[Sequence[str]],
        documents: Sequence[str],
        *,
        intervals: bool = True,
    ) -> Scores:
        """gold, predictions: the tags of each sentence, plain or IOB2. documents: the document of each sentence."""
        if not self.plain:
            return entity_scores(gold, predictions, "iob2", documents, intervals=intervals)
        scores = entity_scores(gold, predictions, "plain", documents, intervals=intervals)
        by_name = {name: value for name, value in scores.by_name.items() if name in ("accuracy", "accuracy_interval")}
        counts = {**scores.counts, "words": sum(map(len, gold))}
        return replace(scores, primary="accuracy", by_name=by_name, counts=counts, secondary=None)


@dataclass(frozen=True)
class EntityEvaluator(Evaluator[TextRow, list[tuple[str, int, int]]]):
    """Named entities in texts without labels: the percentage of texts with the same entities as the reference."""

    def predict(self, model: "Predictor", rows: Sequence[TextRow]) -> list[list[tuple[str, int, int]]]:
        entities = model.tag([row.text for row in rows])
        return [[(entity.label, entity.start, entity.end) for entity in text] for text in entities]

    def score(
        self,
        rows: Sequence[TextRow],
        predictions: Sequence[list[tuple[str, int, int]]],
        reference: Sequence[list[tuple[str, int, int]]] | None = None,
        *,
        intervals: bool = False,
    ) -> Scores:
        return agreement("same entities", predictions, reference)


def entity_scores(
    gold: Sequence[Sequence[str]],
    predictions: Sequence[Sequence[str]],
    scheme: Scheme,
    documents: Sequence[str],
    *,
    intervals: bool = True,
) -> Scores:
    """Precision, recall and F1 of exact entities, and the accuracy of tags."""
    bounds = metrics.entity_intervals(gold, predictions, scheme, documents) if intervals else None
    scores = metrics.entity_scores(gold, predictions, scheme)
    return Scores.with_intervals("f1", scores, bounds, counts={"sentences": len(gold)}, secondary="accuracy")


def documents_of(sentences: Sequence[Sentence]) -> list[str]:
    """The document of each sentence, or without documents the location of the first near duplicate of the sentence."""
    keys = (text_key(" ".join(sentence.words)) for sentence in sentences)
    firsts = first_locations(keys, (sentence.where for sentence in sentences))
    return [
        first if sentence.document is None else f"{sentence.where.file}, document {sentence.document}"
        for sentence, first in zip(sentences, firsts, strict=True)
    ]


# --- answers ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AnswerEvaluator(Evaluator[Question, str]):
    """Extractive question answering: exact match and F1 as SQuAD scores them, in percent. labelled: whether the
    questions have gold answers."""

    labelled: bool = True

    def predict(self, model: "Predictor", rows: Sequence[Question]) -> list[str]:
        answers = model.answer([row.question for row in rows], [row.context for row in rows])
        return [best.text for best, *_ in answers]

    def score(
        self,
        rows: Sequence[Question],
        predictions: Sequence[str],
        reference: Sequence[str] | None = None,
        *,
        intervals: bool = False,
    ) -> Scores:
        if not self.labelled:
            return agreement("same answer", predictions, reference)
        gold = {row.id: [text for text, _ in row.answers] for row in rows}
        by_id = {row.id: answer for row, answer in zip(rows, predictions, strict=True)}
        return self.compare(gold, by_id, {row.id: row.context for row in rows}, intervals=intervals)

    def compare(
        self,
        gold: Mapping[str, Sequence[str]],
        predictions: Mapping[str, str],
        passages: Mapping[str, str],
        *,
        intervals: bool = True,
    ) -> Scores:
        """Gold answers, predicted answers and passages by the id of the question."""
        bounds = metrics.answer_intervals(gold, predictions, passages) if intervals else None
        scores = metrics.answer_scores(gold, predictions)
        return Scores.with_intervals("f1", scores, bounds, secondary="exact_match", maximum=100)


# --- pairs and search -------------------------------------------------------------------------------------------------


def pair_scores(gold: Sequence[float], cosines: Sequence[float], units: Sequence[Hashable] | None = None) -> Scores:
    """Correlations of gold scores and cosines. No errors, since a cosine does not have the unit of the scores."""
    names = ("spearman", "pearson")
    scores, bounds = metrics.regression(gold, cosines), metrics.regression_intervals(gold, cosines, units)
    return Scores.with_intervals(
        "spearman", {name: scores[name] for name in names}, bounds, counts={"pairs": len(gold)}, secondary="pearson"
    )


def ranking_scores(
    qrels: Mapping[str, Mapping[str, float]], ranking: Mapping[str, Sequence[str]], *, k: int = 10
) -> Scores:
    """nDCG, MRR and recall at k of search results."""
    bounds = metrics.ranking_intervals(qrels, ranking, k=k)
    return Scores.with_intervals(f"ndcg@{k}", metrics.ranking_scores(qrels, ranking, k=k), bounds)


# --- shared helpers ---------------------------------------------------------------------------------------------------


def agreement(name: str, predictions: Sequence[Any], reference: Sequence[Any] | None) -> Scores:
    """The percentage of predictions that equal those of the reference."""
    assert reference is not None
    return Scores(name, {name: 100 * sum(map(eq, predictions, reference)) / len(reference)}, maximum=100)


def has_labels(rows: Sequence[TextRow]) -> bool:
    return bool(rows) and rows[0].label is not None


def units_of(rows: Sequence[TextRow]) -> list[Hashable]:
    return [row_number if row.unit is None else row.unit for row_number, row in enumerate(rows)]


def columns_of(rows: Sequence[TextRow]) -> tuple[list[str], list[str] | None]:
    """The texts, and the second texts if there are any."""
    pairs = [row.pair for row in rows if row.pair is not None]
    return [row.text for row in rows], pairs or None
