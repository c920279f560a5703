"""Tagged sentences as training examples: splits, tag schemes, windows with labels.

A training text is a run of sentences of one document, as many as fit into a window, so that each sentence is read in
context and no token is computed twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Literal

import numpy as np

from bothways.base.errors import InputError, flag
from bothways.tasks.arrays import NO_LABEL
from bothways.tasks.offsets import BertWords, align_words, bert_words
from bothways.tasks.tag.decoding import LabelledWindow, Scores, Tagset, label_windows
from bothways.tasks.windows import NUM_SPECIALS, WindowPolicy, whole_length
from bothways.text.batch import Batch
from bothways.text.data.columns import Table
from bothways.text.data.near_duplicates import first_locations, text_key
from bothways.text.data.tags import (
    OUTSIDE,
    Scheme,
    Sentence,
    detect_scheme,
    find_illegal_tag,
    join_words,
    spans_to_tags,
    tags_to_spans,
    word_starts,
)
from bothways.text.tokenizer.encoding import Encoding
from bothways.text.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class TaggedWindows:
    """Windows with labels at some of their tokens; each is an example of its own."""

    windows: list[LabelledWindow]

    @cached_property
    def sizes(self) -> list[int]:
        return [len(window.window) for window in self.windows]

    def batch(self, rows: Sequence[int]) -> Batch:
        """labels [T]: NO_LABEL at tokens without one."""
        import torch

        batch = Batch.from_encodings([self.windows[row].window for row in rows])
        labels_T = torch.full((batch.num_tokens,), NO_LABEL)
        for start, row in zip(batch.first_tokens.tolist(), rows, strict=True):
            window = self.windows[row]
            labels_T[start + torch.from_numpy(window.rows)] = torch.from_numpy(window.labels)
        return replace(batch, labels=labels_T)


@dataclass(frozen=True)
class TaggedTexts:
    """The texts of a split as runs of sentences, and the windows of each text, [texts][windows]."""

    texts: list[list[Sentence]]
    windows_by_text: list[list[LabelledWindow]]

    @staticmethod
    def read(
        texts: list[list[Sentence]], tokenizer: Tokenizer, policy: WindowPolicy, tagset: Tagset, *, strict: bool
    ) -> TaggedTexts:
        """texts: with IOB2 or plain tags. strict: InputError for a tag that is not in the tagset; else ignored."""
        windows_by_text = []
        for text in texts:
            words = all_words(text)
            (windows,) = policy.split([tokenizer.encode(join_words(words))])
            tags = [*chain.from_iterable(sentence.tags for sentence in text)]
            windows_by_text.append(label_windows(windows, words, tags, tagset, where=text[0].where, strict=strict))
        return TaggedTexts(texts, windows_by_text)

    @staticmethod
    def unlabelled(
        table: Table, tokenizer: Tokenizer, policy: WindowPolicy, tagset: Tagset, *, context: bool
    ) -> TaggedTexts:
        """Texts, each read on its own, with no label at any word."""
        sentences = [
            Sentence(words=tuple(words), tags=(tagset.names[0],) * len(words), where=where, document=document)
            for document, (text, where) in enumerate(zip(table.texts, table.where, strict=True))
            if (words := text.split())
        ]
        grouped = group_sentences(sentences, tokenizer, policy.size if context else 0)
        texts = TaggedTexts.read([*grouped], tokenizer, policy, tagset, strict=True)
        windows = [
            [replace(window, labels=np.full_like(window.labels, NO_LABEL)) for window in windows]
            for windows in texts.windows_by_text
        ]
        return replace(texts, windows_by_text=windows)

    @property
    def examples(self) -> TaggedWindows:
        return TaggedWindows([*chain.from_iterable(self.windows_by_text)])

    @property
    def documents(self) -> list[str]:
        """The document of each window (`documents_of`)."""
        documents = documents_of([text[0] for text in self.texts])
        return [name for name, windows in zip(documents, self.windows_by_text, strict=True) for _ in windows]

    @cached_property
    def sentences(self) -> list[Sentence]:
        return [*chain.from_iterable(self.texts)]

    @property
    def encodings(self) -> list[list[Encoding]]:
        """Windows of each text, without labels."""
        return [[window.window for window in windows] for windows in self.windows_by_text]

    @property
    def lengths(self) -> list[int]:
        """Tokens of each whole text."""
        return [*map(whole_length, self.encodings)]

    @property
    def num_long(self) -> int:
        """Number of texts that are split into several windows."""
        return sum(len(windows) > 1 for windows in self.windows_by_text)


def transfer_scores(
    windows: Sequence[Encoding], scores_SC: Scores, student_windows: Sequence[LabelledWindow], words: Sequence[str]
) -> list[Scores]:
    """A teacher's scores of a text's words for each window of a student that may have another tokenizer, [S, C].

    Tokens without labels have NaN. windows, scores_SC: the teacher's windows of the text, and the scores of all its
    tokens.
    """
    teacher, starts_W = bert_word_starts(windows, words)
    score_by_start = dict(zip(starts_W, scores_SC[teacher.first_W + 1], strict=True))
    student, starts_W = bert_word_starts([window.window for window in student_windows], words)
    unknown_C = np.full(scores_SC.shape[1], np.nan, np.float32)
    scores_TC = np.full((len(student.source.ids), len(unknown_C)), np.nan, np.float32)
    scores_TC[student.first_W] = [score_by_start.get(start, unknown_C) for start in starts_W]
    transferred = []
    for window in student_windows:
        window_SC = np.full((len(window.window), len(unknown_C)), np.nan, np.float32)
        window_SC[window.rows] = scores_TC[window.rows - 1 + window.window.ranges[0][1]]
        transferred.append(window_SC)
    return transferred


def bert_word_starts(windows: Sequence[Encoding], words: Sequence[str]) -> tuple[BertWords, list[int]]:
    """BERT's words, and the character at which each starts; the first one in a word starts where the word does."""
    bert = bert_words(windows)
    word_W, is_first_W = align_words(words, bert)
    starts = np.array(word_starts(words), np.int64)
    places = bert.source.token_spans
    own_W = np.array([places[first].start for first in bert.first_W.tolist()], np.int64)
    return bert, np.where(is_first_W, starts[word_W], own_W).tolist()


