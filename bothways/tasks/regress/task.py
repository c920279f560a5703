"""The task of regression: a number for each text (or pair)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bothways.settings.finetune import Regress
from bothways.tasks.model_use import ENCODE, PIPELINE, ModelUse
from bothways.tasks.regress.scoring import NumberEvaluator
from bothways.tasks.regress.training import Regression
from bothways.tasks.task import split_pairs
from bothways.tasks.text_rows import TextEvaluator, TextModelTask
from bothways.text.data.columns import Table
from bothways.text.data.labels import numeric_labels
from bothways.text.data.model_inputs import ModelInput
from bothways.text.data.split_tables import read_tables

if TYPE_CHECKING:
    from bothways.model.checkpoint.contents import Checkpoint
    from bothways.tasks.task import LoadedModel


class RegressTask(TextModelTask):
    """A number for each text (or pair)."""

    name = "regress"
    route = "/predict"
    use = ModelUse(
        kind="a regression model: a number for a text",
        tag="text-classification",
        call='model.regress("The train was late.")',
        route="/predict",
        body='{"inputs": "The train was late."}',
        libraries={
            "transformers": PIPELINE.format(
                task="text-classification", options="", text='"The train was late.", truncation=True'
            )
        },
        scored=ENCODE.format(texts='["The train was late."]'),
    )
    pair_use = ModelUse(
        kind="a regression model: a number for a pair of texts",
        tag="text-classification",
        call='model.regress("The train was late.", "The train was on time.")',
        route="/predict",
        body='{"inputs": [["The train was late.", "The train was on time."]]}',
        libraries={
            "transformers": PIPELINE.format(
                task="text-classification",
                options="",
                text='{"text": "The train was late.", "text_pair": "The train was on time."}',
            )
        },
    )

    def train(self, settings: Regress, pretrained: Checkpoint, fold: int | None) -> Regression:
        return Regression.build(settings, pretrained, read_tables(settings, fold))

    def evaluator(
        self, model: LoadedModel, positive: str | None, thresholds: Mapping[str, Any] | None = None
    ) -> TextEvaluator[Any]:
        return NumberEvaluator()

    def labels(self, model: LoadedModel, table: Table) -> Sequence[float]:
        return numeric_labels(table)

    def predict_rows(self, model: LoadedModel, rows: Sequence[ModelInput], **options: Any) -> list[dict[str, Any]]:
        return [{"score": number} for number in model.regress(*split_pairs(rows), **options).tolist()]

    def columns(self, model: LoadedModel, top: int | None = None, *, has_sets: bool = False) -> dict[str, Any]:
        return {"score": float}


REGRESS = RegressTask()
