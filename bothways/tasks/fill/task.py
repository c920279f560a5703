"""The task of filling: words in place of each mask of a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bothways.settings.tables_in_memory import TableSource
from bothways.tasks import task
from bothways.tasks.fill.decoding import Guesses
from bothways.tasks.fill.scoring import MaskEvaluator, mask_words
from bothways.text.data.examples import read_table

if TYPE_CHECKING:
    from bothways.tasks.task import LoadedModel


def fill_items(
    model: LoadedModel, items: Sequence[task.Item], reading: Mapping[str, Any], *, top: int
) -> Sequence[Any]:
    """The guesses for each mask of each text as JSON."""
    by_text = model.fill(task.firsts(items), top=top, **reading)
    return [Guesses(masks).to_json() for masks in by_text]


class FillTask(task.Task):
    """Words in place of each mask of a text."""

    name = "fill"
    route = "/fill"
    evaluate_options = ("documents", "max_length")
    evaluate_data = "masked words of plain text"
    skips_rows = True
    routes = (
        task.Route(
            path="/fill",
            summary="Words for each [MASK] of a text",
            answer=task.LIST,
            reads="texts",
            compute=fill_items,
            options={"top": (5, 1, task.MOST_RESULTS)},
            shape=lambda model, masks, options: masks[0] if len(masks) == 1 else masks,
        ),
    )

    def read(
        self, model: LoadedModel, files: Sequence[TableSource], columns: Any, *, need_labels: bool
    ) -> task.LabelledRows:
        """Texts with masked words, for which the guesses of two models are compared."""
        texts = [
            text
            for file in files
            for text in read_table(file, text=columns.text_column, need_labels=False, encoding=columns.encoding).texts
        ]
        return task.LabelledRows(MaskEvaluator(), [mask_words(text, model.tokenizer) for text in texts], labelled=False)


FILL = FillTask()
