"""The task of the next sentence: the probability that the second text follows the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bothways.base.errors import InputError
from bothways.settings.tables_in_memory import TableSource
from bothways.tasks import task

if TYPE_CHECKING:
    from bothways.tasks.task import LoadedModel


def next_items(model: LoadedModel, items: Sequence[task.Item], reading: Mapping[str, Any]) -> Sequence[Any]:
    """The probability of each pair as JSON."""
    first, second = task.split_pairs(items)
    scores = model.is_next(first, second or [], **reading)
    return [{"score": score} for score in scores.tolist()]


class NextTask(task.Task):
    """The probability that the second text follows the first."""

    name = "is_next"
    route = "/next"
    routes = (
        task.Route(
            path="/next",
            summary="The probability that the second text follows the first",
            answer=task.OBJECT,
            reads="pairs",
            compute=next_items,
        ),
    )

    def read(
        self, model: LoadedModel, files: Sequence[TableSource], columns: Any, *, need_labels: bool
    ) -> task.LabelledRows:
        raise InputError("a model with a next sentence head alone cannot be evaluated here; fine-tune it first")


IS_NEXT = NextTask()
