"""Filling masked words (cloze), and whether a text follows another (next-sentence prediction, Devlin 2018), which
pre-training teaches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from bothways.base.errors import InputError, shorten
from bothways.settings.tables_in_memory import TableSource
from bothways.tasks import MASK, task
from bothways.tasks.scores import Scores
from bothways.text.data.examples import read_table
from bothways.text.tokenizer.tokenizer import Encoding, Tokenizer

if TYPE_CHECKING:
    from bothways.tasks.task import LoadedModel

Words = tuple[list[float], list[int]]  # probabilities and ids of the most probable words, best first
MASK_EVERY = 7  # words: about as many are masked as in BERT's training


# --- decoding ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Guess:
    """A guess for a mask: the token, its probability, and the text with the token in place of the mask."""

    token: str
    score: float
    text: str

    def to_json(self) -> dict[str, Any]:
        return {**vars(self)}


class Guesses(list[list[Guess]]):
    """The guesses for each mask of a text, best first."""

    def to_json(self) -> list[list[dict[str, Any]]]:
        return [[guess.to_json() for guess in mask] for mask in self]

    def lines(self) -> Iterator[str]:
        for number, mask in enumerate(self, 1):
            if len(self) > 1:
                yield f"mask {number}"
            for guess in mask:
                yield f"{guess.score:6.1%}  {guess.token:16} {guess.text}"


class MaskedText(NamedTuple):
    """A text with the tokenizer's own masks, its tokens, and which of them are masks."""

    text: str
    encoding: Encoding
    masks: Sequence[int]


def find_masks(texts: Sequence[str], tokenizer: Tokenizer) -> list[MaskedText]:
    """Texts with their masks. InputError for a text without a mask."""
    mask = tokenizer.tokens[tokenizer.mask_id]
    masked = []
    for text in (text.replace(MASK, mask) for text in texts):
        encoding = tokenizer.encode(text, allow_special=(mask,))
        masks = [index for index, token in enumerate(encoding.ids) if token == tokenizer.mask_id]
        if not masks:
            raise InputError(f"no {mask} in {shorten(text)!r}; write {mask} where a word is to be guessed")
        masked.append(MaskedText(text, encoding, masks))
    return masked


def fill_masks(
    masked: Sequence[MaskedText],
    windows: Sequence[Sequence[Encoding]],
    guess: Callable[[list[Encoding], list[tuple[int, ...]]], list[list[Words]]],
    tokenizer: Tokenizer,
) -> list[list[list[Guess]]]:
    """The guesses for each mask of each text, best first. windows: of each text. guess: the most probable words at some
    rows of each of some windows; windows without a mask are not run."""
    mask = tokenizer.tokens[tokenizer.mask_id]
    places = [
        [(text, *most_central(windows[text], index, mask)) for index in one.masks] for text, one in enumerate(masked)
    ]

    rows: dict[tuple[int, int], list[int]] = {}
    for text, window, row in chain.from_iterable(places):
        rows.setdefault((text, window), []).append(row)

    guesses = guess([windows[text][window] for text, window in rows], [*map(tuple, rows.values())])
    words = {
        (*window, row): best
        for (window, of_window), guessed in zip(rows.items(), guesses, strict=True)
        for row, best in zip(of_window, guessed, strict=True)
    }

    return [
        [
            [
                fill_mask(one.text, one.encoding.offsets[index], *scored, tokenizer)
                for scored in zip(*words[place], strict=True)
            ]
            for index, place in zip(one.masks, of_text, strict=True)
        ]
        for one, of_text in zip(masked, places, strict=True)
    ]


def most_central(windows: Sequence[Encoding], index: int, mask: str) -> tuple[int, int]:
    """The window in which token `index` of a text is furthest from the ends, and its row there."""
    starts = [window.ranges[0][1] for window in windows]
    rows = {
        number: index - start
        for number, (window, start) in enumerate(zip(windows, starts, strict=True))
        if 0 < index - start < len(window) - 1
    }
    if not rows:
        raise InputError(f"token {index} is a {mask} that truncation cut off; use long='windows'")
    best = max(rows, key=lambda number: min(rows[number], len(windows[number]) - 1 - rows[number]))
    return best, rows[best]


def fill_mask(text: str, span: tuple[int, int], score: float, index: int, tokenizer: Tokenizer) -> Guess:
    """The text with entry `index` of the vocabulary in place of the mask at span."""
    filled = tokenizer.backend.append_token(text[: span[0]], tokenizer.tokens[index])
    return Guess(tokenizer.decode([index], keep_special=True, clean_up_spaces=False), score, filled + text[span[1] :])


# --- with a model -----------------------------------------------------------------------------------------------------


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


# --- the next sentence ------------------------------------------------------------------------------------------------


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
