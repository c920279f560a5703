"""Indexing of folders: new, changed and deleted files are found by size, time and hash, read, and committed to a store.

Words and static vectors come first, so that one can search soon; the vectors of an encoder follow, if there is one.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path

from bothways.base.errors import InputError, flag
from bothways.base.log import LINE_EVERY, ProgressBar, logger, show_progress, working
from bothways.base.paths import local_file
from bothways.search.database import DATABASE, check_is_store
from bothways.search.folder import FoundFile, find_documents, unread_documents
from bothways.search.passages import split_passages
from bothways.search.reader_process import Readers
from bothways.search.readers import DocumentPart
from bothways.search.spaces import EncoderVectors, files_state, open_vectors
from bothways.search.writing import FileState, IndexedFile, IndexedPassage, StoreWriter, writer_lock

PASSAGE_TOKENS = 200
COMMIT_PASSAGES = 4096  # passages of a commit, at least, unless
COMMIT_SECONDS = 5.0  # this time has passed
ENCODER_PASSAGES = 1024  # passages whose vectors are computed between two commits
SETTLED = 2e9  # nanoseconds after which a file that changes surely has another time


@dataclass
class Indexed:
    """Result of indexing. new, changed, deleted, unchanged: numbers of files. skipped: {file: reason} of files that
    cannot be read. unread: {type: number} of documents of types without a reader. passages, files: in all."""

    store: Path
    new: int = 0
    changed: int = 0
    deleted: int = 0
    unchanged: int = 0
    skipped: dict[str, str] = field(default_factory=dict)
    unread: dict[str, int] = field(default_factory=dict)
    files: int = 0
    passages: int = 0
    seconds: float = 0.0

    def as_json(self) -> dict[str, object]:
        return {**vars(self), "store": str(self.store)}


@working("index")
def index(
    folders: Sequence[Path],
    store: Path,
    *,
    static_model: str,
    encoder: str | None,
    language: str = "en",
    globs: Sequence[str] = (),
    remove: Sequence[Path] = (),
    device: str = "auto",
    dtype: str = "auto",
) -> Indexed:
    """Bring a store up to date with folders (or single files). encoder: the model of the second vectors; None: only
    static ones. remove: folders to forget. InputError if another process writes the store."""
    started = time.monotonic()
    if remove or (store / DATABASE).exists():
        check_is_store(store)  # before anything is written beside it
    with writer_lock(store) as is_locked:
        if not is_locked:
            raise InputError(
                f"{store}: another process is indexing into it; wait for it to end, or name another {flag('out')}"
            )
        writer = StoreWriter(
            store, static=open_vectors("static", static_model), static_model=static_model, language=language
        )
        try:
            result = Indexed(store)
            folders = [*(folder.resolve() for folder in folders), *_forget(writer, remove, result)]
            _index_files(writer, folders, globs, language, result)
            if writer.has_old_words() or writer.dead() > writer.slots // 2:
                writer.compact()
            # A model takes seconds to load, so it is loaded only if there is something to compute.
            if encoder is not None and not writer.has_all_vectors(encoder, state := files_state(encoder)):
                _index_vectors(writer, EncoderVectors(encoder, device=device, dtype=dtype), state)
            execute = writer.database.execute
            result.files = execute("SELECT count(*) FROM files WHERE error IS NULL").fetchone()[0]
            result.passages = execute("SELECT count(*) FROM passages").fetchone()[0]
        finally:
            writer.close()
    result.seconds = time.monotonic() - started
    return result


def _index_files(
    writer: StoreWriter, folders: Sequence[Path], globs: Sequence[str], language: str, result: Indexed
) -> None:
    batch = _Batch(writer)
    todo = _find_changes(batch, _overlapping(writer, folders, result), globs, result)
    if not todo:  # a bar would cost more time than a search
        batch.commit()
        return
    with Readers() as readers, _Progress("reading", "files", len(todo)) as progress:
        for number, (root, document, before) in enumerate(todo, 1):
            file = _read(root, document, before, readers, writer.count_tokens, language)
            if before is not None and file.state.digest == before.digest:
                writer.touch(root, document.relative, file.state)
                result.unchanged += 1
                if before.error:
                    result.skipped[str(document.path)] = before.error
            else:
                batch.add(file)
                result.changed += before is not None
                result.new += before is None
                if file.state.error:
                    result.skipped[str(document.path)] = file.state.error
                    logger.warning(f"{file.state.error}; skipped")
            progress.show(number, f"{batch.total:,} passages")
    batch.commit()


def _find_changes(
    batch: "_Batch", folders: Sequence[Path], globs: Sequence[str], result: Indexed
) -> list[tuple[int, FoundFile, FileState | None]]:
    """The files that are new or may have changed: (root, file, its state in the store).

    Moves those that belong to another root, and has the batch remove those that are gone."""
    writer, todo, skipped = batch.writer, [], Counter[str]()
    roots, known = {folder: writer.root(folder) for folder in folders}, writer.known_files()
    for document in find_documents(folders, glob=globs, skip=writer.directory, skipped=skipped):
        relative = "" if document.path == document.root else document.relative
        root, others = roots[document.root], known.pop(document.path, [])
        same = [one for one in others if one[:2] == (root, relative)] or others[:1]
        batch.removed += [one[:2] for one in others if one not in same]
        old_root, old_relative, state = same[0] if same else (root, relative, None)
        if old_root not in roots.values():  # of a folder around the one that is named
            root, relative = old_root, old_relative
        elif (old_root, old_relative) != (root, relative):
            writer.move((old_root, old_relative), (root, relative))
        if state is None or (state.size, state.modified) != (document.size, document.modified_ns):
            todo.append((root, replace(document, relative=relative), state))
            continue
        result.unchanged += 1
        if state.error:
            result.skipped[str(document.path)] = state.error
    result.unread = unread_documents(skipped)
    tops = tuple(os.path.join(str(folder), "") for folder in folders)
    for path, gone in known.items():  # files of all other folders too, so not by `path.parents`, which is slow
        is_inside = str(path).startswith(tops)
        files = [one[:2] for one in gone if one[0] in roots.values() or (is_inside and not path.exists())]
        batch.removed += files
        result.deleted += bool(files)
    return todo


def _forget(writer: StoreWriter, remove: Sequence[Path], result: Indexed) -> list[Path]:
    """Forget folders. Returns those inside them that were named too, whose files may have been forgotten with them."""
    paths = [path if path in writer.roots() else path.resolve() for path in (path.absolute() for path in remove)]
    for path in paths:
        result.deleted += writer.remove_root(path)
    return [root for root in writer.roots() if any(path in root.parents for path in paths) and root.exists()]


def _overlapping(writer: StoreWriter, folders: Sequence[Path], result: Indexed) -> list[Path]:
    """The folders, and those of the store inside them, outer ones first, so that each file is found in one place."""
    inside = []
    for root in writer.roots():
        if any(folder in root.parents for folder in folders):
            if root.exists():
                inside.append(root)
            else:
                result.deleted += writer.remove_root(root)
        elif root not in folders and not root.exists():
            logger.warning(f"{root}: no longer there; its files stay in the index until {flag('remove', root)}")
    return sorted(dict.fromkeys([*folders, *inside]), key=lambda path: len(path.parts))


def _read(
    root: int,
    document: FoundFile,
    before: FileState | None,
    readers: Readers,
    count_tokens: Callable[[str], int],
    language: str,
) -> IndexedFile:
    """Read a file that is new or may have changed. For an unreadable file, the IndexedFile has the error."""
    for _ in range(2):
        try:
            stat, passages, error = document.path.stat(), [], None
            with local_file(document.path) as path:
                digest = file_digest(path)
                if before is None or digest != before.digest:
                    parts = readers.read(path)
                    passages = [pair for part in parts for pair in _passages(part, count_tokens, language)]
            after = document.path.stat()
            if (after.st_size, after.st_mtime_ns, after.st_ino) != (stat.st_size, stat.st_mtime_ns, stat.st_ino):
                continue
        except InputError as problem:
            passages, error = [], str(problem)
        except OSError as problem:
            return IndexedFile(root, document.relative, FileState(0, -1, b"", f"{document.path}: {problem.strerror}"))
        is_settled = time.time_ns() - stat.st_mtime_ns > SETTLED
        state = FileState(stat.st_size, stat.st_mtime_ns if is_settled else -1, digest, error)
        return IndexedFile(root, document.relative, state, passages)
    return IndexedFile(root, document.relative, FileState(0, -1, b"", f"{document.path}: changes while it is read"))


def file_digest(path: Path) -> bytes:
    """A hash of the bytes of a file."""
    digest = blake2b(digest_size=16)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.digest()


def _passages(part: DocumentPart, count_tokens: Callable[[str], int], language: str) -> list[IndexedPassage]:
    passages = split_passages(
        part.text,
        count_tokens,
        max_tokens=PASSAGE_TOKENS,
        language=language,
        is_markdown=part.is_markdown,
        first_line=part.first_line or 1,
        page=part.page,
    )
    if part.is_row:
        passages = [replace(passage, line=part.first_line or 1) for passage in passages]
    has_lines = part.first_line is not None
    return [IndexedPassage(passage, has_lines, part.metadata, part.offset) for passage in passages]


class _Batch:
    """Files that wait for a commit."""

    def __init__(self, writer: StoreWriter) -> None:
        self.writer, self.total, self.waiting, self.since = writer, 0, 0, time.monotonic()
        self.files: list[IndexedFile] = []
        self.removed: list[tuple[int, str]] = []

    def add(self, file: IndexedFile) -> None:
        self.files.append(file)
        self.waiting += len(file.passages)
        self.total += len(file.passages)
        if self.waiting >= COMMIT_PASSAGES or time.monotonic() - self.since > COMMIT_SECONDS:
            self.commit()

    def commit(self) -> None:
        if self.files or self.removed:
            self.writer.commit(self.files, self.removed)
        self.files, self.removed, self.waiting, self.since = [], [], 0, time.monotonic()


def _index_vectors(writer: StoreWriter, encoder: EncoderVectors, state: str) -> None:
    """Compute the vectors of the encoder that are missing."""
    writer.use_encoder(encoder.model, encoder, state)
    first, slots = int(writer.database.get("encoder_rows", 0)), writer.slots
    with _Progress("vectors", "passages", slots, done=first) as progress:
        while texts := writer.missing_vectors(ENCODER_PASSAGES):
            writer.commit_vectors(encoder.embed(texts))
            first += len(texts)
            progress.show(first, "")


class _Progress(ProgressBar):
    """Shows how much is done, with speed and time left: a bar on a terminal, a line every half minute elsewhere."""

    def __init__(self, title: str, unit: str, total: int, *, done: int = 0) -> None:
        super().__init__(title, total, done=done)
        self.unit, self.number, self.first = unit, total, done
        self.start = self.logged = time.monotonic()

    def show(self, done: int, detail: str) -> None:
        now = time.monotonic()
        speed = (done - self.first) / max(now - self.start, 1e-9)
        text = f"{speed:,.0f} {self.unit}/s{'  ' + detail if detail else ''}"
        if self.is_drawn:
            self.update(done, text)
        elif now - self.logged >= LINE_EVERY:
            self.logged = now
            left = f"{(self.number - done) / speed:,.0f} s left"
            show_progress(f"{self.title}: {done:,} of {self.number:,}, {text}, {left}")
