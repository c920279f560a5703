"""Vocabulary of the student: the teacher's most frequent entries, and how the teacher reads the student's tokens."""

import string
from collections import Counter
from collections.abc import Mapping

import numpy as np

from bothways.errors import InputError
from bothways.tokenizer.fast import BertBackend
from bothways.tokenizer.tokenizer import Tokenizer
from bothways.tokenizer.wordpiece import CONTINUATION

ALPHABET = string.ascii_letters + string.digits  # always kept, at the start and inside of words


def reduce_vocabulary(tokenizer: Tokenizer, words: Mapping[str, int], size: int | None = None) -> Tokenizer:
    """A tokenizer with the `size` most frequent entries of a WordPiece vocabulary, in their order; None: all that
    occur.

    words: count of each word of the text. Special and added tokens, Latin letters and digits always stay, and without a
    size every single character, so that a word whose entry is gone is split into smaller pieces instead of becoming
    [UNK].
    """
    check_word_pieces(tokenizer, f"vocab_size ({size})")
    counts: Counter[int] = Counter()
    for word, count in words.items():
        for piece in tokenizer.ids(word):
            counts[piece] += count
    assert isinstance(tokenizer.backend, BertBackend)
    needed = {*tokenizer.special_ids, *(tokenizer.vocab[token.content] for token in tokenizer.backend.added)}
    needed |= {
        index
        for index, char in enumerate(token.removeprefix(CONTINUATION) for token in tokenizer.tokens)
        if len(char) == 1 and (size is None or char in ALPHABET)
    }
    size = len(tokenizer) if size is None else size
    if size < len(needed):
        raise InputError(f"vocab_size ({size}) must be at least {len(needed)}: special tokens, letters and digits")
    ranked = sorted(counts.keys() - needed, key=lambda index: (-counts[index], index))
    kept = sorted(needed.union(ranked[: size - len(needed)]))
    return Tokenizer({tokenizer.tokens[index]: new for new, index in enumerate(kept)}, **tokenizer.backend.rules)


def check_word_pieces(tokenizer: Tokenizer, setting: str) -> None:
    if not isinstance(tokenizer.backend, BertBackend):
        raise InputError(f"{setting}: only WordPiece vocabularies can be reduced; leave it out")


class TeacherIds:
    """The teacher's ids for the student's tokens.

    ids_V: the teacher's id of each entry of the student's vocabulary. InputError if an entry is missing.
    """

    def __init__(self, student: Tokenizer, teacher: Tokenizer) -> None:
        if missing := [token for token in student.tokens if token not in teacher.vocab]:
            raise InputError(
                f"the student's vocabulary has {len(missing):,} entries that the teacher lacks, such as "
                f"{missing[0]!r:.40}; use a student with the teacher's vocabulary, or leave out --student"
            )
        self.student, self.teacher = student, teacher
        self.ids_V = np.array([teacher.vocab[token] for token in student.tokens])
        self.is_same = len(student) == len(teacher)
        self.is_continuation_V = np.array([token.startswith(CONTINUATION) for token in student.tokens])
        self._words: dict[tuple[int, ...], list[int]] = {}

    def own(self, ids_T: np.ndarray) -> np.ndarray:
        """The text of these ids as the teacher splits it into its own pieces; special tokens only as [UNK]."""
        if self.is_same or not (inside_T := self.is_continuation_V[ids_T]).any():
            plain_T: np.ndarray = self.ids_V[ids_T]
            return plain_T
        starts = np.flatnonzero(~inside_T | (np.arange(len(ids_T)) == 0))
        pieces: list[int] = []
        for word in np.split(ids_T, starts[1:]):
            pieces += [int(self.ids_V[word[0]])] if len(word) == 1 else self._word(tuple(word.tolist()))
        return np.array(pieces, np.int64)

    def _word(self, ids: tuple[int, ...]) -> list[int]:
        if ids not in self._words:
            first, *rest = (self.student.tokens[index] for index in ids)
            text = first.removeprefix(CONTINUATION) + "".join(piece.removeprefix(CONTINUATION) for piece in rest)
            self._words[ids] = self.teacher.ids(text)
        return self._words[ids]
