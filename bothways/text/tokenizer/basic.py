"""Basic tokenization: text to words as in BERT (clean, lower-case, strip accents, split).

The rules are those of google-research/bert's BasicTokenizer, as implemented by the `tokenizers` library.
"""

import re
from dataclasses import dataclass, field
from itertools import groupby

from bothways.text.tokenizer.characters import (
    combining_class,
    decompose,
    is_chinese,
    is_mark,
    is_punctuation,
    is_removed,
    is_space,
    lower,
    unstripped_marks,
)

_WORD = re.compile("[^ ]+")


class CharacterTable(dict[int, str]):
    """Code point -> replacement, with spaces around characters that are words of their own. Filled on demand.

    Parameters: see `Splitter`.
    """

    def __init__(
        self,
        *,
        lowercase: bool,
        strip_accents: bool,
        split_chinese: bool,
        split_punctuation: bool = True,
    ) -> None:
        super().__init__()
        self.lowercase = lowercase
        self.strip_accents = strip_accents
        self.split_chinese = split_chinese
        self.split_punctuation = split_punctuation

    def __missing__(self, point: int) -> str:
        char = chr(point)
        if is_removed(char):
            text = ""
        elif is_space(char):
            text = " "
        else:
            parts = decompose(char) if self.strip_accents else char
            text = "".join(map(self.fold, parts))
            if self.split_chinese and is_chinese(char):
                text = f" {text} "
        self[point] = text
        return text

    def fold(self, char: str) -> str:
        """The replacement of a decomposed character."""
        if self.strip_accents and is_mark(char):
            return ""
        lowered = lower(char) if self.lowercase else char
        if self.split_punctuation and is_punctuation(char):
            return f" {lowered} "
        return lowered


@dataclass(frozen=True)
class Splitter:
    """Splits text into words.

    lowercase: whether upper and lower case are one.
    strip_accents: whether marks are removed; None follows `lowercase`, as in BERT.
    split_chinese: whether each ideograph is a word.
    split_punctuation: False only normalizes.

    `splitter(text)` returns the words; `splitter.spans(text)` also traces each of their characters to the text.
    """

    lowercase: bool = True
    strip_accents: bool | None = None
    split_chinese: bool = True
    split_punctuation: bool = field(default=True, repr=False)
    table: CharacterTable = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        table = CharacterTable(
            lowercase=self.lowercase,
            strip_accents=self.lowercase if self.strip_accents is None else self.strip_accents,
            split_chinese=self.split_chinese,
            split_punctuation=self.split_punctuation,
        )
        object.__setattr__(self, "table", table)

    def __call__(self, text: str) -> list[str]:
        if text.isascii() and text.isalnum():  # most chunks are plain words
            return [text.lower() if self.lowercase else text]

        normalized = text.translate(self.table)
        if self.must_reorder(normalized):
            normalized = self._reorder(text)[0]
        return normalized.split()

    def spans(self, text: str) -> list[tuple[str, list[int]]]:
        """(word, index in the text of each of its characters), in order."""
        normalized, origins = self.normalize(text)
        return [(match[0], origins[match.start() : match.end()]) for match in _WORD.finditer(normalized)]

    def normalize(self, text: str) -> tuple[str, list[int]]:
        """The normalized text, and the index in the text of each of its characters."""
        pieces = [self.table[ord(char)] for char in text]
        normalized = "".join(pieces)
        if self.must_reorder(normalized):
            return self._reorder(text)

        origins = [index for index, piece in enumerate(pieces) for _ in piece]
        return normalized, origins

    def must_reorder(self, normalized: str) -> bool:
        """Whether the table left combining marks, whose canonical order it does not handle."""
        return self.table.strip_accents and not unstripped_marks().isdisjoint(normalized)

    def _reorder(self, text: str) -> tuple[str, list[int]]:
        """Normalized text and origins, with combining marks sorted by class (Unicode 3.11, D109). Rarely needed.

        As in the reference, characters are reordered but their origins keep the order of the text.
        """
        # Each with the number of characters that it replaces in the text: 1, or 0 if it was added.
        chars: list[tuple[str, int]] = []
        kept = [index for index, char in enumerate(text) if not is_removed(char)]
        for index in kept:
            char = text[index]
            parts = " " if is_space(char) else decompose(char)
            spaces = [(" ", 0)] * (self.split_chinese and is_chinese(char))
            chars += spaces
            chars.append((parts[0], 1))
            chars += [(part, 0) for part in parts[1:]]
            chars += spaces

        ordered: list[tuple[str, int]] = []
        for _, run in groupby(chars, key=lambda pair: combining_class(pair[0]) > 0):
            ordered += sorted(run, key=lambda pair: combining_class(pair[0]))  # stable

        pieces: list[str] = []
        origins: list[int] = []
        num_consumed = 0  # characters of the text so far
        for char, consumed in ordered:
            num_consumed += consumed
            piece = char if char == " " else self.table.fold(char)
            pieces.append(piece)
            origins += [kept[max(0, num_consumed - 1)]] * len(piece)
        return "".join(pieces), origins
