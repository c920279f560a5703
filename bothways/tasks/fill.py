"""Filling masked words (cloze), which pre-training teaches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from bothways.data.examples import read_table
from bothways.settings.tables_in_memory import TableSource
from bothways.tasks import MASK
from bothways.tasks.scores import Scores
from bothways.tasks.task import (
    LIST,
    MOST_RESULTS,
    NUMBER,
    ONE_OR_MANY,
    TRUNCATE,
    Evaluator,
    Item,
    LabelledRows,
    Route,
    Task,
    firsts,
)
from bothways.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from bothways.inference.predictor import Predictor

MASK_EVERY = 7  # words: about as many are masked as in BERT's training


@dataclass(frozen=True)
class MaskEvaluator(Evaluator[str, list[str]]):
    """Masked words: the percentage of guesses that equal the reference's. Rows are texts with masks."""

    agreement = "same guesses"

    def predict(self, model: Predictor, rows: Sequence[str]) -> list[list[str]]:
        return [[best.token for best, *_ in model.fill(text, top=1)] for text in rows]

    def agree(self, predictions: Sequence[list[str]], reference: Sequence[list[str]] | None) -> Scores:
        assert reference is not None
        return super().agree([*chain.from_iterable(predictions)], [*chain.from_iterable(reference)])


def mask_words(text: str, tokenizer: Tokenizer) -> str:
    """The text with every seventh word masked, or every seventh token if the text has no spaces."""
    encoding = tokenizer.encode(text)
    word_ids = encoding.word_ids
    has_words = len({*word_ids}) > len(word_ids) / MASK_EVERY
    spans: dict[int, tuple[int, int]] = {}
    for index, (word, (start, end)) in enumerate(zip(word_ids, encoding.offsets, strict=True)):
        if word is not None and start < end:
            unit = word if has_words else index
            spans[unit] = (spans[unit][0] if unit in spans else start, end)
    for start, end in reversed([*spans.values()][::MASK_EVERY]):
        text = f"{text[:start]}{MASK}{text[end:]}"
    return text if spans else MASK


def fill_items(model: Predictor, items: Sequence[Item], reading: Mapping[str, Any], *, top: int) -> Sequence[Any]:
    """The guesses for each mask of each text as JSON."""
    by_text = model.fill(firsts(items), top=top, **reading)
    return [[[guess.to_json() for guess in guesses] for guesses in masks] for masks in by_text]


class FillTask(Task):
    """Words in place of each mask of a text."""

    name = "fill"
    route = "/fill"
    routes = (
        Route(
            "/fill",
            "Words for each [MASK] of a text",
            {"inputs*": ONE_OR_MANY, "top": NUMBER, "truncate": TRUNCATE},
            LIST,
            "texts",
            fill_items,
            {"top": (5, 1, MOST_RESULTS)},
            shape=lambda model, masks, options: masks[0] if len(masks) == 1 else masks,
        ),
    )

    def read(self, model: Predictor, files: Sequence[TableSource], columns: Any, *, need_labels: bool) -> LabelledRows:
        """Texts with masked words, for which the guesses of two models are compared."""
        texts = [
            text
            for file in files
            for text in read_table(file, text=columns.text_column, need_labels=False, encoding=columns.encoding).texts
        ]
        return LabelledRows(MaskEvaluator(), [mask_words(text, model.tokenizer) for text in texts], False)


FILL = FillTask()
