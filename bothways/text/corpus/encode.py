"""Tokenize documents in parallel: sentence splitting and encoding, in bounded memory.

Letters: T tokens.
"""

import gc
import string
from array import array
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bothways.base.device import num_cores
from bothways.base.errors import InputError
from bothways.text.tokenizer.fast import BertBackend
from bothways.text.tokenizer.tokenizer import Tokenizer
from bothways.text.tokenizer.worker_processes import are_fewer, worker_pool

BLOCK_CHARACTERS = 1_000_000  # per task: enough to outweigh the transfer, few enough for the CPU caches
SEVERAL_BLOCKS = 4  # from which on processes are started, which takes as long as encoding these
READ_AHEAD = 2  # tasks queued beyond the number of processes


class EncodedBlock(NamedTuple):
    """Encoded documents, without those that have no words.

    ids [T]: of all documents.
    sentence_sizes: tokens per sentence.
    document_sizes: sentences per document.
    """

    ids: np.ndarray
    sentence_sizes: np.ndarray
    document_sizes: np.ndarray


def sentences(document: str, language: str) -> Iterator[str]:
    """Sentences of a document, split at line ends and by `sentencex`. A lone surrogate becomes U+FFFD."""
    # It reads 73 MB/s and finds 25 of 26 sentence ends in hand-written cases; others read 13 or less (docs/LOG.md).
    from sentencex import segment  # not needed to read a finished store

    for line in document.split("\n"):
        if line.strip():
            try:
                yield from segment(language, line)
            except UnicodeEncodeError:
                # A pair of surrogates becomes its character, a lone one U+FFFD.
                repaired = line.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
                yield from segment(language, repaired)


def encode(
    documents: Iterable[str],
    tokenizer: Tokenizer,
    *,
    language: str,
    processes: int | None = None,
) -> Generator[EncodedBlock, None, None]:
    """Encode the documents in blocks; the order does not depend on the number of processes.

    documents: the documents; their exceptions are passed on.
    tokenizer: encodes each sentence.
    language: whose rules end a sentence.
    processes: None or 0 means one per core; a short text is encoded by this one.

    Close the iterator to stop the processes. InputError if a process dies.
    """
    if processes is not None and processes < 0:
        raise InputError(f"processes ({processes}) must be at least 1; leave it out for one per core")

    encoder = DocumentEncoder(tokenizer, language)
    num_processes = processes or num_cores()
    is_small, blocks = are_fewer(_blocks(documents), SEVERAL_BLOCKS)
    if num_processes == 1 or is_small:
        yield from map(encoder, blocks)
        return

    with worker_pool(num_processes, "encode text", _start, encoder) as pool:
        pending: deque[Future[EncodedBlock]] = deque()
        for block in blocks:
            pending.append(pool.submit(_encode, block))
            if len(pending) == num_processes + READ_AHEAD:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def id_dtype(vocab_size: int) -> np.dtype:
    """The smallest dtype for ids: uint16 if the vocabulary fits, else int32."""
    return np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.int32)


def _blocks(documents: Iterable[str]) -> Iterator[list[str]]:
    """The documents in lists of about BLOCK_CHARACTERS characters."""
    block: list[str] = []
    size = 0
    for document in documents:
        block.append(document)
        size += len(document)
        if size >= BLOCK_CHARACTERS:
            yield block
            block = []
            size = 0
    yield block


@dataclass(frozen=True)
class DocumentEncoder:
    """Splits documents into sentences and encodes them."""

    tokenizer: Tokenizer
    language: str

    def __call__(self, documents: Sequence[str]) -> EncodedBlock:
        # One array that grows in place: nested lists would not fit the CPU caches, and took 118 ms per MB of text, the
        # array 101 (docs/LOG.md).
        ids_T = array(id_dtype(len(self.tokenizer)).char)
        sentence_sizes: list[int] = []
        document_sizes: list[int] = []

        for document in documents:
            num_before = len(sentence_sizes)
            for index, sentence in enumerate(self.sentences(document)):
                ids = self.tokenizer.ids(sentence, leading_space=index > 0)
                if ids:
                    ids_T.fromlist(ids)
                    sentence_sizes.append(len(ids))

            num_sentences = len(sentence_sizes) - num_before
            if num_sentences:
                document_sizes.append(num_sentences)

        return EncodedBlock(
            ids=np.array(ids_T),
            sentence_sizes=np.array(sentence_sizes, np.int64),
            document_sizes=np.array(document_sizes, np.int64),
        )

    def sentences(self, document: str) -> Iterable[str]:
        split = sentences(document, self.language)
        if isinstance(self.tokenizer.backend, BertBackend):
            return _space_punctuation("\n".join(split)).split("\n")
        return map(str.strip, split)  # the space between two sentences is encoded with the second


def _space_punctuation(text: str) -> str:
    """Put spaces around ASCII punctuation, which BERT splits off anyway.

    The ids do not change, but "house", "house," and "(house" share one entry of the word cache: 128 ms per MB of text
    instead of 164 (docs/LOG.md).
    """
    for mark in string.punctuation:
        if mark in text:
            text = text.replace(mark, f" {mark} ")
    return text


_encoder: DocumentEncoder


def _start(encoder: DocumentEncoder) -> None:
    global _encoder  # one per process, sent once instead of with every block
    _encoder = encoder
    # No reference cycles here; the collector would repeatedly scan the tokenizer's tables. A new sentence takes 7.9 µs
    # instead of 12.8 (docs/LOG.md).
    gc.disable()


def _encode(documents: Sequence[str]) -> EncodedBlock:
    return _encoder(documents)