def sentence_key(sentence: Sentence) -> str:
    """A key that near-duplicate sentences share."""
    return text_key(" ".join(sentence.words))


def read_tagset(
    sentences: Mapping[str, Sequence[Sentence]], requested: Scheme | Literal["auto"], source: object, *, folds: bool
) -> tuple[Scheme, Tagset, dict[str, list[Sentence]]]:
    """The scheme and the tags of the training sentences, and all sentences with IOB2 or plain tags."""
    # In cross-validation some fold trains on each row, and all folds need the same tags.
    labelled = [*chain.from_iterable(sentences.values())] if folds else sentences["train"]
    scheme = detect_or_check_scheme(labelled, requested)
    converted = {split: [to_iob2(sentence, scheme) for sentence in rows] for split, rows in sentences.items()}
    tags = chain.from_iterable(to_iob2(sentence, scheme).tags for sentence in labelled)
    tagset = Tagset.from_tags(tags, plain=scheme == "plain")
    if not tagset.plain and tagset.names == (OUTSIDE,):
        raise InputError(f"{source}: every tag is {OUTSIDE}; there is nothing to learn")
    return scheme, tagset, converted


def detect_or_check_scheme(sentences: Sequence[Sentence], requested: Scheme | Literal["auto"]) -> Scheme:
    """The requested tag scheme, or a detected one. InputError for the first tag that it does not allow."""
    tags = [sentence.tags for sentence in sentences]
    scheme: Scheme = detect_scheme(tags) if requested == "auto" else requested
    for sentence in sentences:
        if illegal := find_illegal_tag(sentence.tags, scheme):
            word = f"word {illegal.position + 1} of the sentence, {sentence.words[illegal.position]!r}"
            raise InputError(
                f"{sentence.where}: {word}: {illegal.why}; correct the tag, or give another {flag('scheme')}"
            )
    return scheme


def documents_of(sentences: Sequence[Sentence]) -> list[str]:
    """The document of each sentence, or without documents the location of the first near duplicate of the sentence."""
    firsts = first_locations(map(sentence_key, sentences), (sentence.where for sentence in sentences))
    return [
        first if sentence.document is None else f"{sentence.where.file}, document {sentence.document}"
        for sentence, first in zip(sentences, firsts, strict=True)
    ]


def to_iob2(sentence: Sentence, scheme: Scheme) -> Sentence:
    """The sentence with its tags as IOB2; plain tags stay as they are."""
    if scheme == "plain":
        return sentence
    try:
        return replace(
            sentence, tags=tuple(spans_to_tags(tags_to_spans(sentence.tags, scheme), len(sentence.words), "iob2"))
        )
    except InputError as error:
        raise InputError(f"{sentence.where}: {error}") from None


def group_sentences(sentences: Sequence[Sentence], tokenizer: Tokenizer, window: int) -> Iterator[list[Sentence]]:
    """Consecutive sentences of one document, as many as fit into a window of tokens, but at least one."""
    room = window - NUM_SPECIALS
    group: list[Sentence] = []
    num_tokens = 0
    for sentence in sentences:
        length = len(tokenizer.ids(join_words(sentence.words)))
        if group and (num_tokens + length > room or sentence.document != group[0].document):
            yield group
            group = []
            num_tokens = 0
        group.append(sentence)
        num_tokens += length
    if group:
        yield group


def all_words(sentences: Sequence[Sentence]) -> Sequence[str]:
    """The words of all sentences, in order; the words of a single sentence as they are."""
    if len(sentences) == 1:
        return sentences[0].words
    return [*chain.from_iterable(sentence.words for sentence in sentences)]
