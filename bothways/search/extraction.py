"""Extraction: a table of the entities, labels and answers of every document in folders.

Files are read one after the other, in the order of their paths, and their facts are computed here or in workers. They
are committed to a database beside the output, which is written from it at the end, so a killed run continues and ends
with the same bytes. Groups join the forms of an entity, such as "U.S.", "the US" and "US's", under one name.
"""

import json
import os
import re
import sqlite3
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from hashlib import blake2b
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bothways.base.device import num_cores, set_num_threads
from bothways.base.errors import InputError, flag, require
from bothways.base.io import SURROGATES, fsync, full_disk_named, to_json
from bothways.base.log import ProgressBar, escape_controls, logger
from bothways.base.paths import local_file
from bothways.model.checkpoint import hub
from bothways.search.database import from_stored, to_stored
from bothways.search.folder import FoundFile, find_documents, unread_documents
from bothways.search.indexing import file_digest
from bothways.search.reader_process import Readers
from bothways.search.readers import DocumentPart
from bothways.tasks import TASKS
from bothways.text.tokenizer.worker_processes import in_order

if TYPE_CHECKING:
    from bothways.inference.predictor import Predictor

COLUMNS = ("path", "kind", "name", "text", "start", "end", "line", "page", "score", "group")
FORMATS = (".parquet", ".csv", ".jsonl")
BATCH_FILES, BATCH_CHARACTERS = 64, 1 << 19  # files whose facts are computed and committed together
COMMON = 10  # values that are reported
SCHEMA = "CREATE TABLE IF NOT EXISTS {} ({})"
POSSESSIVE = re.compile(r"['’]s?$")
ARTICLE = re.compile(r"^(?:the|a|an)\s+")
DOTTED = re.compile(r"\b(?:\w\.){2,}\w?")  # U.S.A.
Value = tuple[str, str]  # the label of an entity, and its text
Fact = dict[str, Any]


@dataclass(frozen=True)
class Extracted:
    """Result of an extraction. facts: number of rows. skipped: {file: reason}. unread: {type: number} of documents
    without a reader. common: the most frequent groups of entities, as (name, group, count)."""

    out: Path
    files: int
    facts: int
    skipped: dict[str, str] = field(default_factory=dict)
    unread: dict[str, int] = field(default_factory=dict)
    common: list[tuple[str, str, int]] = field(default_factory=list)


