"""Tagging: the loss, the scores of predictions, and the evaluators.

The label of a word is predicted at its first piece.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, ClassVar

from bothways.measure import metrics
from bothways.tasks import training_task
from bothways.tasks.arrays import NO_LABEL, Floats
from bothways.tasks.scores import Predictions, Scores
from bothways.tasks.tag.decoding import decode_word_tags, word_probabilities
from bothways.tasks.tag.examples import all_words, documents_of, to_iob2
from bothways.tasks.task import Evaluator
from bothways.tasks.windows import merge_rows
from bothways.text.batch import Batch
from bothways.text.data.tags import Scheme, Sentence
from bothways.text.tokenizer.encoding import Encoding

if TYPE_CHECKING:
    from torch import Tensor

    from bothways.model.losses import Loss
    from bothways.model.model import Model
    from bothways.tasks.tag.training import Tagging
    from bothways.tasks.task import LoadedModel

ENTITY_METRICS = ("precision", "recall", "f1", "f1_macro", "accuracy")


def target_rows(batch: Batch) -> Tensor:
    """The tokens that have a tag, or one from a teacher, [M]."""
    assert batch.labels is not None
    is_target_T = batch.labels != NO_LABEL
    if batch.soft_labels is not None:
        is_target_T = is_target_T | ~batch.soft_labels[:, 0].isnan()
    return is_target_T.nonzero()[:, 0]


@dataclass(frozen=True)
class TagObjective(training_task.LabelObjective):
    """Cross-entropy of the tags, at the first piece of each word."""

    target = "tags"

    def num_targets(self, batch: Batch) -> int:
        return len(target_rows(batch))

    def forward(self, module: Any, batch: Batch) -> Tensor:
        """Scores of the first pieces, [M, C]."""
        scores_MC: Tensor = module.token_scores("tokens", module(batch)[target_rows(batch)])
        return scores_MC

    def label_loss(self, outputs: Tensor, batch: Batch) -> Loss:
        from bothways.model.losses import classification_loss

        assert batch.labels is not None
        return classification_loss(outputs, batch.labels[target_rows(batch)])

    def teacher_loss(self, outputs: Tensor, batch: Batch) -> Loss:
        from bothways.model.losses import logits_loss

        assert batch.soft_labels is not None
        soft_labels = batch.soft_labels[target_rows(batch)]
        is_read_M = ~soft_labels[:, 0].isnan()
        return logits_loss(outputs[is_read_M], soft_labels[is_read_M], training_task.TEACHER_TEMPERATURE)


@dataclass(frozen=True)
class TagEvaluator(Evaluator[list[Sentence], list[list[str]]]):
    """Tags of words: F1 of exact entities (NER), or for plain tags accuracy. Rows are sentences that are read together.

    scheme: tag scheme of the gold tags. plain: whether gold or predicted tags are plain, one label per word.
    """

    scheme: Scheme
    plain: bool

    def predict(self, model: LoadedModel, rows: Sequence[list[Sentence]]) -> list[list[list[str]]]:
        """The tags of each sentence of each row."""
        predictions = []
        for row, tags in zip(rows, model.tag_words([all_words(row) for row in rows]), strict=True):
            rest = iter(tags)
            predictions.append([[*islice(rest, len(sentence.words))] for sentence in row])
        return predictions

    def columns(self, rows: Sequence[list[Sentence]], predictions: Sequence[list[list[str]]]) -> tuple[Any, Any, Any]:
        sentences = [*chain.from_iterable(rows)]
        gold = [sentence.tags if self.plain else to_iob2(sentence, self.scheme).tags for sentence in sentences]
        return gold, [*chain.from_iterable(predictions)], documents_of(sentences)

    def compare(self, gold: Any, predictions: Any, units: Any = None, *, intervals: bool = True) -> Scores:
        """gold, predictions: the tags of each sentence, plain or IOB2. units: the document of each sentence."""
        if not self.plain:
            return tag_scores(gold, predictions, "iob2", units, intervals=intervals)
        scores = tag_scores(gold, predictions, "plain", units, intervals=intervals)
        by_name = {name: value for name, value in scores.by_name.items() if name in ("accuracy", "accuracy_interval")}
        counts = {**scores.counts, "words": sum(map(len, gold))}
        return replace(scores, primary="accuracy", by_name=by_name, counts=counts, secondary=None)


@dataclass(frozen=True)
class TagScoring(training_task.Scoring):
    """Scores of all tokens of each window, [S, C]."""

    trivial_baseline: ClassVar[str] = "most frequent tag"
    ragged_outputs: ClassVar[bool] = True
    has_row_losses: ClassVar[bool] = True
    task: Tagging

    @property
    def metric(self) -> str:
        return "accuracy" if self.task.tagset.plain else "f1"

    def forward(self, model: Model, batch: Batch) -> Iterable[Tensor]:
        """Scores of all tokens of each window, [S, C]."""
        return model.token_scores("tokens", model(batch)).split(batch.lengths.tolist())

    def compute_metrics(self, split: str, outputs: Sequence[Floats]) -> training_task.Metrics:
        """For IOB2 tags precision, recall and F1 of exact entities; for plain tags their accuracy."""
        import torch

        loss = float(torch.cat(self.word_losses(split, outputs)).mean())
        gold = self.gold_tags(split)
        baseline = 0.0
        scores = self.evaluator.compare(gold, self.decode(split, outputs), intervals=False)
        if self.task.tagset.plain:
            tags = [*chain.from_iterable(gold)]
            most_frequent = Counter(chain.from_iterable(self.gold_tags("train"))).most_common(1)[0][0]
            baseline = tags.count(most_frequent) / len(tags)
        return {"loss": loss, **{name: scores[name] for name in ENTITY_METRICS if name in scores}, "baseline": baseline}

    def word_losses(self, split: str, outputs: Sequence[Floats]) -> list[Tensor]:
        """The cross-entropy of each word of each window."""
        import torch
        import torch.nn.functional as F

        return [
            F.cross_entropy(torch.from_numpy(scores_SC[window.rows]), torch.from_numpy(window.labels), reduction="none")
            for window, scores_SC in zip(self.task.data[split].windows, outputs, strict=True)
        ]

    def row_losses(self, split: str, outputs: Sequence[Floats]) -> Tensor:
        """The mean of each window."""
        import torch

        return torch.stack([losses_M.mean() for losses_M in self.word_losses(split, outputs) if len(losses_M)])

    def gold_tags(self, split: str) -> list[list[str]]:
        return [[*sentence.tags] for sentence in self.task.texts[split].sentences]

    def decode(self, split: str, outputs: Sequence[Floats]) -> list[list[str]]:
        """The predicted tags of each sentence."""
        predicted = []
        for text, windows, scores_SC in self.merge_windows(split, outputs):
            tags = iter(decode_word_tags(windows, scores_SC, all_words(text), self.task.tagset))
            predicted += [[next(tags) for _ in sentence.words] for sentence in text]
        return predicted

    def merge_windows(
        self, split: str, outputs: Sequence[Floats]
    ) -> Iterator[tuple[list[Sentence], list[Encoding], Floats]]:
        """Each text, its windows, and the scores of its tokens, [S, C]."""
        rows = iter(outputs)
        for text, windows in zip(self.task.texts[split].texts, self.task.texts[split].encodings, strict=True):
            yield text, windows, merge_rows(windows, [next(rows) for _ in windows])

    def predictions(self, split: str, outputs: Sequence[Floats]) -> Predictions:
        """details: for each word the probability of its tag, the most probable tag, and its probability."""
        details: list[list[Any]] = []
        for text, windows, scores_SC in self.merge_windows(split, outputs):
            probabilities = iter(word_probabilities(windows, scores_SC, all_words(text)).tolist())
            details += [[self.word_details(tag, next(probabilities)) for tag in sentence.tags] for sentence in text]
        return replace(self.build_predictions(split, self.decode(split, outputs)), details=details)

    def word_details(self, tag: str, probabilities: Sequence[float]) -> tuple[float, str, float]:
        names = self.task.tagset.names
        best = max(range(len(names)), key=probabilities.__getitem__)
        return probabilities[names.index(tag)] if tag in names else 0.0, names[best], probabilities[best]

    def build_predictions(self, split: str, predicted: list[list[str]]) -> Predictions:
        """Predicted and gold tags, without details."""
        sentences = self.task.texts[split].sentences
        where = (sentence.where for sentence in sentences)
        groups = documents_of(sentences)
        return Predictions(
            where=[*where],
            gold=self.gold_tags(split),
            predicted=predicted,
            groups=groups,
            details=[None] * len(sentences),
        )

    @property
    def evaluator(self) -> TagEvaluator:
        return TagEvaluator(self.task.tagset.scheme, self.task.tagset.plain)


@dataclass(frozen=True)
class EntityEvaluator(Evaluator[str, list[tuple[str, int, int]]]):
    """Named entities in texts without labels: the percentage of texts with the same entities as the reference."""

    agreement = "same entities"

    def predict(self, model: LoadedModel, rows: Sequence[str]) -> list[list[tuple[str, int, int]]]:
        entities = model.tag(rows)
        return [[(entity.label, entity.start, entity.end) for entity in text] for text in entities]


def tag_scores(
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
