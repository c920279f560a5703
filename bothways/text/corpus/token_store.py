"""Token store: a tokenized corpus as one array of ids, in memory or cached on disk.

The ids come with the bounds of sentences and documents. A store on disk is built once, in parallel, and its directory
is named by a hash of everything its content depends on.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import bothways
from bothways.base.errors import InputError
from bothways.base.log import logger
from bothways.text.corpus import array_files
from bothways.text.corpus.encode import EncodedBlock, encode, id_dtype, sentences
from bothways.text.tokenizer.tokenizer import Tokenizer

__all__ = ["StoreBuild", "TokenStore", "build_in_memory", "open_or_build", "sentences"]

FORMAT = 2  # version of the file format
BOUNDS = np.dtype(np.int64)
PROGRESS_EVERY = 30.0  # seconds
NO_TEXT = "the corpus holds no text; give files with words in them"


@dataclass(frozen=True)
class TokenStore:
    """A tokenized corpus.

    ids: all tokens of the corpus, without special tokens.
    sentences: start of each sentence in ids, and the end of the last.
    documents: start of each document in sentences, and the end of the last.
    known: the fingerprint, if it is already computed.
    """

    ids: array_files.StoredArray
    sentences: np.ndarray
    documents: np.ndarray
    known: str = ""

    @property
    def is_local(self) -> bool:
        """Whether the ids are in memory or on the local disk, rather than in object storage."""
        return bool(getattr(self.ids, "is_local", True))

    @property
    def num_documents(self) -> int:
        return len(self.documents) - 1

    @property
    def num_tokens(self) -> int:
        return len(self.ids)

    @property
    def fingerprint(self) -> str:
        """A hash of ids and bounds, which identifies the text as encoded by this tokenizer."""
        if self.known:
            return self.known

        arrays = (self.ids, self.sentences, self.documents)
        return _fingerprint(array_files.checksums(array[:]) for array in arrays)


@dataclass(frozen=True)
class StoreBuild:
    """A store on disk and how it was obtained.

    store: the store.
    reused: whether it existed already.
    duplicates: number of documents dropped as duplicates.
    megabytes: 10^6 bytes of UTF-8 text.
    seconds: time to open or build it.
    notes: the report of the corpus reader.
    """

    store: TokenStore
    reused: bool
    duplicates: int
    megabytes: float
    seconds: float
    notes: Mapping[str, Any]


def build_in_memory(documents: Iterable[str], tokenizer: Tokenizer, *, language: str = "en") -> TokenStore:
    """Build a store in memory, in this process; for small corpora."""
    blocks = encode(documents, tokenizer, language=language, processes=1)
    ids_T, sentence_sizes, document_sizes = map(np.concatenate, zip(*blocks, strict=True))
    if not len(ids_T):
        raise InputError(NO_TEXT)

    return TokenStore(ids_T, _starts(sentence_sizes), _starts(document_sizes))


def open_or_build(
    directory: Path,
    key: str,
    documents: Callable[[], Iterable[str]],
    tokenizer: Tokenizer,
    *,
    language: str,
    processes: int | None,
    drop_duplicates: bool,
    notes: Callable[[], Mapping[str, Any]] = dict,
) -> StoreBuild:
    """Open the store of this text below `directory`; build it if it is missing or damaged.

    directory: the directory of the stores.
    key: a fingerprint of the raw text.
    documents: called only if the store must be built; its exceptions are passed on.
    tokenizer: encodes the documents.
    language: whose rules end a sentence.
    processes: None or 0 means one per core; the number does not change the store.
    drop_duplicates: whether a document that is equal to an earlier one is left out.
    notes: called after reading; the result is saved with the store.

    If several processes request the same store, one builds it while the others wait. After an error no store is left
    behind. InputError if the text has no words, the directory cannot be written or a process dies.
    """
    start = time.perf_counter()
    origin = _origin(key, tokenizer, language=language, drop_duplicates=drop_duplicates)
    folder = directory / array_files.digest(origin)

    # Most runs find the store: opening it and checking every checksum of 403 MB of text takes 0.09 s (docs/RESULTS.md).
    opened = _open_store(folder)
    if opened is None:
        build_folder = array_files.storage_of(folder).build_folder(folder)
        with array_files.lock(build_folder):
            opened = _open_store(folder, quiet=True)
            if opened is None:  # no other process built it in the meantime
                reader = DocumentReader(documents(), drop_duplicates)
                with closing(encode(reader, tokenizer, language=language, processes=processes)) as blocks:
                    store = _write_store(
                        folder,
                        blocks,
                        reader,
                        dtype=id_dtype(len(tokenizer)),
                        origin=origin,
                        notes=notes,
                    )
                return StoreBuild(
                    store=store,
                    reused=False,
                    duplicates=reader.duplicates,
                    megabytes=reader.megabytes,
                    seconds=time.perf_counter() - start,
                    notes=notes(),
                )

    store, metadata = opened
    return StoreBuild(
        store=store,
        reused=True,
        duplicates=metadata["duplicates"],
        megabytes=metadata["megabytes"],
        seconds=time.perf_counter() - start,
        notes=metadata["notes"],
    )


def _origin(
    key: str,
    tokenizer: Tokenizer,
    *,
    language: str,
    drop_duplicates: bool,
) -> dict[str, Any]:
    """Everything the content of a store depends on."""
    return {
        "format": FORMAT,
        "text": key,
        "vocabulary": array_files.digest(tokenizer.tokens),
        **tokenizer.backend.rules,
        "language": language,
        "drop_duplicates": drop_duplicates,
        "sentencex": version("sentencex"),
        "bothways": bothways.__version__,
    }


def _open_store(folder: Path, *, quiet: bool = False) -> tuple[TokenStore, dict[str, Any]] | None:
    """The store in this folder and its metadata; None if it is missing or damaged (logged unless `quiet`)."""
    if not folder.exists():
        return None

    try:
        stored_arrays, metadata = array_files.storage_of(folder).read_arrays(folder)
    except array_files.DamagedStore as error:
        if not quiet:
            logger.warning(f"{folder}: damaged token store ({error}); building it again")
        return None

    return _build_store(stored_arrays, metadata), metadata


def _build_store(stored_arrays: Mapping[str, Any], metadata: Mapping[str, Any]) -> TokenStore:
    fingerprint = _fingerprint(metadata["checksums"][name] for name in stored_arrays)
    return TokenStore(**stored_arrays, known=fingerprint)


class DocumentReader:
    """Iterates over documents, counts them, optionally drops exact duplicates, and logs progress unless `quiet`."""

    def __init__(self, documents: Iterable[str], drop_duplicates: bool, *, quiet: bool = False) -> None:
        self.documents = documents
        self.drop_duplicates = drop_duplicates
        self.quiet = quiet
        self.num_bytes = 0
        self.duplicates = 0

    @property
    def megabytes(self) -> float:
        return self.num_bytes / 1e6

    def __iter__(self) -> Iterator[str]:
        # Digests instead of texts: about 100 bytes per document.
        seen: set[bytes] = set()
        start = time.perf_counter()
        last_report = start

        for document in self.documents:
            text = document.encode("utf-8", "surrogatepass")
            self.num_bytes += len(text)

            if not self.quiet and (now := time.perf_counter()) - last_report > PROGRESS_EVERY:
                logger.info(f"token store: {self.megabytes:,.0f} MB read, {self.megabytes / (now - start):.1f} MB/s")
                last_report = now

            if self.drop_duplicates:
                digest = blake2b(text, digest_size=16).digest()
                if digest in seen:
                    self.duplicates += 1
                    continue
                seen.add(digest)

            yield document


def _write_store(
    folder: Path,
    blocks: Iterable[EncodedBlock],
    reader: DocumentReader,
    *,
    dtype: np.dtype,
    origin: Mapping[str, Any],
    notes: Callable[[], Mapping[str, Any]],
) -> TokenStore:
    """Write the blocks as they come, so that memory is bounded, and the metadata last."""
    with array_files.storage_of(folder).array_writer(folder) as writer:
        num_tokens = 0
        num_sentences = 0
        writer.append("sentences", np.zeros(1, BOUNDS))
        writer.append("documents", np.zeros(1, BOUNDS))
        for ids_T, sentence_sizes, document_sizes in blocks:
            writer.append("ids", ids_T)
            writer.append("sentences", num_tokens + np.cumsum(sentence_sizes, dtype=BOUNDS))
            writer.append("documents", num_sentences + np.cumsum(document_sizes, dtype=BOUNDS))
            num_tokens += len(ids_T)
            num_sentences += len(sentence_sizes)

        if not num_tokens:
            raise InputError(NO_TEXT)

        dtypes = {
            "ids": dtype,
            "sentences": BOUNDS,
            "documents": BOUNDS,
        }
        metadata = {
            "origin": origin,
            "duplicates": reader.duplicates,
            "megabytes": reader.megabytes,
            "notes": notes(),
        }
        contents = writer.finish(dtypes, metadata)

    return _build_store(*contents)


def _starts(sizes: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(BOUNDS)


def _fingerprint(checksums: Iterable[list[str]]) -> str:
    """checksums: of ids, sentences and documents, in this order."""
    return array_files.digest(list(checksums))
