"""Extraction: a table of the entities, labels and answers of every document in folders.

Files are read one after the other, in the order of their paths, and their facts are computed here or in workers. They
are committed to a database beside the output, which is written from it at the end, so a killed run continues and ends
with the same bytes.
"""

import json
import os
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from hashlib import blake2b
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bothways.base.device import num_cores, set_num_threads
from bothways.base.errors import InputError, flag, format_count, require
from bothways.base.io import fsync, full_disk_named
from bothways.base.log import logger
from bothways.base.paths import local_file
from bothways.base.progress import ProgressBar
from bothways.model.checkpoint import hub
from bothways.model.checkpoint.description import DECIDE
from bothways.search.database import from_stored, to_stored
from bothways.search.entity_groups import group_document
from bothways.search.fact_table import FORMATS, write_rows
from bothways.search.folder import FoundFile, find_documents, unread_documents
from bothways.search.indexing import file_digest, unread_summary
from bothways.search.reader_process import Readers
from bothways.search.readers import DocumentPart
from bothways.tasks import TASKS
from bothways.tasks.decide.questions import named_options
from bothways.text.tokenizer.worker_processes import in_order

if TYPE_CHECKING:
    from bothways.inference.predictor import Predictor

# Files whose facts are computed and committed together: at most so many files, and characters (or one file).
BATCH_FILES = 64
BATCH_CHARACTERS = 1 << 19

COMMON = 10  # values that are reported
WEIGHTS_AND_SETTINGS = (".json", ".safetensors", ".txt", ".model")  # files of a model on which its facts depend

Fact = dict[str, Any]  # kind, name, text, start, end and score


@dataclass(frozen=True)
class Extracted:
    """Result of an extraction.

    out: the table.
    files: number of files that were read.
    facts: number of rows.
    skipped: {file: reason}.
    unread: {type: number} of documents without a reader.
    common: the most frequent groups of entities, as (name, group, count).
    """

    out: Path
    files: int
    facts: int
    skipped: dict[str, str] = field(default_factory=dict)
    unread: dict[str, int] = field(default_factory=dict)
    common: list[tuple[str, str, int]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "out": str(self.out)}

    def lines(self) -> Iterator[str]:
        facts = format_count(self.facts, "fact")
        files = format_count(self.files, "file")
        skipped = f"; {format_count(len(self.skipped), 'file')} skipped" if self.skipped else ""
        yield f"{facts} of {files} in {self.out}{skipped}{unread_summary(self.unread)}"
        for name, group, count in self.common:
            yield f"{count:8,}  {name:12} {group}"


