"""Large jobs in named parts: a directory, local or in object storage, with a .parquet file for each part of the input.

The directory has _plan.json, written once, with everything that the results depend on; part-00017-of-00400.parquet,
which depends on its part alone; _parts/part-00017-of-00400.json, written after it: the part is done when that exists;
_skipped/, with the rows that could not be used; and, when all parts are done, _manifest.json with their digests. Any
number of processes, on any number of machines, may work on one directory, and be killed: work that is done twice gives
the same bytes. Names that begin with an underscore are ignored by readers of a directory of tables.
"""

import hashlib
import json
import os
import socket
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from bothways.base.device import set_num_threads
from bothways.base.errors import (
    EmptyInput,
    InputError,
    differences,
    flag,
    format_count,
)
from bothways.base.io import cache_directory, write_atomic
from bothways.base.log import logger
from bothways.base.paths import RemotePath, as_path
from bothways.inference.jobs import jobs
from bothways.inference.jobs.blocks import RowsOfFile, estimate_num_rows, num_bytes, split_into_blocks
from bothways.inference.jobs.estimate import Estimate, estimate, size_of
from bothways.inference.jobs.file_job import NO_COLUMNS, open_file_job
from bothways.inference.jobs.job_progress import JobProgress
from bothways.inference.jobs.journal import BusyError, Journal, open_output, side_file
from bothways.inference.jobs.writers import Parquet
from bothways.inference.predictor import Predictor
from bothways.scale import ray
from bothways.settings.predict import Embed, Predict
from bothways.text.rows.datasets import HUB_PREFIX
from bothways.text.rows.text_files import (
    EXPLICIT_TYPES,
    file_type,
    find_files,
    is_compressed,
    note_on_unread,
    unread_files,
)
from bothways.text.tokenizer.worker_processes import in_order

# Names in the directory.
PLAN = "_plan.json"
MANIFEST = "_manifest.json"
RECORDS = "_parts"
SKIPPED = "_skipped"
WORK = "_work"

# The most that a part has; a smaller file is one part, and is not read for the plan.
PART_BYTES = 1 << 26
PART_ROWS = 1 << 20

# Facts that --mixed allows to differ.
MACHINE = (
    "dtype",
    "device",
    "processor",
    "threads",
    "torch",
    "numpy",
    "bothways",
)
REQUESTS = 32  # records that are read at a time


class InputFile(NamedTuple):
    """name: relative to the input. version: the e_tag of an object, or the digest of a local file, which must be read
    for it. state: see `file_state`."""

    path: str
    name: str
    size: int
    version: str
    state: str


class RowRange(NamedTuple):
    """The rows of a part. input: the index of the file. rows: None: to its end."""

    input: int
    first: int = 0
    rows: int | None = None


@dataclass(frozen=True)
class PartsPlan:
    """made_with: everything besides the inputs that the results depend on."""

    made_with: dict[str, Any]
    inputs: list[InputFile]
    parts: list[RowRange]

    def name(self, number: int) -> str:
        return f"part-{number:05}-of-{len(self.parts):05}"

    def task(self, number: int, settings: Embed | Predict, form: Parquet) -> "PartTask":
        rows = self.parts[number]
        file = self.inputs[rows.input]
        return PartTask(
            name=self.name(number),
            settings=replace(settings, file=file.path),
            form=form,
            threads=jobs.threads_of(settings),
            made_with=self.made_with,
            input=file,
            column=file.name if len(self.inputs) > 1 else None,
            rows=rows,
        )


class PartTask(NamedTuple):
    """A part, with all that a process needs to compute it.

    form: the columns of the first table with rows, for a part that has none. column: the column "file".
    """

    name: str
    settings: Embed | Predict
    form: Parquet
    threads: int
    made_with: dict[str, Any]
    input: InputFile
    column: str | None
    rows: RowRange


