"""WordPiece: words to subwords, longest match first (Wu 2016, section 4.1; BERT)."""

from collections.abc import Callable, Mapping
from functools import cached_property
from itertools import accumulate, pairwise
from typing import NamedTuple, TypeVar

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
CONTINUATION = "##"
Cached = TypeVar("Cached")


class AddedToken(NamedTuple):
    """A token that is taken out of a text before it is split, with the flags of the `tokenizers` library.

    content: the token.
    single_word: only where no letter is beside it.
    lstrip, rstrip: with the spaces before or after it.
    normalized: found in the normalized text.
    special: left out when ids are decoded.
    """

    content: str
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False
    special: bool = False


class WordPiece:
    """Splits a word greedily into the longest pieces of a vocabulary; [UNK] replaces a word that cannot be split."""

    def __init__(self, vocab: Mapping[str, int], *, unknown_id: int, max_word_length: int = 100) -> None:
        self.unknown_id = unknown_id
        self.max_word_length = max_word_length
        self.initial = vocab
        # Without ##, so that a word is looked up as it is written.
        self.continuations = {
            piece[len(CONTINUATION) :]: index for piece, index in vocab.items() if piece.startswith(CONTINUATION)
        }
        self.max_piece_length = max(map(len, vocab), default=0)

    def __call__(self, word: str) -> tuple[int, ...]:
        """The ids of a word's pieces; only the unknown id if the word is too long or cannot be split."""
        size = len(word)
        if size > self.max_word_length:
            return (self.unknown_id,)

        index = self.initial.get(word)
        if index is not None:  # as for most words of a text
            return (index,)

        pieces = []
        start = 0
        table = self.initial
        while start < size:
            longest_end = min(size, start + self.max_piece_length)
            for end in range(longest_end, start, -1):
                index = table.get(word[start:end])
                if index is not None:
                    break
            else:
                return (self.unknown_id,)
            pieces.append(index)
            start = end
            table = self.continuations
        return tuple(pieces)

    def spans(self, word: str) -> list[tuple[int, int]]:
        """Characters [start, end) of each piece of a word; an unknown word is a single span."""
        ids = self(word)
        if ids == (self.unknown_id,):
            return [(0, len(word))]

        ends = list(accumulate(self.size_by_id[index] for index in ids))
        return list(pairwise([0, *ends]))

    @cached_property
    def size_by_id(self) -> dict[int, int]:
        """The number of characters of each piece."""
        return {
            index: len(piece) - len(CONTINUATION) * piece.startswith(CONTINUATION)
            for piece, index in self.initial.items()
        }


class BoundedCache(dict[str, Cached]):
    """Caches a function of a string. Holds at most two generations of `limit` strings; long ones are not cached."""

    MAX_LENGTH = 64

    def __init__(self, function: Callable[[str], Cached], *, limit: int = 1 << 18) -> None:
        super().__init__()
        self.function = function
        self.limit = limit
        self.previous: dict[str, Cached] = {}

    def __missing__(self, text: str) -> Cached:
        cached = self.previous.get(text)
        value = self.function(text) if cached is None else cached

        if len(text) <= self.MAX_LENGTH:
            if len(self) >= self.limit:
                self.previous = dict(self)
                self.clear()
            self[text] = value
        return value