def extract(
    models: "Models",
    folders: Sequence[Path],
    glob: Sequence[str],
    out: Path,
    *,
    resume: bool,
    workers: int | None = None,
) -> Extracted:
    """Write the table.

    models: which find the facts.
    folders, glob: the files, as `find_documents` reads them.
    out: the table, whose ending is its format.
    resume: continue an extraction that was interrupted.
    workers: processes that compute; None: this one.

    InputError if a model is of another task, or the output is there already.
    """
    state = out.with_name(f".{out.name}.extract")
    check_target(out, state, resume=resume)

    # The models are opened here even if workers compute, so that an unfit one is refused before a file is read.
    compute = partial(compute_facts, [*models.open()])
    if workers:
        compute = partial(_compute_in_worker, models, max(1, num_cores() // workers))

    database = open_state(state, models.fingerprint())
    skipped = Counter[str]()
    try:
        files = _find_files(folders, glob, skipped)
        with Readers() as readers, ProgressBar("extracting", len(files)) as bar:
            done = 0
            batches_read = (read_batch(batch, readers, database) for batch in batches(files))
            for batch, facts in in_order(compute, batches_read, workers):
                store_facts(batch, facts, database)
                done += len(batch.files)
                bar.update(done, f"{batch.files[-1].relative}")
        result = write_table(out, files, database)
    finally:
        database.close()

    state.unlink()
    return replace(result, unread=unread_documents(skipped))


def check_target(out: Path, state: Path, *, resume: bool) -> None:
    if out.suffix.lower() not in FORMATS:
        raise InputError(f"out ({out}) must end in one of {', '.join(FORMATS)}")
    if out.suffix.lower() == ".parquet":
        require(out, "pyarrow")
    if out.exists():
        raise InputError(f"{out}: already exists; name a new file, or delete that one")
    if state.exists() and not resume:
        raise InputError(
            f"{out}: an extraction was interrupted; continue with {flag('resume', True)}, or delete {state} to start "
            "again"
        )


def _find_files(folders: Sequence[Path], glob: Sequence[str], skipped: Counter[str]) -> list[FoundFile]:
    """The files in folders, each once, even if the folders overlap."""
    file_by_path = {}
    for folder in folders:
        for document in find_documents([folder], glob=glob, skipped=skipped):
            file_by_path[document.path.resolve()] = document
    return [*file_by_path.values()]


def batches(files: Sequence[FoundFile]) -> Iterator[list[FoundFile]]:
    """The files in batches of bounded size, which do not depend on what is done already."""
    batch: list[FoundFile] = []
    size = 0
    for file in files:
        batch.append(file)
        size += file.size
        if size >= BATCH_CHARACTERS or len(batch) >= BATCH_FILES:
            yield batch
            batch = []
            size = 0
    if batch:
        yield batch


# --- models -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Extractor:
    """A model.

    question: that it is asked, if it answers questions.
    min_score: of a fact; None: all facts.
    """

    model: "Predictor"
    question: str = ""
    min_score: float | None = None

    def facts(self, parts: Sequence[DocumentPart]) -> list[list[Fact]]:
        """The facts of each part, without their places."""
        texts = [part.text for part in parts]
        # Only if there is one: a task of another package need not know this argument.
        more = {} if self.min_score is None else {"min_score": self.min_score}
        return TASKS[self.model.task].load().facts(self.model, texts, self.question, **more)


@dataclass(frozen=True)
class Models:
    """Models that are not loaded yet.

    paths: (task, model) of each.
    question: that one of them is asked.
    device, dtype: where and in which format they compute.
    min_score: of a fact; None: all facts.
    options: that a model decides among; None: those that it has learned.
    """

    paths: tuple[tuple[str, Path], ...]
    question: str | None
    device: str
    dtype: str
    min_score: float | None = None
    options: str | None = None

    def open(self) -> Iterator[Extractor]:
        from bothways.inference.load import load

        for name, path in self.paths:
            model = load(path, device=self.device, dtype=self.dtype)
            if name == DECIDE and self.options is not None:
                model = model.asking(named_options(self.options))
            if model.task != name:
                remedy = f"train one with `bothways finetune {name}`"
                if name == DECIDE:
                    remedy = f"name its options with {flag('options')}, or {remedy}"
                raise InputError(f"{name} ({path}) is a model to {model.task}; {remedy}")
            yield Extractor(model, question=self.question or "", min_score=self.min_score)

    def fingerprint(self) -> str:
        """A hash of everything besides the file that its facts depend on."""
        digest = blake2b(repr((self.question, self.dtype, self.min_score, self.options)).encode(), digest_size=16)
        for name, path in self.paths:
            digest.update(f"|{name}".encode())
            for file in sorted(hub.locate(path).rglob("*")):
                if file.is_file() and file.suffix in WEIGHTS_AND_SETTINGS:
                    digest.update(file_digest(file))
        return digest.hexdigest()


# --- facts ------------------------------------------------------------------------------------------------------------


def open_state(path: Path, models: str) -> sqlite3.Connection:
    """The database of the facts so far. InputError if they are of other models or another question."""
    database = sqlite3.connect(path, isolation_level=None)
    database.text_factory = from_stored
    database.execute("PRAGMA synchronous = FULL")
    database.execute("CREATE TABLE IF NOT EXISTS run (models TEXT NOT NULL)")
    database.execute(
        "CREATE TABLE IF NOT EXISTS files (path TEXT PRIMARY KEY, digest BLOB NOT NULL, facts TEXT, error TEXT)"
    )

    row = database.execute("SELECT models FROM run").fetchone()
    if row is None:
        database.execute("INSERT INTO run VALUES (?)", (models,))
    elif row[0] != models:
        database.close()
        raise InputError(
            f"{path}: the interrupted extraction used other models or another question; delete it to start again"
        )
    return database


@dataclass(frozen=True)
class ReadFile:
    """A file that was read. error: why it has no parts, if it could not be read."""

    name: str
    digest: bytes
    parts: list[DocumentPart]
    error: str | None


@dataclass(frozen=True)
class FileBatch:
    """Files, of which the new and the changed ones are read."""

    files: Sequence[FoundFile]
    documents: list[ReadFile]


def read_batch(files: Sequence[FoundFile], readers: Readers, database: sqlite3.Connection) -> FileBatch:
    documents = []
    for file in files:
        document = _read_file(file, readers, database)
        if document is None:
            continue
        if document.error:
            logger.warning(f"{document.error}; skipped")
        documents.append(document)
    return FileBatch(files, documents)


def _read_file(file: FoundFile, readers: Readers, database: sqlite3.Connection) -> ReadFile | None:
    """A file with its parts; None if its facts are in the database already."""
    name = str(file.path)
    digest = b""
    parts: list[DocumentPart] = []
    error = None
    try:
        with local_file(file.path) as path:
            digest = file_digest(path)
            query = "SELECT 1 FROM files WHERE path = ? AND digest = ?"
            if database.execute(query, to_stored((name, digest))).fetchone():
                return None

            parts = [part for part in readers.read(path) if part.text.strip()]
            if file_digest(path) != digest:
                parts = []
                error = f"{name}: changed while it was read; run the command again"
    except InputError as problem:
        error = str(problem)
    except OSError as problem:
        digest = b""
        error = f"{name}: {problem.strerror}"
    return ReadFile(name=name, digest=digest, parts=parts, error=error)


def _compute_in_worker(models: Models, threads: int, batch: FileBatch) -> list[list[Fact]]:
    return compute_facts(_open_in_worker(models, threads), batch)


@lru_cache(1)
def _open_in_worker(models: Models, threads: int) -> list[Extractor]:
    extractors = [*models.open()]
    set_num_threads(threads)
    return extractors


def compute_facts(extractors: Sequence[Extractor], batch: FileBatch) -> list[list[Fact]]:
    """The facts of each document of a batch."""
    # The parts of all documents go through a model together, which fills its batches.
    parts = [part for document in batch.documents for part in document.parts]
    by_model = [extractor.facts(parts) for extractor in extractors] if parts else []
    by_part = zip(parts, *by_model, strict=True)

    facts = []
    for document in batch.documents:
        of_document = []
        for part, *lists in islice(by_part, len(document.parts)):
            of_document += [placed(fact, part) for fact in chain(*lists)]
        facts.append(grouped(of_document))
    return facts


def placed(fact: Fact, part: DocumentPart) -> Fact:
    """A fact with its line and page, and characters of the file. All of a row of a table is on the line of the row."""
    line = part.first_line
    if line is not None and not part.is_row:
        line += part.text.count("\n", 0, fact["start"])
    offset = part.offset if fact["text"] else 0
    return {
        **fact,
        "start": fact["start"] + offset,
        "end": fact["end"] + offset,
        "line": line,
        "page": part.page,
    }


def grouped(facts: list[Fact]) -> list[Fact]:
    """The facts of a document. Adds the group name to each entity."""
    entities = [(fact["name"], fact["text"]) for fact in facts if fact["kind"] == "entity"]
    groups = iter(group_document(entities))

    with_groups = []
    for fact in facts:
        group = next(groups) if fact["kind"] == "entity" else None
        with_groups.append({**fact, "group": group})
    return with_groups


def store_facts(batch: FileBatch, facts: Sequence[list[Fact]], database: sqlite3.Connection) -> None:
    rows = []
    for document, of_document in zip(batch.documents, facts, strict=True):
        rows.append(to_stored((document.name, document.digest, json.dumps(of_document), document.error)))

    database.execute("BEGIN IMMEDIATE")
    database.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)", rows)
    database.execute("COMMIT")


def write_table(out: Path, files: Sequence[FoundFile], database: sqlite3.Connection) -> Extracted:
    rows: list[Fact] = []
    skipped: dict[str, str] = {}
    for document in files:
        name = str(document.path)
        facts, error = database.execute(
            "SELECT facts, error FROM files WHERE path = ?",
            to_stored((name,)),
        ).fetchone()
        rows += [{"path": name, **fact} for fact in json.loads(facts)]
        if error:
            skipped[name] = error

    temporary = out.with_name(f".{out.name}.unfinished")
    with full_disk_named(out):
        write_rows(rows, temporary, out.suffix.lower())
        fsync(temporary)
        os.replace(temporary, out)

    counts = Counter((row["name"], row["group"]) for row in rows if row["kind"] == "entity")
    return Extracted(
        out=out,
        files=len(files) - len(skipped),
        facts=len(rows),
        skipped=skipped,
        common=[(name, group, count) for (name, group), count in counts.most_common(COMMON)],
    )
