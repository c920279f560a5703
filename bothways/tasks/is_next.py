"""Whether a text follows another (next-sentence prediction, Devlin 2018), which pre-training teaches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bothways.errors import InputError
from bothways.settings.tables_in_memory import TableSource
from bothways.tasks.task import OBJECT, TEXT, TRUNCATE, Item, LabelledRows, Route, Schema, Task, split_pairs

if TYPE_CHECKING:
    from bothways.inference.predictor import Predictor

PAIR: Schema = {"type": "array", "items": TEXT, "minItems": 2, "maxItems": 2}


def next_items(model: Predictor, items: Sequence[Item], reading: Mapping[str, Any]) -> Sequence[Any]:
    """The probability of each pair as JSON."""
    first, second = split_pairs(items)
    scores = model.is_next(first, second or [], **reading)
    return [{"score": score} for score in scores.tolist()]


class NextTask(Task):
    """The probability that the second text follows the first."""

    name = "is_next"
    route = "/next"
    routes = (
        Route(
            "/next",
            "The probability that the second text follows the first",
            {"inputs*": {"oneOf": [PAIR, {"type": "array", "items": PAIR}]}, "truncate": TRUNCATE},
            OBJECT,
            "pairs",
            next_items,
        ),
    )

    def read(self, model: Predictor, files: Sequence[TableSource], columns: Any, *, need_labels: bool) -> LabelledRows:
        raise InputError("a model with a next sentence head alone cannot be evaluated here; fine-tune it first")


IS_NEXT = NextTask()
