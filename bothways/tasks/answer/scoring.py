"""Question answering: the loss, the scores of predictions, and the evaluator.

The head scores each token as start and end of the answer. A window without the answer points at [CLS]. For SQuAD 2.0,
the threshold for "no answer" is tuned on dev.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from bothways.measure import metrics
from bothways.measure.metrics import Intervals
from bothways.measure.metrics.answers import answer_scores, best_threshold
from bothways.tasks import training_task
from bothways.tasks.answer.decoding import Candidates, find_candidates
from bothways.tasks.arrays import Floats
from bothways.tasks.scores import Predictions, Scores
from bothways.tasks.task import Evaluator
from bothways.text.batch import Batch
from bothways.text.data.squad import Question

if TYPE_CHECKING:
    from torch import Tensor

    from bothways.model.losses import Loss
    from bothways.model.model import Model
    from bothways.tasks.answer.training import Answering
    from bothways.tasks.task import LoadedModel

METRICS = ("exact_match", "f1", "HasAns_f1", "NoAns_f1")


@dataclass(frozen=True)
class SpanObjective(training_task.LabelObjective):
    """Cross-entropy of the first and of the last token of the answer in each window."""

    target = "spans"

    def forward(self, module: Any, batch: Batch) -> Tensor:
        """Start and end scores of all tokens, [T, 2]."""
        scores_T2: Tensor = module.token_scores("spans", module(batch))
        return scores_T2

    def label_loss(self, outputs: Tensor, batch: Batch) -> Loss:
        from bothways.tasks.losses import span_loss

        assert batch.labels is not None
        return span_loss(outputs, batch.labels, batch.lengths.tolist())

    def teacher_loss(self, outputs: Tensor, batch: Batch) -> Loss:
        from bothways.tasks.losses import span_distance

        assert batch.soft_labels is not None
        return span_distance(outputs, batch.soft_labels, batch.lengths.tolist(), training_task.TEACHER_TEMPERATURE)


@dataclass(frozen=True)
class AnswerEvaluator(Evaluator[Question, str]):
    """Extractive question answering: exact match and F1 as SQuAD scores them, in percent. labelled: whether the
    questions have gold answers."""

    agreement: ClassVar[str] = "same answer"
    labelled: bool = True

    def predict(self, model: LoadedModel, rows: Sequence[Question]) -> list[str]:
        answers = model.answer([row.question for row in rows], [row.context for row in rows])
        return [best.text for best, *_ in answers]

    def columns(self, rows: Sequence[Question], predictions: Sequence[str]) -> tuple[Any, Any, Any] | None:
        if not self.labelled:
            return None
        gold = {row.id: [text for text, _ in row.answers] for row in rows}
        by_id = {row.id: answer for row, answer in zip(rows, predictions, strict=True)}
        return gold, by_id, {row.id: row.context for row in rows}

    def compare(self, gold: Any, predictions: Any, units: Any = None, *, intervals: bool = True) -> Scores:
        """Gold answers, predicted answers, and as units the passages, by the id of the question."""
        bounds = metrics.answer_intervals(gold, predictions, units) if intervals else None
        scores = metrics.answer_scores(gold, predictions)
        return Scores.with_intervals("f1", scores, bounds, secondary="exact_match", maximum=100)


@dataclass(frozen=True)
class SpanScoring(training_task.Scoring):
    """Start and end scores of all rows of each window, [S, 2]."""

    trivial_baseline: ClassVar[str] = "no answer"
    ragged_outputs: ClassVar[bool] = True
    task: Answering

    @property
    def metric(self) -> Literal["exact_match", "f1"]:
        return self.task.settings.metric

    def forward(self, model: Model, batch: Batch) -> Iterable[Tensor]:
        """Start and end scores of all rows of each window, [S, 2]."""
        return self.task.objective.forward(model, batch).split(batch.lengths.tolist())

    def compute_metrics(self, split: str, outputs: Sequence[Floats]) -> training_task.Metrics:
        """Exact match and F1 in 0..1, at the threshold that is best on dev."""
        import torch

        from bothways.tasks.losses import span_loss

        labels_N2 = torch.tensor(self.task.data[split].rows)
        total, count = span_loss(torch.from_numpy(np.concatenate([*outputs])), labels_N2, self.task.data[split].sizes)
        candidates = self.find_candidates(split, outputs)
        gold = {question.id: [text for text, _ in question.answers] for question in self.task.questions[split]}
        if split == "dev" and has_impossible(self.task.questions):
            texts = {id: spans.answers()[0].text for id, spans in candidates.items()}
            margins = {id: spans.margin for id, spans in candidates.items()}
            self.task.thresholds["no_answer"] = best_threshold(gold, texts, margins, self.metric).value
        threshold = self.task.thresholds.get("no_answer")
        predicted = {id: spans.answers(threshold=threshold)[0].text for id, spans in candidates.items()}
        percentages = answer_scores(gold, predicted)
        values = {name: percentages[name] / 100 for name in METRICS if name in percentages}
        if threshold is not None:
            values["no_answer_threshold"] = threshold
        num_impossible = sum(question.impossible for question in self.task.questions[split])
        return {"loss": float(total) / count, **values, "baseline": num_impossible / len(gold)}

    def find_candidates(self, split: str, outputs: Sequence[Floats]) -> dict[str, Candidates]:
        """Candidate answers of each question, by its id."""
        rows = iter(outputs)
        return {
            question.id: find_candidates(
                windows, [next(rows) for _ in windows], max_answer_tokens=self.task.settings.max_answer_tokens
            )
            for question, windows in zip(self.task.questions[split], self.task.windows[split], strict=True)
        }

    def predictions(self, split: str, outputs: Sequence[Floats]) -> Predictions:
        """Predictions at the threshold that was tuned last. details: score, start and end of the answer."""
        candidates = self.find_candidates(split, outputs)
        questions = self.task.questions[split]
        threshold = self.task.thresholds.get("no_answer")
        best = [candidates[question.id].answers(threshold=threshold)[0] for question in questions]
        details = [[answer.score, answer.start, answer.end] for answer in best]
        return replace(self.build_predictions(split, [answer.text for answer in best]), details=details)

    def build_predictions(self, split: str, answers: list[str]) -> Predictions:
        """Predicted and gold answers, without details. groups: the first question about each passage."""
        questions = self.task.questions[split]
        first_by_passage: dict[str, str] = {}
        groups = [first_by_passage.setdefault(question.context, question.where) for question in questions]
        gold = [[text for text, _ in question.answers] for question in questions]
        return Predictions(
            where=[question.where for question in questions],
            gold=gold,
            predicted=answers,
            groups=groups,
            details=[None] * len(gold),
        )

    def score_predictions(self, predictions: Predictions) -> Scores:
        """Scores in 0..1."""
        gold = dict(zip(predictions.where, predictions.gold, strict=True))
        predicted = dict(zip(predictions.where, predictions.predicted, strict=True))
        passages = dict(zip(predictions.where, predictions.groups, strict=True))

        percentages = AnswerEvaluator().compare(gold, predicted, passages)
        intervals = percentages.intervals
        assert intervals is not None
        names = [name for name in METRICS if name in percentages.by_name]
        bounds = {name: (intervals[name][0] / 100, intervals[name][1] / 100) for name in names if name in intervals}
        resamples = {name: intervals.resamples[name] / 100 for name in bounds}
        values = {name: percentages.by_name[name] / 100 for name in names}
        return Scores.with_intervals("f1", values, Intervals(bounds, resamples, intervals.num_units))


def has_impossible(questions: Mapping[str, list[Question]]) -> bool:
    """Whether some training questions have no answer."""
    return any(question.impossible for question in questions["train"])
