"""Documents to ids by all cores: split into sentences, encoded, in order, in memory that does not grow with the
corpus. T tokens."""

import gc
import os
import string
from array import array
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from sentencex import segment

from bothways.errors import InputError
from bothways.tokenizer.fast import BertBackend
from bothways.tokenizer.tokenizer import Tokenizer
from bothways.tokenizer.workers import worker_pool

BLOCK_CHARACTERS = 1_000_000  # characters a task: enough to be worth sending, few enough to stay near the processor
READ_AHEAD = 2  # tasks waiting for a free process


class EncodedBlock(NamedTuple):
    """Some documents, those without words left out. ids [T], tokens of each sentence, sentences of each document."""

    ids: np.ndarray
    sentence_sizes: np.ndarray
    document_sizes: np.ndarray


def sentences(document: str, language: str) -> Iterator[str]:
    """Sentences end with lines, and where `sentencex` ends them. A lone surrogate becomes U+FFFD."""
    for line in document.split("\n"):
        if line.strip():
            try:
                yield from segment(language, line)
            except UnicodeEncodeError:
                yield from segment(language, line.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def encode(
    documents: Iterable[str], tokenizer: Tokenizer, *, language: str, processes: int | None = None
) -> Generator[EncodedBlock, None, None]:
    """The documents as blocks, in order, whatever the number of processes. None or 0: one process a core.

    InputError if a process dies; what `documents` raises comes through. Close the iterator to end the processes.
    """
    if processes is not None and processes < 0:
        raise InputError(f"processes ({processes}) must be at least 1; leave it out for one a core")
    encoder, number = DocumentEncoder(tokenizer, language), processes or num_cores()
    if number == 1:
        yield from map(encoder, _blocks(documents))
        return
    with worker_pool(number, "encode text", _start, encoder) as pool:
        running: deque[Future[EncodedBlock]] = deque()
        for block in _blocks(documents):
            running.append(pool.submit(_encode, block))
            if len(running) == number + READ_AHEAD:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()


def num_cores() -> int:
    """Cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def id_dtype(vocab_size: int) -> np.dtype:
    """The smallest kind of number for ids: two bytes each where that is enough."""
    return np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.int32)


def _blocks(documents: Iterable[str]) -> Iterator[list[str]]:
    """The documents, some BLOCK characters at a time."""
    block: list[str] = []
    size = 0
    for document in documents:
        block.append(document)
        size += len(document)
        if size >= BLOCK_CHARACTERS:
            yield block
            block, size = [], 0
    yield block


@dataclass(frozen=True)
class DocumentEncoder:
    """Documents -> Block."""

    tokenizer: Tokenizer
    language: str

    def __call__(self, documents: Sequence[str]) -> EncodedBlock:
        ids_T = array(id_dtype(len(self.tokenizer)).char)  # grows in place, where lists of lists would fill the caches
        sentence_sizes: list[int] = []
        document_sizes: list[int] = []
        for document in documents:
            before = len(sentence_sizes)
            for number, sentence in enumerate(self.sentences(document)):
                if ids := self.tokenizer.ids(sentence, leading_space=number > 0):
                    ids_T.fromlist(ids)
                    sentence_sizes.append(len(ids))
            if len(sentence_sizes) > before:
                document_sizes.append(len(sentence_sizes) - before)
        return EncodedBlock(np.array(ids_T), np.array(sentence_sizes, np.int64), np.array(document_sizes, np.int64))

    def sentences(self, document: str) -> Iterable[str]:
        found = sentences(document, self.language)
        if isinstance(self.tokenizer.backend, BertBackend):
            return _space_punctuation("\n".join(found)).split("\n")
        return map(str.strip, found)  # the space between two is read with the second


def _space_punctuation(text: str) -> str:
    """The text with a space on either side of ASCII punctuation, every mark of which is a word of its own to BERT.

    The ids are the same, and "house", "house," and "(house" are one chunk to remember and not three: a quarter faster.
    """
    for mark in string.punctuation:
        if mark in text:
            text = text.replace(mark, f" {mark} ")
    return text


_encoder: DocumentEncoder


def _start(encoder: DocumentEncoder) -> None:
    global _encoder  # one a process, sent once and not with every block
    _encoder = encoder
    gc.disable()  # nothing here is cyclic, and the collector would search the tokenizer's memory again and again


def _encode(documents: Sequence[str]) -> EncodedBlock:
    return _encoder(documents)
