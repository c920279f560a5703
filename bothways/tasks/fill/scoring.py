"""Masked words: the evaluator of guesses, and the texts with masked words that it compares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from bothways.tasks import MASK, task
from bothways.tasks.scores import Scores
from bothways.text.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from bothways.tasks.task import LoadedModel

MASK_EVERY = 7  # words: about as many are masked as in BERT's training


@dataclass(frozen=True)
class MaskEvaluator(task.Evaluator[str, list[str]]):
    """Masked words: the percentage of guesses that equal the reference's. Rows are texts with masks."""

    agreement = "same guesses"

    def predict(self, model: LoadedModel, rows: Sequence[str]) -> list[list[str]]:
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