def run(settings: Embed | Predict) -> tuple[jobs.Job, Journal | Estimate]:
    """Work on all parts that are not done. Returns the counts of all parts."""
    assert settings.out is not None
    out = as_path(settings.out)
    _check_output(out, settings)
    root = as_path(settings.file)
    if settings.file == "-" or str(root).startswith(HUB_PREFIX):
        raise InputError(f"{settings.file}: is read as one stream, and has no parts; name files, or an output file")
    if out.is_relative_to(root):
        raise InputError(f"{out}: is in the input, {root}; name a directory elsewhere")

    files = find_files(root)
    note = note_on_unread(unread_files(root))
    if note:
        logger.info(note)
    job, refused = _open_first(root, files, settings)
    if settings.dry_run:
        inputs = [InputFile(str(file), file.name, size_of(file), version="", state="") for file in files]
        return job, estimate(job, files, len(_cut(inputs, settings, job.model)))

    if not isinstance(out, RemotePath):
        out.mkdir(exist_ok=True)
    plan = _open_plan(out, files, settings, job.model)
    assert isinstance(job.writer, Parquet)
    form = job.writer
    tasks = (plan.task(number, settings, form) for number in _missing_parts(out, plan))
    busy = _work_on(out, plan, tasks, settings, refused=refused)
    if busy:
        raise InputError(
            f"{out}: another command is writing {busy:,} of the parts; wait for it, or use {flag('resume', True)} then"
        )
    return job, _finish(out, plan)


def _missing_parts(out: Path, plan: PartsPlan) -> list[int]:
    """The numbers of the parts that are not done, in the order in which this command works on them."""
    done = {path.stem for path in _listed(out / RECORDS)}
    missing = [number for number in range(len(plan.parts)) if plan.name(number) not in done]
    if not done:
        return missing

    logger.info(f"{out}: {len(done):,} of {len(plan.parts):,} parts are done")
    # Each of several commands begins elsewhere.
    start = hash((socket.gethostname(), os.getpid())) % max(1, len(missing))
    return missing[start:] + missing[:start]


def _work_on(
    out: Path,
    plan: PartsPlan,
    tasks: "Iterator[PartTask]",
    settings: Embed | Predict,
    *,
    refused: set[str],
) -> int:
    """Compute parts. Returns the number of parts that another command is writing. refused: files that cannot be read,
    which the log has named."""
    named_files = {file.name for file in plan.inputs if file.path in refused}
    busy = 0
    try:
        with JobProgress(out.name, None) as progress:
            for record in _records(tasks, settings):
                if record is None:
                    busy += 1
                    progress.finish_block(0)
                    continue

                progress.finish_block(record["rows"])
                if record.get("unread") and record["file"] not in named_files:
                    logger.warning(f"{record['unread']}; what comes before it is kept")
    finally:
        _open_file.close()
    return busy


def _records(tasks: Iterator[PartTask], settings: Embed | Predict) -> Iterator[dict[str, Any] | None]:
    """The record of each part; None for a part that another process on this machine is at."""
    if settings.ray is None:
        for _, record in in_order(compute_part, tasks, settings.workers):
            yield record
        return

    tasks_by_name = [(task.name, task) for task in tasks]
    if tasks_by_name:
        yield from ray.in_any_order(compute_part, tasks_by_name, settings.ray, settings.workers)


def _open_first(root: Path, files: list[Path], settings: Embed | Predict) -> tuple[jobs.Job, set[str]]:
    """The job of the first file with rows, and the paths of files that cannot be read, each with a line in the log.

    All local files are opened, so that what is wrong is said before anything is computed; of a bucket, files up to the
    first that has rows. InputError if a file cannot be read, unless such files are skipped and others can be read.
    """
    model = jobs.load_for(settings)
    opened: jobs.Job | None = None
    has_rows = False
    refused: dict[str, InputError] = {}
    for file in files:
        if isinstance(file, RemotePath) and (has_rows or (refused and settings.on_error == "stop")):
            break
        job = open_file_job(replace(settings, file=str(file)), model, NO_COLUMNS)
        if job.inputs.has_rows():
            opened = opened if has_rows else job
            has_rows = True
        elif job.inputs.error is not None:
            refused[str(file)] = job.inputs.error
        elif job.writer is not NO_COLUMNS:
            opened = opened or job

    if refused and (settings.on_error == "stop" or opened is None):
        first = next(iter(refused.values()))
        more = f" (and {format_count(len(refused) - 1, 'more file')} cannot be read)" if len(refused) > 1 else ""
        advice = f", or skip such files with {flag('on_error', 'skip')}" if opened is not None else ""
        raise InputError(f"{first}{more}{advice}")
    if opened is None:
        kept = getattr(settings, "keep_columns", None)
        raise EmptyInput(
            f"{root}: no file has a row, so none has columns to keep ({kept}); add rows, or keep no columns"
        )
    for error in refused.values():
        logger.warning(f"{error}; skipped")
    return opened, {*refused}


