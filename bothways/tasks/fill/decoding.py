"""Masked words: the masks of a text, and the guesses for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

from bothways.base.errors import InputError, shorten
from bothways.tasks import MASK
from bothways.text.tokenizer.encoding import Encoding
from bothways.text.tokenizer.tokenizer import Tokenizer

Words = tuple[list[float], list[int]]  # probabilities and ids of the most probable words, best first


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
