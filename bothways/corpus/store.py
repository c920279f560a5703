"""The token store: a corpus as one run of ids, with the bounds of its sentences and documents; in memory, or on disk,
where it is made once by all cores and named by a hash of all that its content depends on."""

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
from bothways.corpus import arrays
from bothways.corpus.encode import EncodedBlock, encode, id_dtype, sentences
from bothways.errors import InputError
from bothways.log import logger
from bothways.tokenizer.tokenizer import Tokenizer

__all__ = ["StoreBuild", "TokenStore", "build_in_memory", "open_or_build", "sentences"]

FORMAT = 2  # of the files
BOUNDS = np.dtype(np.int64)
PROGRESS_EVERY = 30.0  # seconds
NO_TEXT = "the corpus holds no text; give files with words in them"


@dataclass(frozen=True)
class TokenStore:
    """ids: every token of the corpus, no specials. sentences: where each starts in ids, and the end of the last.

    documents: where each starts in sentences, and the end of the last. known: the fingerprint, where it is known.
    """

    ids: np.ndarray
    sentences: np.ndarray
    documents: np.ndarray
    known: str = ""

    @property
    def num_documents(self) -> int:
        return len(self.documents) - 1

    @property
    def num_tokens(self) -> int:
        return len(self.ids)

    @property
    def fingerprint(self) -> str:
        """Names this text as this tokenizer reads it: a hash of ids and bounds."""
        return self.known or _fingerprint(map(arrays.checksums, (self.ids, self.sentences, self.documents)))


@dataclass(frozen=True)
class StoreBuild:
    """A store on disk, and how it came to be: whether it was there already, how many documents were dropped because
    the same text stood before them, the size of the text in MB (10^6 bytes of UTF-8), how long this start took, and
    what its reader had to say of the text."""

    store: TokenStore
    reused: bool
    duplicates: int
    megabytes: float
    seconds: float
    notes: Mapping[str, Any]


def build_in_memory(documents: Iterable[str], tokenizer: Tokenizer, *, language: str = "en") -> TokenStore:
    """A store in memory, for small texts, made in this process."""
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
    """The store of this text below `directory`: the one that is there, if it is sound, else made and left there.

    key: a fingerprint of the raw text, which `documents` is only called to read if it must be. processes: None or 0 for
    one a core; their number does not change the store. Of several processes that ask for one store at the same time,
    one builds and the others wait for it. notes: what the reader has to say once the text is read, kept with the store.
    InputError: no words in the text, a directory that cannot be written, a process that died, or what `documents`
    raises; none leaves a store behind.
    """
    start = time.perf_counter()
    origin = _origin(key, tokenizer, language=language, drop_duplicates=drop_duplicates)
    folder = directory / arrays.digest(origin)
    if (found := _open_store(folder)) is None:
        with arrays.lock(folder):
            if (found := _open_store(folder, quiet=True)) is None:  # nobody built it while this one waited
                intake = DocumentReader(documents(), drop_duplicates)
                with closing(encode(intake, tokenizer, language=language, processes=processes)) as blocks:
                    store = _write_store(folder, blocks, intake, id_dtype(len(tokenizer)), origin, notes)
                took = time.perf_counter() - start
                return StoreBuild(store, False, intake.duplicates, intake.megabytes, took, notes())
    store, facts = found
    took = time.perf_counter() - start
    return StoreBuild(store, True, facts["duplicates"], facts["megabytes"], took, facts["notes"])


def _origin(key: str, tokenizer: Tokenizer, *, language: str, drop_duplicates: bool) -> dict[str, Any]:
    """All that the content of a store depends on."""
    return {
        "format": FORMAT,
        "text": key,
        "vocabulary": arrays.digest(tokenizer.tokens),
        **tokenizer.backend.rules,
        "language": language,
        "drop_duplicates": drop_duplicates,
        "sentencex": version("sentencex"),
        "bothways": bothways.__version__,
    }


def _open_store(folder: Path, *, quiet: bool = False) -> tuple[TokenStore, dict[str, Any]] | None:
    """The store in this folder and its facts; None if there is none, or a damaged one (logged unless `quiet`)."""
    if not folder.exists():
        return None
    try:
        found, facts = arrays.read_arrays(folder)
    except arrays.DamagedStore as damage:
        if not quiet:
            logger.warning(f"{folder}: damaged token store ({damage}); building it again")
        return None
    return _build_store(found, facts), facts


def _build_store(found: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> TokenStore:
    return TokenStore(**found, known=_fingerprint(facts["checksums"][name] for name in found))


class DocumentReader:
    """Documents on their way in: counted, those that stood before left out if asked, progress logged unless `quiet`."""

    def __init__(self, documents: Iterable[str], drop_duplicates: bool, *, quiet: bool = False) -> None:
        self.documents, self.drop_duplicates, self.quiet = documents, drop_duplicates, quiet
        self.num_bytes = self.duplicates = 0

    @property
    def megabytes(self) -> float:
        return self.num_bytes / 1e6

    def __iter__(self) -> Iterator[str]:
        seen: set[bytes] = set()  # some 100 bytes a document
        start = logged = time.perf_counter()
        for document in self.documents:
            text = document.encode("utf-8", "surrogatepass")
            self.num_bytes += len(text)
            if not self.quiet and (now := time.perf_counter()) - logged > PROGRESS_EVERY:
                logger.info(f"token store: {self.megabytes:,.0f} MB read, {self.megabytes / (now - start):.1f} MB/s")
                logged = now
            if self.drop_duplicates:
                digest = blake2b(text, digest_size=16).digest()
                if digest in seen:
                    self.duplicates += 1
                    continue
                seen.add(digest)
            yield document


def _write_store(
    folder: Path, blocks: Iterable[EncodedBlock], intake: DocumentReader, dtype: np.dtype, origin: Mapping[str, Any],
    notes: Callable[[], Mapping[str, Any]],
) -> TokenStore:  # fmt: skip
    with arrays.replace_directory(folder) as beside:
        num_tokens = num_sentences = 0
        for name in ("sentences", "documents"):
            arrays.append_array(beside / name, np.zeros(1, BOUNDS))
        for ids_T, sentence_sizes, document_sizes in blocks:
            arrays.append_array(beside / "ids", ids_T)
            arrays.append_array(beside / "sentences", num_tokens + np.cumsum(sentence_sizes, dtype=BOUNDS))
            arrays.append_array(beside / "documents", num_sentences + np.cumsum(document_sizes, dtype=BOUNDS))
            num_tokens += len(ids_T)
            num_sentences += len(sentence_sizes)
        if not num_tokens:
            raise InputError(NO_TEXT)
        dtypes = {"ids": dtype, "sentences": BOUNDS, "documents": BOUNDS}
        facts = {"origin": origin, "duplicates": intake.duplicates, "megabytes": intake.megabytes, "notes": notes()}
        sealed = arrays.write_metadata(beside, dtypes, facts)
    return _build_store(*sealed)


def _starts(sizes: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(BOUNDS)


def _fingerprint(checksums: Iterable[list[str]]) -> str:
    """checksums: of ids, sentences and documents, in this order."""
    return arrays.digest(list(checksums))