def _check_output(out: Path, settings: Embed | Predict) -> None:
    if (out / MANIFEST).is_file():
        raise InputError(f"{out}: is complete; name a new directory, or delete that one")
    if (out / PLAN).is_file():
        if not settings.resume:
            raise InputError(f"{out}: was begun; continue with {flag('resume', True)}, or delete it to start again")
    elif out.is_dir() and (isinstance(out, RemotePath) or any(out.iterdir())):
        raise InputError(f"{out}: has other files; name a new directory")
    if not isinstance(out, RemotePath) and not out.parent.is_dir():
        raise InputError(f"{out.parent}: no such directory; make it, or name a directory elsewhere")


# --- the plan ---------------------------------------------------------------------------------------------------------


def _open_plan(out: Path, files: list[Path], settings: Embed | Predict, model: Predictor) -> PartsPlan:
    """The plan in the directory, or a new one. InputError if it has other settings or inputs."""
    facts = jobs.reproduction_facts(settings, model, jobs.threads_of(settings))
    inputs = _versions(files, as_path(settings.file))
    versions = [[file.name, file.size, file.version] for file in inputs]
    if not (out / PLAN).is_file():
        plan = PartsPlan(facts, inputs, _cut(inputs, settings, model))
        with suppress(FileExistsError):  # another process has made it meanwhile
            text = json.dumps({"made_with": facts, "inputs": versions, "parts": plan.parts})
            create(out / PLAN, text.encode())
            return plan

    stored = json.loads((out / PLAN).read_bytes())
    _check_facts(out, stored["made_with"], facts, mixed=settings.mixed)
    if stored["inputs"] != versions:
        changed = {json.dumps(file) for file in versions} ^ {json.dumps(file) for file in stored["inputs"]}
        raise InputError(
            f"{out}: the input has changed since the parts were planned ({json.loads(min(changed))[0]}); give the same "
            "files, or name a new directory"
        )
    return PartsPlan(stored["made_with"], inputs, [RowRange(*part) for part in stored["parts"]])


def _check_facts(out: Path, planned: dict[str, Any], facts: dict[str, Any], *, mixed: bool) -> str:
    """The differences of this machine from the machine of the plan, if they are allowed."""
    differing = {name for name in planned.keys() | facts.keys() if planned.get(name) != facts.get(name)}
    changed = differences(
        {name: planned.get(name) for name in differing},
        {name: facts.get(name) for name in differing},
    )
    if differing - {*MACHINE}:
        raise InputError(f"{out}: was planned with other settings ({changed}); use those, or name a new directory")
    if differing and not mixed:
        raise InputError(
            f"{out}: was planned on another machine ({changed}); use one like that, or accept results that are equal "
            f"to 1e-5 with {flag('mixed', True)}"
        )
    return changed


def _versions(files: list[Path], root: Path) -> list[InputFile]:
    """The inputs with their versions, and their names below the root, or below the folder that all have in common.
    Empties `files`: a million paths are in memory once, as paths or as inputs."""
    above = root if len(files) > 1 or files[0] != root else root.parent
    is_pattern = bool(set(str(above)) & set("*?["))
    shared = _num_shared(files) if is_pattern else len(above.parts)

    inputs: list[InputFile] = []
    remaining = deque(files)
    files.clear()
    while remaining:
        file = remaining.popleft()
        state = file_state(file)
        entry = InputFile(
            path=str(file),
            name="/".join(file.parts[shared:]),
            size=size_of(file),
            version=state if isinstance(file, RemotePath) else _version(file),
            state=state,
        )
        inputs.append(entry)
    return inputs


def _version(file: Path) -> str:
    """The digest of a local file, or the reason why it is not read."""
    try:
        return _digest(file)
    except (FileNotFoundError, PermissionError) as error:  # a link to nothing, or the file of another user
        return str(error.strerror)


def _num_shared(files: list[Path]) -> int:
    """The number of folders that the paths of all files begin with."""
    first = files[0].parts[:-1]
    last = files[-1].parts[:-1]  # they are sorted, so that all others lie between
    for number, (part, other) in enumerate(zip(first, last, strict=False)):
        if part != other:
            return number
    return len(first)