def extract(
    models: "Models",
    folders: Sequence[Path],
    glob: Sequence[str],
    out: Path,
    *,
    resume: bool,
    workers: int | None = None,
) -> Extracted:
    """Write the table. workers: processes that compute; None: this one.

    InputError if a model is of another task, or the output is there already."""
    state = out.with_name(f".{out.name}.extract")
    check_target(out, state, resume=resume)
    compute = partial(compute_facts, [*models.open()])
    if workers:
        compute = partial(_compute_in_worker, models, max(1, num_cores() // workers))
    database, skipped = open_state(state, models.fingerprint()), Counter[str]()
    try:
        files = [document for folder in folders for document in find_documents([folder], glob=glob, skipped=skipped)]
        files = [*{document.path.resolve(): document for document in files}.values()]
        with Readers() as readers, ProgressBar("extracting", len(files)) as bar:
            done, read = 0, (read_batch(batch, readers, database) for batch in batches(files))
            for batch, facts in in_order(compute, read, workers):
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


def batches(files: Sequence[FoundFile]) -> Iterator[list[FoundFile]]:
    """The files in batches of bounded size, which do not depend on what is done already."""
    iterator = iter(files)
    while batch := [*islice(iterator, 1)]:
        size = batch[0].size
        while size < BATCH_CHARACTERS and len(batch) < BATCH_FILES and (more := [*islice(iterator, 1)]):
            batch += more
            size += more[0].size
        yield batch


# --- models -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Extractor:
    """A model, the question that it is asked, if it answers questions, and the least score of a fact."""

    model: "Predictor"
    question: str = ""
    min_score: float | None = None

    def facts(self, parts: Sequence[DocumentPart]) -> list[list[Fact]]:
        """The facts of each part, without their places."""
        texts = [part.text for part in parts]
        # Without a least score as ever: a task of other authors need not know it.
        more = {} if self.min_score is None else {"min_score": self.min_score}
        return TASKS[self.model.task].load().facts(self.model, texts, self.question, **more)


@dataclass(frozen=True)
class Models:
    """Models by their tasks, the question that one of them is asked, where and in which format they compute, and the
    least score of a fact."""

    paths: tuple[tuple[str, Path], ...]
    question: str | None
    device: str
    dtype: str
    min_score: float | None = None

    def open(self) -> Iterator[Extractor]:
        from bothways.inference.load import load

        for name, path in self.paths:
            model = load(path, device=self.device, dtype=self.dtype)
            if model.task != name:
                remedy = f"train one with `bothways finetune {name}`"
                raise InputError(f"{name} ({path}) is a model to {model.task}; {remedy}")
            yield Extractor(model, self.question or "", self.min_score)

    def fingerprint(self) -> str:
        """A hash of everything besides the file that its facts depend on."""
        digest = blake2b(repr((self.question, self.dtype, self.min_score)).encode(), digest_size=16)
        for name, path in self.paths:
            digest.update(f"|{name}".encode())
            for file in sorted(hub.locate(path).rglob("*")):
                if file.is_file() and file.suffix in (".json", ".safetensors", ".txt", ".model"):
                    digest.update(file_digest(file))
        return digest.hexdigest()


# --- facts ------------------------------------------------------------------------------------------------------------


def open_state(path: Path, models: str) -> sqlite3.Connection:
    """The database of the facts so far. InputError if they are of other models or another question."""
    database = sqlite3.connect(path, isolation_level=None)
    database.text_factory = from_stored
    database.execute("PRAGMA synchronous = FULL")
    database.execute(SCHEMA.format("run", "models TEXT NOT NULL"))
    database.execute(SCHEMA.format("files", "path TEXT PRIMARY KEY, digest BLOB NOT NULL, facts TEXT, error TEXT"))
    known = database.execute("SELECT models FROM run").fetchone()
    if known is None:
        database.execute("INSERT INTO run VALUES (?)", (models,))
    elif known[0] != models:
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
    """Files, and those of them that are new or have changed."""

    files: Sequence[FoundFile]
    documents: list[ReadFile]


def read_batch(files: Sequence[FoundFile], readers: Readers, database: sqlite3.Connection) -> FileBatch:
    documents = list[ReadFile]()
    for document in files:
        name, parts, error = str(document.path), list[DocumentPart](), None
        try:
            with local_file(document.path) as path:
                digest = file_digest(path)
                if database.execute(
                    "SELECT 1 FROM files WHERE path = ? AND digest = ?", to_stored((name, digest))
                ).fetchone():
                    continue
                parts = [part for part in readers.read(path) if part.text.strip()]
                if file_digest(path) != digest:
                    parts, error = [], f"{name}: changed while it was read; run the command again"
        except InputError as problem:
            error = str(problem)
        except OSError as problem:
            digest, error = b"", f"{name}: {problem.strerror}"
        if error:
            logger.warning(f"{error}; skipped")
        documents.append(ReadFile(name, digest, parts, error))
    return FileBatch(files, documents)


def compute_facts(extractors: Sequence[Extractor], batch: FileBatch) -> list[list[Fact]]:
    """The facts of each document of a batch."""
    parts = [part for document in batch.documents for part in document.parts]
    by_model = [extractor.facts(parts) for extractor in extractors] if parts else []
    by_part = zip(parts, *by_model, strict=True)
    return [
        grouped([placed(fact, part) for part, *lists in islice(by_part, len(one.parts)) for fact in chain(*lists)])
        for one in batch.documents
    ]


def _compute_in_worker(models: Models, threads: int, batch: FileBatch) -> list[list[Fact]]:
    return compute_facts(_open_in_worker(models, threads), batch)


@lru_cache(1)
def _open_in_worker(models: Models, threads: int) -> list[Extractor]:
    extractors = [*models.open()]
    set_num_threads(threads)
    return extractors


def store_facts(batch: FileBatch, facts: Sequence[list[Fact]], database: sqlite3.Connection) -> None:
    rows = [
        (one.name, one.digest, json.dumps(held), one.error) for one, held in zip(batch.documents, facts, strict=True)
    ]
    database.execute("BEGIN IMMEDIATE")
    database.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)", map(to_stored, rows))
    database.execute("COMMIT")


def placed(fact: Fact, part: DocumentPart) -> Fact:
    """A fact with its line and page, and characters of the file. All of a row of a table is on the line of the row."""
    line = part.first_line
    if line is not None and not part.is_row:
        line += part.text.count("\n", 0, fact["start"])
    offset = part.offset if fact["text"] else 0
    return fact | {"start": fact["start"] + offset, "end": fact["end"] + offset, "line": line, "page": part.page}


def grouped(facts: list[Fact]) -> list[Fact]:
    """The facts of a document. Adds the group name to each entity."""
    entities = [fact for fact in facts if fact["kind"] == "entity"]
    groups = iter(group_document([(fact["name"], fact["text"]) for fact in entities]))
    return [fact | {"group": next(groups) if fact["kind"] == "entity" else None} for fact in facts]


# --- the table --------------------------------------------------------------------------------------------------------


def write_table(out: Path, files: Sequence[FoundFile], database: sqlite3.Connection) -> Extracted:
    rows: list[Fact] = []
    skipped: dict[str, str] = {}
    for document in files:
        name = str(document.path)
        facts, error = database.execute("SELECT facts, error FROM files WHERE path = ?", to_stored((name,))).fetchone()
        rows += [{"path": name, **fact} for fact in json.loads(facts)]
        if error:
            skipped[name] = error
    temporary = out.with_name(f".{out.name}.unfinished")
    with full_disk_named(out):
        write_rows(rows, temporary, out.suffix.lower())
        fsync(temporary)
        os.replace(temporary, out)
    counts = Counter((row["name"], row["group"]) for row in rows if row["kind"] == "entity")
    common = [(name, group, count) for (name, group), count in counts.most_common(COMMON)]
    return Extracted(out, len(files) - len(skipped), len(rows), skipped, common=common)


def write_rows(rows: Sequence[Fact], path: Path, kind: str) -> None:
    """Write a table; the same rows give the same bytes."""
    if kind == ".parquet":
        _write_parquet(rows, path)
        return
    with path.open("w", encoding="utf-8", newline="\n") as file:
        if kind == ".jsonl":
            file.writelines(to_json({name: row[name] for name in COLUMNS}) + "\n" for row in rows)
        else:
            table = chain([COLUMNS], ([row[name] for name in COLUMNS] for row in rows))
            file.writelines(",".join(map(_cell, values)) + "\n" for values in table)


def _write_parquet(rows: Sequence[Fact], path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    types = {"start": pa.int64(), "end": pa.int64(), "line": pa.int64(), "page": pa.int64(), "score": pa.float64()}
    schema = pa.schema([(name, types.get(name, pa.string())) for name in COLUMNS])
    table = pa.Table.from_pylist([{name: _encodable(row[name]) for name in COLUMNS} for row in rows], schema)
    parquet.write_table(table, path, compression="zstd")


def _cell(value: Any) -> str:
    """A value in a .csv: texts in quotes, numbers without, nothing for None."""
    if isinstance(value, str):
        return '"' + str(_encodable(value)).replace('"', '""') + '"'
    if isinstance(value, float):
        return str(np.format_float_positional(value, trim="-"))
    return "" if value is None else str(value)


def _encodable(value: Any) -> Any:
    """A value of a column. Only JSON can hold the bytes of a file name that are not UTF-8; here they are escaped."""
    return SURROGATES.sub(lambda match: escape_controls(match[0]), value) if isinstance(value, str) else value


def normal_form(text: str) -> str:
    """A value without differences of spelling: case, spaces, dots of abbreviations, a leading article, a possessive,
    punctuation around it."""
    text = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    text = DOTTED.sub(lambda match: match[0].replace(".", ""), text)
    text = ARTICLE.sub("", POSSESSIVE.sub("", text.strip(" .,;:!?()[]\"'“”‘’-")))
    return text.strip(" .,;:!?()[]\"'“”‘’-")


def group_document(values: Sequence[Value], persons: frozenset[str] = frozenset({"PER", "PERSON"})) -> list[str]:
    """The group of each value of a document: its normal form; for the last word of one longer name of a person in the
    same document, the normal form of that name."""
    forms = [normal_form(text) for _, text in values]
    full_names: dict[tuple[str, str], set[str]] = defaultdict(set)
    for (label, _), form in zip(values, forms, strict=True):
        if label.upper() in persons and " " in form:
            full_names[label, form.rpartition(" ")[2]].add(form)
    groups = []
    for (label, text), form in zip(values, forms, strict=True):
        longer = full_names.get((label, form), set())
        groups.append(next(iter(longer)) if len(longer) == 1 else form or text)
    return groups
