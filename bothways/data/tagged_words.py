"""Words with tags: a sentence, and the words of a text with their places in it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from bothways.errors import RowLocation


class TextWords(tuple[str, ...]):
    """Words as slices of a text: text[starts[i] : starts[i] + len(words[i])] == words[i]."""

    text: str
    starts: tuple[int, ...]

    def __new__(cls, words: Iterable[str], text: str, starts: Iterable[int]) -> "TextWords":
        created = super().__new__(cls, words)
        created.text, created.starts = text, tuple(starts)
        return created

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self), self.text, self.starts  # for pickle and copy


def join_words(words: Sequence[str]) -> str:
    """The text of words: the one that they are slices of, else the words joined by single spaces."""
    return words.text if isinstance(words, TextWords) else " ".join(words)


def word_starts(words: Sequence[str]) -> tuple[int, ...]:
    """The index of each word's first character in join_words(words)."""
    if isinstance(words, TextWords):
        return words.starts
    return (*accumulate((len(word) + 1 for word in words[:-1]), initial=0),) if words else ()


@dataclass(frozen=True, slots=True)
class Sentence:
    """Words, one tag per word, and the location; in a file with a word per line, a row is a sentence.

    words: TextWords if they come from a text. document: index of its document, from 0; None if the file does not mark
    documents.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...]
    where: RowLocation
    document: int | None = None

    def __len__(self) -> int:
        return len(self.words)