def _cut(inputs: Iterable[InputFile], settings: Embed | Predict, model: Predictor) -> list[RowRange]:
    """The parts. Files larger than PART_BYTES are read to find rows where they are cut, but compressed ones, which
    are read as one stream, are not cut."""
    parts: list[RowRange] = []
    for index, file in enumerate(inputs):
        starts = [0]
        path = Path(file.name)
        is_one_stream = is_compressed(path) or file_type(path) in (*EXPLICIT_TYPES, ".json")
        if file.size > PART_BYTES and not is_one_stream:
            starts = [*_cuts(file, settings, model)]

        for first, end in pairwise(starts):
            parts.append(RowRange(index, first, rows=end - first))
        parts.append(RowRange(index, starts[-1], rows=None))
    return parts


def _cuts(file: InputFile, settings: Embed | Predict, model: Predictor) -> Iterator[int]:
    """The indices of rows with which a part begins."""
    if file_type(Path(file.name)) == ".parquet":
        num_rows = estimate_num_rows(file.path) or 1
        yield from range(0, num_rows, min(PART_ROWS, max(1, num_rows * PART_BYTES // file.size)))
        return

    first = 0
    size = 0
    yield 0
    rows = open_file_job(replace(settings, file=file.path), model, NO_COLUMNS).inputs
    for number, row in enumerate(rows):
        if size >= PART_BYTES or number - first == PART_ROWS:
            first = number
            size = 0
            yield number
        size += num_bytes(row)
    if rows.error is not None and settings.on_error == "stop":
        raise InputError(f"{rows.error}, or skip such rows with {flag('on_error', 'skip')}")


# --- a part -----------------------------------------------------------------------------------------------------------


class _OpenFile:
    """The input that this process reads: its next part goes on where the last one ended."""

    model: Predictor | None = None
    settings: Embed | Predict | None = None  # of `model`, without the file
    facts: dict[str, Any]  # of `model` and this machine
    job: jobs.Job | None = None
    position = 0

    def prepare(self, task: PartTask) -> None:
        """Load the model of a part, unless it is loaded."""
        settings = replace(task.settings, file="-")
        if self.settings != settings:
            self.model = jobs.load_for(task.settings)
            self.settings = settings
            self.job = None
            self.facts = jobs.reproduction_facts(task.settings, self.model, task.threads)
        set_num_threads(task.threads)

    def open(self, task: PartTask) -> jobs.Job:
        """The job of a part, whose inputs begin with its first row."""
        assert self.model is not None
        if self.job is None or self.job.settings != task.settings or self.position > task.rows.first:
            self.job = open_file_job(task.settings, self.model, task.form)
            self.position = 0
        for _ in islice(self.job.inputs, task.rows.first - self.position):
            pass
        self.position = task.rows.first + (task.rows.rows or 0)
        return self.job

    def close(self) -> None:
        self.model = self.settings = self.job = None


_open_file = _OpenFile()


def compute_part(task: PartTask) -> dict[str, Any] | None:
    """Compute a part, unless it is done. Returns its record; None if another process on this machine is at it."""
    out = as_path(task.settings.out)  # type: ignore[arg-type]
    record_file = out / RECORDS / f"{task.name}.json"
    if record_file.is_file():
        return dict(json.loads(record_file.read_bytes()))
    try:
        return _compute(task, out, record_file)
    except BusyError:
        return None
    finally:
        if task.rows.rows is None:
            _open_file.job = None


def _compute(task: PartTask, out: Path, record_file: Path) -> dict[str, Any]:
    _check_state(task.input)
    _open_file.prepare(task)
    changed = _check_facts(out, task.made_with, _open_file.facts, mixed=task.settings.mixed)
    job = _open_file.open(task)
    assert isinstance(job.writer, Parquet)
    rows = islice(job.inputs, task.rows.rows)
    blocks = split_into_blocks(rows, task.settings.on_error, job.scores, first=task.rows.first)

    facts = {**_open_file.facts, "part": task.rows, "input": task.input.version}
    key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:8]
    work = _work_directory(out) / f"{key}-{task.name}.parquet"
    writer = replace(job.writer, file=task.column)
    try:
        with open_output(work, writer, json.loads(json.dumps(facts))) as output:
            output.skip_done(blocks)
            for block in blocks:
                output.add(block, *jobs.compute_block(job.compute, block, job.settings))
            journal = output.finish()
    except BaseException:
        _open_file.job = None  # which has read further
        raise

    _check_state(task.input)
    if journal.set_aside:
        _publish(side_file(work), out / SKIPPED / f"{task.name}.jsonl", mixed=task.settings.mixed)
    size, digest = _publish(work, out / f"{task.name}.parquet", mixed=task.settings.mixed)
    record = {
        "part": task.name,
        "file": task.input.name,
        "first_row": task.rows.first,
        "rows": journal.rows,
        "results": journal.results,
        "skipped": journal.set_aside,
        "bytes": size,
        "sha256": digest,
        "unread": _unread(job.inputs, task.rows),
        "host": socket.gethostname(),
        "process": os.getpid(),
        "differs": changed,
    }
    with suppress(FileExistsError):  # the work was done twice
        create(record_file, json.dumps(record).encode())
    return record


def _unread(rows: RowsOfFile, part: RowRange) -> str | None:
    """Why the file of a part is not read further than to a row of this part; None if it is."""
    if rows.error is None:
        return None
    last = rows.num_rows - 1
    is_here = last >= part.first and (part.rows is None or last < part.first + part.rows)
    return str(rows.error) if is_here else None


def _check_state(file: InputFile) -> None:
    if file_state(as_path(file.path)) != file.state:
        raise InputError(f"{file.path}: has changed while the job was running; start again in a new directory")


def file_state(path: Path) -> str:
    """A value that changes with a file: the e_tag of an object, or size and time of a local file ("" if it is
    not there). The file is not read."""
    if not isinstance(path, RemotePath) and not path.exists():
        return ""
    status: Any = path.stat()
    return status.e_tag if isinstance(path, RemotePath) else f"{status.st_size} {status.st_mtime_ns}"


def _work_directory(out: Path) -> Path:
    """Where parts are unfinished: they are continued on the same machine."""
    key = hashlib.sha256(str(out).encode()).hexdigest()[:16]
    work = cache_directory() / "parts" / key if isinstance(out, RemotePath) else out / WORK
    work.mkdir(parents=True, exist_ok=True)
    return work


def _publish(work: Path, target: Path, *, mixed: bool) -> tuple[int, str]:
    """Move a complete file to its place. Returns its size and digest; with `mixed`, of a file that is there already."""
    size = work.stat().st_size
    digest = _digest(work)
    try:
        if isinstance(target, RemotePath):
            target.put(work, create=True)
        else:
            target.parent.mkdir(exist_ok=True)
            os.link(work, target)
    except FileExistsError:
        content = target.read_bytes()
        size = len(content)
        other = hashlib.sha256(content).hexdigest()
        if other != digest and not mixed:
            raise InputError(
                f"{target}: was computed before, with other bytes; use the same machines, or {flag('mixed', True)}"
            ) from None
        digest = other
    work.unlink()
    return size, digest


def create(path: Path, content: bytes) -> None:
    """Write a file as a whole. FileExistsError if it exists already; an object may exist with the same content."""
    if isinstance(path, RemotePath):
        path.put(content, create=True)
        return
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}")
    write_atomic(temporary, content.decode())
    try:
        os.link(temporary, path)
    finally:
        temporary.unlink()


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


# --- the end ----------------------------------------------------------------------------------------------------------


def _listed(directory: Path) -> list[Path]:
    if isinstance(directory, RemotePath):
        return [*directory.files()]
    return [*directory.glob("part-*.json")]


def _finish(out: Path, plan: PartsPlan) -> Journal:
    """Write the manifest, with the records of all parts."""
    with ThreadPoolExecutor(REQUESTS) as pool:
        files = [out / RECORDS / f"{plan.name(number)}.json" for number in range(len(plan.parts))]
        records = [json.loads(content) for content in pool.map(lambda file: file.read_bytes(), files)]
    totals = {name: sum(record[name] for record in records) for name in ("rows", "results", "skipped", "bytes")}
    manifest = {
        **totals,
        "is_mixed": any(record["differs"] for record in records),
        "made_with": plan.made_with,
        "parts": records,
    }
    with suppress(FileExistsError):  # another process has ended at the same time
        create(out / MANIFEST, json.dumps(manifest, indent=1).encode())
    with suppress(OSError):  # another command is at work there
        _work_directory(out).rmdir()
    return Journal(
        plan.made_with,
        rows=totals["rows"],
        results=totals["results"],
        set_aside=totals["skipped"],
    )
