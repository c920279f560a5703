"""The task of decisions: which of the options fits each text, or none of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from bothways.base.errors import InputError, format_count
from bothways.base.log import logger
from bothways.settings.finetune import TrainDecide
from bothways.settings.predict import Evaluate
from bothways.settings.tables_in_memory import TableSource
from bothways.tasks.decide.baselines import baseline_scores
from bothways.tasks.decide.decoding import Decision
from bothways.tasks.decide.scoring import NONE, DecisionEvaluator
from bothways.tasks.decide.training import Deciding
from bothways.tasks.model_use import ModelUse
from bothways.tasks.scores import Scores
from bothways.tasks.task import fact, split_pairs
from bothways.tasks.text_rows import TextEvaluator, TextModelTask
from bothways.text.data.columns import Table
from bothways.text.data.label_cells import read_labels
from bothways.text.data.model_inputs import ModelInput
from bothways.text.data.split_tables import read_tables

if TYPE_CHECKING:
    from bothways.model.checkpoint.contents import Checkpoint
    from bothways.tasks.task import LoadedModel


class DecideTask(TextModelTask):
    """The option that fits each text, or none of these.

    Its routes are in serving/decisions: they read several questions at once.
    """

    name: ClassVar[str] = "decide"
    use = ModelUse(
        kind="a model that decides among options",
        tag="zero-shot-classification",
        call='model.decide("My parcel never came.")',
        route="/decide",
        body='{"inputs": "My parcel never came."}',
    )
    options = frozenset({"top"})
    route: ClassVar[str] = "/decide"

    def train(self, settings: TrainDecide, pretrained: Checkpoint, fold: int | None) -> Deciding:
        return Deciding.build(settings, pretrained, read_tables(settings, fold))

    def evaluator(
        self, model: LoadedModel, positive: str | None, thresholds: Mapping[str, Any] | None = None
    ) -> TextEvaluator[Any]:
        return DecisionEvaluator()

    def labels(self, model: LoadedModel, table: Table) -> Sequence[str]:
        """The right option of each text; NONE for a label that is no option of the model, so that none fits."""
        return [label if label in model.labels else NONE for label in table.labels or []]

    def readable(self, model: LoadedModel, table: Table) -> Table:
        table = read_labels(table, several=False, names=model.labels)
        if table.labels is None:
            return table
        others = sorted({*table.labels} - {*model.labels})
        if len(others) == len({*table.labels}):
            raise InputError(
                f"no label is an option of the model ({', '.join(model.labels)}); labels: {', '.join(others)[:200]}"
            )
        if others:
            number = sum(label not in model.labels for label in table.labels)
            texts = format_count(number, "text")
            logger.info(f"{texts} with labels that are no options ({', '.join(others)[:200]}): none of these is right")
        return table

    def evaluate(self, model: LoadedModel, files: Sequence[TableSource], columns: Any) -> Scores:
        """Beside the most frequent option, TF-IDF of the descriptions, and the vectors alone."""
        table = self.read(model, files, columns, need_labels=True)
        decisions = table.evaluator.predict(model, table.rows)
        scores = table.evaluator.score(table.rows, decisions, intervals=True)
        beside = baseline_scores(model, [row.text for row in table.rows], [row.label for row in table.rows])
        return replace(scores, by_name={**scores.by_name, "beside": beside}, counts={**scores.counts, **table.counts})

    def predict_rows(self, model: LoadedModel, rows: Sequence[ModelInput], **options: Any) -> list[dict[str, Any]]:
        """The option that fits each text (None where none does), its score, the probability of none, and the scores of
        all options (or the `top` best)."""
        top = options.pop("top", None)
        texts, pairs = split_pairs(rows)
        if pairs is not None:
            raise InputError("options are decided for single texts, not for pairs; name one column of texts")
        return [written(decision, top) for decision in model.decide(texts, **options)]

    def columns(self, model: LoadedModel, top: int | None = None, *, has_sets: bool = False) -> dict[str, Any]:
        scores = (str, float) if top else dict.fromkeys(model.labels, float)
        return {"label": str, "score": float, "none": float, "scores": scores}

    def scores_per_row(self, model: LoadedModel, top: int | None) -> int:
        return len(model.labels) if top is None else 1

    def facts(
        self, model: LoadedModel, texts: Sequence[str], question: str, min_score: float | None = None
    ) -> list[list[dict[str, Any]]]:
        return [
            [fact("label", one.label, "", start=0, end=0, score=one.score)]
            if one.label is not None and one.score >= (min_score or 0)
            else []
            for one in model.decide(texts)
        ]

    def score_file(self, predictions: Path, gold: Path, columns: Evaluate) -> Scores:
        raise InputError("predictions of decisions are labels: they are scored as those of a classifier")


def written(decision: Decision, top: int | None) -> dict[str, Any]:
    """A row of `predict`."""
    scores = decision.probabilities
    if top is not None:
        best = sorted(scores.items(), key=lambda item: -item[1])[:top]
        scores = dict(best)
    return {"label": decision.label, "score": decision.score, "none": decision.none, "scores": scores}


DECIDE_TASK = DecideTask()
