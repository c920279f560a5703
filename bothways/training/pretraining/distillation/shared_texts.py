"""Texts that student and teacher read: passages, and for vectors runs of sentences cut from them, each in its own ids.

Half of the texts are single sentences, as in queries and sentence pairs; the other half are longer, up to the passage.
"""

from collections.abc import Iterator
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
        missing = [token for token in student.tokens if token not in teacher.vocab]
        if missing:
            raise InputError(
                f"the student's vocabulary has {len(missing):,} entries that the teacher lacks, such as "
                f"{missing[0]!r:.40}; use a student with the teacher's vocabulary, or leave out {flag('student')}"
            )
        self.student = student
        self.teacher = teacher
        self.ids_V = np.array([teacher.vocab[token] for token in student.tokens])
        self.is_same = len(student) == len(teacher)
        self.is_continuation_V = np.array([token.startswith(CONTINUATION) for token in student.tokens])

        # The teacher's pieces of words that the student splits, as far as they have occurred.
        self._words: dict[tuple[int, ...], list[int]] = {}

    def own(self, ids_T: np.ndarray) -> np.ndarray:
        """The text of these ids as the teacher splits it into its own pieces; special tokens only as [UNK]."""
        plain_T: np.ndarray = self.ids_V[ids_T]
        if self.is_same:
            return plain_T
        is_inside_T = self.is_continuation_V[ids_T]
        if not is_inside_T.any():
            return plain_T

        # A text that was cut within a word starts with a continuation.
        starts = np.flatnonzero(~is_inside_T | (np.arange(len(ids_T)) == 0))
        pieces: list[int] = []
        for word in np.split(ids_T, starts[1:]):
            if len(word) == 1:
                pieces.append(int(self.ids_V[word[0]]))
            else:
                pieces += self._pieces_of_word(tuple(word.tolist()))
        return np.array(pieces, np.int64)

    def _pieces_of_word(self, ids: tuple[int, ...]) -> list[int]:
        if ids not in self._words:
            text = "".join(self.student.tokens[index].removeprefix(CONTINUATION) for index in ids)
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

    store: the text.
    step: to which the rows belong.
    rows: of its examples.
    seed: the texts depend only on (seed, epoch, section, row).
    fraction: fraction of the texts to return, chosen at random.
    """
    # The bounds of sentences within each of the two segments of a row: the first bound after its start, to its end.
    ranges_N22 = step.examples.ranges[rows].reshape(-1, 2, 2)
    firsts_N2 = np.searchsorted(store.sentences, ranges_N22[..., 0], "right")
    lasts_N2 = np.maximum(np.searchsorted(store.sentences, ranges_N22[..., 1]), firsts_N2)

    # Three draws for each text of a row, of which there are at most as many as sentences.
    num_sentences_N = (lasts_N2 - firsts_N2 + 1).sum(1)
    counts_N = np.minimum(3 * num_sentences_N, 3 * MAX_TEXTS)
    keys_N = make_keys(seed, Purpose.TEXTS, step.epoch, step.section, np.array(rows))
    draws_ND = uniform(keys_N, counts_N.max(initial=0)).T

    texts: list[tuple[int, int]] = []
    segments = zip(ranges_N22.tolist(), firsts_N2.tolist(), lasts_N2.tolist(), strict=True)
    for draws_D, count, row in zip(draws_ND, counts_N.tolist(), segments, strict=True):
        draws = iter(draws_D[:count].tolist())
        for (start, end), first, last in zip(*row, strict=True):
            bounds = [start, *store.sentences[first:last].tolist(), end]
            texts += _texts_between(bounds, draws, fraction)
    return np.array(sorted(texts, key=_length), np.int64).reshape(-1, 2)


def _texts_between(bounds: list[int], draws: Iterator[float], fraction: float) -> list[tuple[int, int]]:
    """Texts of one or more sentences, one after another. bounds: of the sentences. draws: three for each text; once
    there are no more, the rest is one text, which is left out."""
    texts: list[tuple[int, int]] = []
    position = 0
    if bounds[0] >= bounds[-1]:
        return texts

    while position < len(bounds) - 1:
        left = len(bounds) - 1 - position
        size_draw = next(draws, 1.0)
        length_draw = next(draws, 1.0)
        coin = next(draws, 1.0)
        size = 1 if size_draw < SINGLE else min(left, 2 + int(length_draw * (left - 1)))
        text = (bounds[position], bounds[position + size])
        position += size
        if coin < fraction and _length(text) >= MIN_TOKENS:
            texts.append(text)
    return texts


def _length(text: tuple[int, int]) -> int:
    start, end = text
    return end - start


def student_and_teacher_texts(
    store: TokenStore, texts_N2: np.ndarray, ids: TeacherIds, most: int
) -> tuple[Batch, Batch]:
    """The texts as the student and as the teacher reads them.

    store: the text.
    texts_N2: start and end of each text in the store.
    ids: the teacher's ids for the student's tokens.
    most: longest text of either, special tokens included.
    """
    texts = [store.ids[start:end].astype(np.int64)[: most - 2] for start, end in texts_N2.tolist()]
    teacher_texts = [ids.own(text)[: most - 2] for text in texts]
    return text_batch(texts, ids.student), text_batch(teacher_texts, ids.teacher)


def text_batch(texts: list[np.ndarray], tokenizer: Tokenizer) -> Batch:
    """A batch of texts of these ids, with special tokens."""
    first = np.array([tokenizer.cls_id])
    last = np.array([tokenizer.sep_id])
    ids = [np.concatenate([first, text, last]) for text in texts]
    ids_T = np.concatenate(ids)
    lengths_N = np.array([len(text) for text in ids])
    return Batch.from_arrays(ids_T, np.zeros_like(ids_T), lengths_N)


def teacher_passages(batch: Batch, ids: TeacherIds, most: int) -> Batch:
    """A batch of passages, not masked, split into the teacher's own pieces.

    batch: the passages as the student reads them.
    ids: the teacher's ids for the student's tokens.
    most: longest passage, special tokens included; longer ones are cut.
    """
    lengths_N = batch.lengths.numpy()
    if ids.is_same and lengths_N.max() <= most:
        return Batch.from_arrays(ids.ids_V[batch.input_ids.numpy()], batch.segment_ids.numpy(), lengths_N)

    bounds_N = lengths_N.cumsum()[:-1]
    ids_by_passage = np.split(batch.input_ids.numpy(), bounds_N)
    segments_by_passage = np.split(batch.segment_ids.numpy(), bounds_N)
    sep_id = np.array([ids.teacher.sep_id])
    tokens: list[np.ndarray] = []
    segments: list[np.ndarray] = []
    for ids_S, segments_S in zip(ids_by_passage, segments_by_passage, strict=True):
        starts = np.flatnonzero(np.diff(segments_S)) + 1
        parts = [ids.own(part) for part in np.split(ids_S, starts)]
        part_segments = segments_S[np.concatenate([[0], starts])]
        part_lengths = [len(part) for part in parts]
        passage = np.concatenate(parts)
        if len(passage) > most:
            passage = np.concatenate([passage[: most - 1], sep_id])
        tokens.append(passage)
        segments.append(np.repeat(part_segments, part_lengths)[:most])

    lengths = np.array([len(passage) for passage in tokens])
    return Batch.from_arrays(np.concatenate(tokens), np.concatenate(segments), lengths)


def with_teacher_ids(batch: Batch, ids_V: Tensor) -> Batch:
    """The batch with the student's ids replaced by the teacher's."""
    # Without the texts that a DistillationBatch has beside its passages.
    plain = {name: value for name, value in vars(batch).items() if name in Batch.__dataclass_fields__}
    input_ids = ids_V.to(batch.input_ids.device)[batch.input_ids]
    return replace(Batch(**plain), input_ids=input_ids)
