"""Texts that student and teacher read: passages, and for vectors runs of sentences cut from them, each in its own ids.

Half of the texts are single sentences, as in queries and sentence pairs; the other half are longer, up to the passage.
"""

from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from bothways.base.errors import InputError, flag
from bothways.base.rng import Purpose, make_keys, uniform
from bothways.text.batch import Batch
from bothways.text.corpus.sampler import StepRows
from bothways.text.corpus.token_store import TokenStore
from bothways.text.tokenizer.tokenizer import Tokenizer
from bothways.text.tokenizer.wordpiece import CONTINUATION

MAX_TEXTS = 32  # texts of a passage; the last one has all remaining sentences
MIN_TOKENS = 3  # shorter texts are left out
SINGLE = 0.5  # fraction of texts that are a single sentence


class TeacherIds:
    """The teacher's ids for the student's tokens.

    ids_V: the teacher's id of each entry of the student's vocabulary. InputError if an entry is missing.
    """

    def __init__(self, student: Tokenizer, teacher: Tokenizer) -> None:
        if missing := [token for token in student.tokens if token not in teacher.vocab]:
            raise InputError(
                f"the student's vocabulary has {len(missing):,} entries that the teacher lacks, such as "
                f"{missing[0]!r:.40}; use a student with the teacher's vocabulary, or leave out {flag('student')}"
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


@dataclass(frozen=True)
class DistillationBatch(Batch):
    """A batch with whole texts, not masked, as student and teacher read them, and its passages, not masked, as the
    teacher reads them."""

    texts: Batch | None = None
    teacher_texts: Batch | None = None
    teacher_passages: Batch | None = None


def cut_texts(store: TokenStore, step: StepRows, rows: list[int], *, seed: int, fraction: float) -> np.ndarray:
    """Start and end in the store of the texts cut from the passages of these rows, [N, 2], shortest first.

    fraction: fraction of the texts to return, chosen at random. Depends only on (seed, epoch, section, row).
    """
    texts = []
    ranges_N22 = step.examples.ranges[rows].reshape(-1, 2, 2)
    firsts_N2 = np.searchsorted(store.sentences, ranges_N22[..., 0], "right")  # first bound after the start
    lasts_N2 = np.maximum(np.searchsorted(store.sentences, ranges_N22[..., 1]), firsts_N2)
    counts_N = np.minimum(3 * (lasts_N2 - firsts_N2 + 1).sum(1), 3 * MAX_TEXTS)  # most draws that a row needs
    keys_N = make_keys(seed, Purpose.TEXTS, step.epoch, step.section, np.array(rows))
    draws_ND = uniform(keys_N, counts_N.max(initial=0)).T
    segments = zip(ranges_N22.tolist(), firsts_N2.tolist(), lasts_N2.tolist(), strict=True)
    for draws_D, count, row in zip(draws_ND, counts_N.tolist(), segments, strict=True):
        draw = iter(draws_D[:count].tolist())
        for (start, end), first, last in zip(*row, strict=True):
            bounds = [start, *store.sentences[first:last].tolist(), end]
            position = 0
            while (left := len(bounds) - 1 - position) > 0 and start < end:
                size_draw, length_draw, coin = (next(draw, 1.0) for _ in range(3))
                size = 1 if size_draw < SINGLE else min(left, 2 + int(length_draw * (left - 1)))
                text = bounds[position], bounds[position + size]
                position += size
                if coin < fraction and text[1] - text[0] >= MIN_TOKENS:
                    texts.append(text)
    return np.array(sorted(texts, key=lambda text: text[1] - text[0]), np.int64).reshape(-1, 2)


def text_batch(texts: list[np.ndarray], tokenizer: Tokenizer) -> Batch:
    """A batch of texts of these ids, with special tokens."""
    special = np.array([tokenizer.cls_id]), np.array([tokenizer.sep_id])
    ids = [np.concatenate([special[0], text, special[1]]) for text in texts]
    ids_T, lengths_N = np.concatenate(ids), np.array([*map(len, ids)])
    return Batch.from_arrays(ids_T, np.zeros_like(ids_T), lengths_N)


def student_and_teacher_texts(
    store: TokenStore, texts_N2: np.ndarray, ids: TeacherIds, most: int
) -> tuple[Batch, Batch]:
    """The texts as the student and as the teacher reads them. most: longest text of either, special tokens included."""
    texts = [store.ids[start:end].astype(np.int64)[: most - 2] for start, end in texts_N2.tolist()]
    teacher_texts = [ids.own(text)[: most - 2] for text in texts]
    return text_batch(texts, ids.student), text_batch(teacher_texts, ids.teacher)


def teacher_passages(batch: Batch, ids: TeacherIds, most: int) -> Batch:
    """A batch of passages, not masked, split into the teacher's own pieces; passages of more than `most` are cut."""
    lengths_N = batch.lengths.numpy()
    if ids.is_same and lengths_N.max() <= most:
        return Batch.from_arrays(ids.ids_V[batch.input_ids.numpy()], batch.segment_ids.numpy(), lengths_N)
    bounds_N = lengths_N.cumsum()[:-1]
    rows = zip(*(np.split(values.numpy(), bounds_N) for values in (batch.input_ids, batch.segment_ids)), strict=True)
    tokens, segments, sep_id = list[np.ndarray](), list[np.ndarray](), np.array([ids.teacher.sep_id])
    for ids_S, segments_S in rows:
        cut = np.flatnonzero(np.diff(segments_S)) + 1
        parts = [ids.own(part) for part in np.split(ids_S, cut)]
        row_segments = np.repeat(segments_S[np.concatenate([[0], cut])], [*map(len, parts)])[:most]
        row = np.concatenate(parts)
        tokens.append(row if len(row) <= most else np.concatenate([row[: most - 1], sep_id]))
        segments.append(row_segments)
    return Batch.from_arrays(np.concatenate(tokens), np.concatenate(segments), np.array([*map(len, tokens)]))


def with_teacher_ids(batch: Batch, ids_V: Tensor) -> Batch:
    """The batch with the student's ids replaced by the teacher's."""
    plain = {name: value for name, value in vars(batch).items() if name in Batch.__dataclass_fields__}
    return replace(Batch(**plain), input_ids=ids_V.to(batch.input_ids.device)[batch.input_ids])
