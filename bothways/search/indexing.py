"""Indexing of folders: new, changed and deleted files are found by size, time and hash, read, and committed to a store.

Words and static vectors come first, so that one can search soon; the vectors of an encoder follow, if there is one.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path

from bothways.base.errors import InputError, flag, format_count
from bothways.base.log import logger
from bothways.base.paths import local_file
from bothways.base.progress import LINE_EVERY, ProgressBar, show_progress, working
from bothways.search.database import DATABASE, check_is_store
from bothways.search.folder import FoundFile, find_documents, unread_documents
from bothways.search.passages import split_passages
from bothways.search.reader_process import Readers
from bothways.search.readers import DocumentPart
from bothways.search.spaces import EncoderVectors, files_state, open_vectors
from bothways.search.writing import (
    FileState,
    IndexedFile,
    IndexedPassage,
    KnownFile,
    StoreWriter,
    own_lock,
)

PASSAGE_TOKENS = 200
COMMIT_PASSAGES = 4096  # a commit has at least so many passages, unless COMMIT_SECONDS have passed
COMMIT_SECONDS = 5.0
ENCODER_PASSAGES = 1024  # passages whose vectors are computed between two commits
SETTLED = 2e9  # nanoseconds after which a file that changes surely has another time


@dataclass
class Indexed:
    """Result of indexing.

    new, changed, deleted, unchanged: numbers of files.
    skipped: {file: reason} of files that cannot be read.
    unread: {type: number} of documents of types without a reader.
    files, passages: of the store, in all.
    """

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

    def to_json(self) -> dict[str, object]:
        return {**vars(self), "store": str(self.store)}

    def lines(self) -> Iterator[str]:
        yield f"{self.summary}, in {self.store}"

    @property
    def summary(self) -> str:
        """The result in one line, without the store."""
        counts = {
            "new": self.new,
            "changed": self.changed,
            "deleted": self.deleted,
            "skipped": len(self.skipped),
        }
        changes = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
        passages = format_count(self.passages, "passage")
        files = format_count(self.files, "file")
        done = f"{passages} of {files} in {self.seconds:.1f} s ({changes or 'no changes'})"
        return done + unread_summary(self.unread)


def unread_summary(unread: Mapping[str, int]) -> str:
    """The end of a line on the documents without a reader."""
    if not unread:
        return ""
    counts = ", ".join(f"{count:,} {kind}" for kind, count in unread.items())
    return f"; not read: {counts}"


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
    """Bring a store up to date with folders (or single files).

    folders: what is indexed, besides the folders that the store has already.
    store: its directory, which is made if it is not there.
    static_model: the model of the first vectors, which need no torch.
    encoder: the model of the second vectors; None: only static ones.
    language: of the texts, for stems of words and ends of sentences.
    globs: patterns that choose files, as `folder.find_documents` reads them.
    remove: folders to forget.
    device, dtype: of the encoder.

    InputError if another process writes the store.

    >>> index([Path("documents")], Path("my-index"), static_model="bothways-en-static", encoder=None).skipped
    {}
    """
    started = time.monotonic()
    if remove or (store / DATABASE).exists():
        check_is_store(store)  # before anything is written beside it

    with own_lock(store):
        writer = StoreWriter(
            store,
            static=open_vectors("static", static_model),
            static_model=static_model,
            language=language,
        )
        try:
            result = Indexed(store)
            folders = [folder.resolve() for folder in folders]
            folders += _forget(writer, remove, result)
            _index_files(writer, folders, globs, language, result)

            # A search reads the vectors of empty slots, too.
            if writer.has_old_words() or writer.dead() > writer.slots // 2:
                writer.compact()

            if encoder is not None:
                # A model takes seconds to load, so it is loaded only if there is something to compute.
                state = files_state(encoder)
                if not writer.has_all_vectors(encoder, state):
                    _index_vectors(writer, EncoderVectors(encoder, device=device, dtype=dtype), state)

            execute = writer.database.execute
            result.files = execute("SELECT count(*) FROM files WHERE error IS NULL").fetchone()[0]
            result.passages = execute("SELECT count(*) FROM passages").fetchone()[0]
        finally:
            writer.close()

    result.seconds = time.monotonic() - started
    return result


def _forget(writer: StoreWriter, remove: Sequence[Path], result: Indexed) -> list[Path]:
    """Forget folders. Returns the roots inside them, whose files may have been forgotten with them."""
    roots = writer.roots()
    paths = []
    for folder in remove:
        path = folder.absolute()
        paths.append(path if path in roots else path.resolve())

    for path in paths:
        result.deleted += writer.remove_root(path)

    inside = (root for root in writer.roots() if any(path in root.parents for path in paths))
    return [root for root in inside if root.exists()]


def _index_files(
    writer: StoreWriter,
    folders: Sequence[Path],
    globs: Sequence[str],
    language: str,
    result: Indexed,
) -> None:
    batch = _Batch(writer)
    todo = _find_changes(batch, _overlapping(writer, folders, result), globs, result)
    if not todo:  # a bar would cost more time than a search
        batch.commit()
        return

    with Readers() as readers, IndexingProgress("reading", "files", len(todo)) as progress:
        for number, (root, document, before) in enumerate(todo, 1):
            file = _read(
                root,
                document,
                before,
                readers=readers,
                count_tokens=writer.count_tokens,
                language=language,
            )
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


def _overlapping(writer: StoreWriter, folders: Sequence[Path], result: Indexed) -> list[Path]:
    """The folders, and the folders of the store inside them, outer ones first, so that each file is found once."""
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


def _find_changes(
    batch: "_Batch",
    folders: Sequence[Path],
    globs: Sequence[str],
    result: Indexed,
) -> list[tuple[int, FoundFile, FileState | None]]:
    """The files that are new or may have changed: (root, file, its state in the store).

    Moves files that belong to another root, and has the batch remove files that are gone."""
    writer = batch.writer
    roots = {folder: writer.root(folder) for folder in folders}
    unseen = writer.known_files()  # files of the store that the walk has not come to
    skipped = Counter[str]()
    todo = []

    for document in find_documents(folders, glob=globs, skip=writer.directory, skipped=skipped):
        root = roots[document.root]
        relative = "" if document.path == document.root else document.relative
        entries = unseen.pop(document.path, [])
        entry = _entry_of_file(entries, root, relative)
        batch.removed += [(other.root, other.path) for other in entries if other != entry]

        state = None
        if entry is not None:
            state = entry.state
            if entry.root not in roots.values():  # of a folder around the one that is named
                root = entry.root
                relative = entry.path
            elif (entry.root, entry.path) != (root, relative):
                writer.move((entry.root, entry.path), (root, relative))

        if state is None or (state.size, state.modified) != (document.size, document.modified_ns):
            todo.append((root, replace(document, relative=relative), state))
            continue
        result.unchanged += 1
        if state.error:
            result.skipped[str(document.path)] = state.error

    result.unread = unread_documents(skipped)
    _remove_gone(batch, unseen, roots, result)
    return todo


def _entry_of_file(entries: Sequence[KnownFile], root: int, relative: str) -> KnownFile | None:
    """The entry of a file in the store: below this root, or else below any."""
    for entry in entries:
        if (entry.root, entry.path) == (root, relative):
            return entry
    return entries[0] if entries else None


def _remove_gone(
    batch: "_Batch",
    unseen: Mapping[Path, Sequence[KnownFile]],
    roots: Mapping[Path, int],
    result: Indexed,
) -> None:
    """Have the batch remove files that a walk through the roots has not found."""
    tops = tuple(os.path.join(str(folder), "") for folder in roots)
    for path, entries in unseen.items():
        # These are files of all other folders too, so they are not compared by `path.parents`, which is slow.
        is_inside = str(path).startswith(tops)
        files = []
        for entry in entries:
            if entry.root in roots.values() or (is_inside and not path.exists()):
                files.append((entry.root, entry.path))
        batch.removed += files
        result.deleted += bool(files)


def _read(
    root: int,
    document: FoundFile,
    before: FileState | None,
    *,
    readers: Readers,
    count_tokens: Callable[[str], int],
    language: str,
) -> IndexedFile:
    """Read a file that is new or may have changed. For an unreadable file, the IndexedFile has the error."""

    def unreadable(reason: str | None) -> IndexedFile:
        state = FileState(size=0, modified=-1, digest=b"", error=f"{document.path}: {reason}")
        return IndexedFile(root, document.relative, state)

    # Once more if the file was written while it was read.
    for _ in range(2):
        passages: list[IndexedPassage] = []
        error = None
        try:
            stat = document.path.stat()
            with local_file(document.path) as path:
                digest = file_digest(path)
                if before is None or digest != before.digest:
                    for part in readers.read(path):
                        passages += _passages(part, count_tokens, language)
            if _version(document.path.stat()) != _version(stat):
                continue
        except InputError as problem:
            passages = []
            error = str(problem)
        except OSError as problem:
            return unreadable(problem.strerror)

        # A file of the last seconds may change again within the resolution of its time, so its time says nothing.
        is_settled = time.time_ns() - stat.st_mtime_ns > SETTLED
        state = FileState(
            size=stat.st_size,
            modified=stat.st_mtime_ns if is_settled else -1,
            digest=digest,
            error=error,
        )
        return IndexedFile(root, document.relative, state, passages)
    return unreadable("changes while it is read")


def _version(status: os.stat_result) -> tuple[int, int, int]:
    """A value that changes when a file is written or replaced."""
    return status.st_size, status.st_mtime_ns, status.st_ino


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

    indexed = []
    for passage in passages:
        indexed.append(
            IndexedPassage(
                passage,
                has_lines=part.first_line is not None,
                metadata=part.metadata,
                offset=part.offset,
            )
        )
    return indexed


class _Batch:
    """Files that wait for a commit."""

    def __init__(self, writer: StoreWriter) -> None:
        self.writer = writer
        self.total = 0  # passages
        self._begin()

    def _begin(self) -> None:
        self.files: list[IndexedFile] = []
        self.removed: list[tuple[int, str]] = []
        self.waiting = 0  # passages
        self.since = time.monotonic()

    def add(self, file: IndexedFile) -> None:
        self.files.append(file)
        self.waiting += len(file.passages)
        self.total += len(file.passages)

        # Only committed passages can be searched, and outlive a kill.
        if self.waiting >= COMMIT_PASSAGES or time.monotonic() - self.since > COMMIT_SECONDS:
            self.commit()

    def commit(self) -> None:
        if self.files or self.removed:
            self.writer.commit(self.files, self.removed)
        self._begin()


def _index_vectors(writer: StoreWriter, encoder: EncoderVectors, state: str) -> None:
    """Compute the vectors of the encoder that are missing."""
    writer.use_encoder(encoder.model, encoder, state)
    done = int(writer.database.get("encoder_rows", 0))
    with IndexingProgress("vectors", "passages", writer.slots, done=done) as progress:
        while texts := writer.missing_vectors(ENCODER_PASSAGES):
            writer.commit_vectors(encoder.embed(texts))
            done += len(texts)
            progress.show(done)


class IndexingProgress(ProgressBar):
    """Shows how much is done, with speed and time left: a bar on a terminal, a line every half minute elsewhere."""

    def __init__(self, title: str, unit: str, total: int, *, done: int = 0) -> None:
        super().__init__(title, total, done=done)
        self.unit = unit
        self.number = total
        self.first = done
        self.start = time.monotonic()
        self.logged = self.start

    def show(self, done: int, detail: str = "") -> None:
        now = time.monotonic()
        speed = (done - self.first) / max(now - self.start, 1e-9)
        text = f"{speed:,.0f} {self.unit}/s"
        if detail:
            text += f"  {detail}"

        if self.is_drawn:
            self.update(done, text)
        elif now - self.logged >= LINE_EVERY:
            self.logged = now
            left = f"{(self.number - done) / speed:,.0f} s left"
            show_progress(f"{self.title}: {done:,} of {self.number:,}, {text}, {left}")
