"""The token store: a corpus as one run of ids, with the bounds of its sentences and documents."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
from sentencex import segment

from bothways.errors import InputError
from bothways.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class TokenStore:
    """ids: every token of the corpus, no specials. sentences: where each starts in ids, and the end of the last.

    documents: where each starts in sentences, and the end of the last.
    """

    ids: np.ndarray
    sentences: np.ndarray
    documents: np.ndarray

    @property
    def num_documents(self) -> int:
        return len(self.documents) - 1

    @property
    def num_tokens(self) -> int:
        return len(self.ids)

    @property
    def fingerprint(self) -> str:
        """Names this text as this tokenizer reads it: a hash of ids and bounds."""
        digest = sha256()
        for array in (self.ids, self.sentences, self.documents):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:16]


def build(documents: Iterable[str], tokenizer: Tokenizer, *, language: str = "en") -> TokenStore:
    """Split documents into sentences and encode them. Sentences end with lines, and where `sentencex` ends them."""
    pieces: list[np.ndarray] = []
    sentence_sizes: list[int] = []
    document_sizes: list[int] = []
    for document in documents:
        encoded = [ids for sentence in sentences(document, language) if (ids := tokenizer.ids(sentence))]
        if encoded:
            pieces.append(np.concatenate([np.array(ids, np.int32) for ids in encoded]))
            sentence_sizes += map(len, encoded)
            document_sizes.append(len(encoded))
    if not pieces:
        raise InputError("the corpus holds no text; give files with words in them")
    return TokenStore(np.concatenate(pieces), _starts(sentence_sizes), _starts(document_sizes))


def sentences(document: str, language: str) -> Iterator[str]:
    for line in document.split("\n"):
        if line.strip():
            yield from segment(language, line)


def _starts(sizes: list[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
