"""Large jobs in named parts: a directory, local or in object storage, with a .parquet file for each part of the input.

The directory has _plan.json, written once, with everything that the results depend on; part-00017-of-00400.parquet,
which depends on its part alone; _parts/part-00017-of-00400.json, written after it: the part is done when that exists;
_skipped/, with the rows that could not be used; and, when all parts are done, _manifest.json with their digests. Any
number of processes, on any number of machines, may work on one directory, and be killed: work that is done twice gives
the same bytes. Names that begin with an underscore are ignored by readers of a directory of tables.
"""

import hashlib
import json
import math
import os
import socket
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from bothways.base.device import num_threads, set_num_threads
from bothways.base.errors import (
    EmptyInput,
    InputError,
    StorageError,
    differences,
    flag,
    format_count,
    not_permitted,
    require,
)
from bothways.base.io import cache_directory, write_atomic
from bothways.base.log import logger
from bothways.base.paths import RemotePath, as_path
from bothways.inference.jobs import jobs
from bothways.inference.jobs.blocks import SAMPLE_SIZE, RowsOfFile, estimate_num_rows, num_bytes, split_into_blocks
from bothways.inference.jobs.job_progress import JobProgress
from bothways.inference.jobs.journal import BusyError, Journal, check_output, open_output, side_file
from bothways.inference.jobs.writers import Parquet, ResultRow
from bothways.inference.predictor import Predictor
from bothways.inference.reading import Progress
from bothways.scale import ray
from bothways.settings.predict import Embed, Predict
from bothways.text.data.datasets import HUB_PREFIX
from bothways.text.data.stream import ModelInput
from bothways.text.data.text_files import (
    EXPLICIT_TYPES,
    file_type,
    find_files,
    is_compressed,
    note_on_unread,
    open_file,
    unread_files,
)
from bothways.text.tokenizer.worker_processes import in_order

PLAN, MANIFEST, RECORDS, SKIPPED, WORK = "_plan.json", "_manifest.json", "_parts", "_skipped", "_work"
PART_BYTES, PART_ROWS = 1 << 26, 1 << 20  # most of a part; a smaller file is one part, and is not read for the plan
MACHINE = (
    "dtype",
    "device",
    "processor",
    "threads",
    "torch",
    "numpy",
    "bothways",
)  # facts that --mixed allows to differ
REQUESTS = 32  # records that are read at a time
NO_COLUMNS = Parquet({})
SAMPLE_ROWS = 256  # of which the time is measured
SAMPLE_FILES = 64  # of which the rows are counted or estimated
CORE_HOUR, GPU_HOUR = 0.04, 2.5  # US dollars, usual prices of clouds in 2026


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
        rows, threads = self.parts[number], jobs.threads_of(settings)
        one = self.inputs[rows.input]
        column = one.name if len(self.inputs) > 1 else None
        settings = replace(settings, file=one.path)
        return PartTask(self.name(number), settings, form, threads, self.made_with, one, column, rows)


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


@dataclass(frozen=True)
class Estimate:
    """Estimated rows, seconds and dollars of a job; None if unknown. price: the basis of the dollars."""

    files: int
    parts: int
    bytes: int
    rows: int | None
    seconds: float | None
    dollars: float | None
    price: str


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
    if note := note_on_unread(unread_files(root)):
        logger.info(note)
    job, refused = _open_first(root, files, settings)
    if settings.dry_run:
        inputs = [InputFile(str(file), file.name, _size(file), "", "") for file in files]
        return job, estimate(job, files, len(_cut(inputs, settings, job.model)))
    if not isinstance(out, RemotePath):
        out.mkdir(exist_ok=True)
    plan = _open_plan(out, files, settings, job.model)
    done = {path.stem for path in _listed(out / RECORDS)}
    missing = [number for number in range(len(plan.parts)) if plan.name(number) not in done]
    if done:
        logger.info(f"{out}: {len(done):,} of {len(plan.parts):,} parts are done")
        start = hash((socket.gethostname(), os.getpid())) % max(1, len(missing))  # of several commands, each elsewhere
        missing = missing[start:] + missing[:start]
    assert isinstance(job.writer, Parquet)
    tasks, busy = (plan.task(number, settings, job.writer) for number in missing), 0
    records = _records(tasks, settings)
    known = {one.name for one in plan.inputs if one.path in refused}
    try:
        with JobProgress(out.name, None) as progress:
            for record in records:
                busy += record is None
                progress.finish_block(record["rows"] if record else 0)
                if record and record.get("unread") and record["file"] not in known:
                    logger.warning(f"{record['unread']}; what comes before it is kept")
    finally:
        _open_file.close()
    if busy:
        raise InputError(
            f"{out}: another command is writing {busy:,} of the parts; wait for it, or use {flag('resume', True)} then"
        )
    return job, _finish(out, plan)


def _records(tasks: Iterator[PartTask], settings: Embed | Predict) -> Iterator[dict[str, Any] | None]:
    if settings.ray is None:
        yield from (record for _, record in in_order(compute_part, tasks, settings.workers))
    elif named := [(task.name, task) for task in tasks]:
        yield from ray.in_any_order(compute_part, named, settings.ray, settings.workers)


def _open_first(root: Path, files: list[Path], settings: Embed | Predict) -> tuple[jobs.Job, set[str]]:
    """The job of the first file with rows, and the paths of files that cannot be read, each with a line in the log.

    All local files are opened, so that what is wrong is said before anything is computed; of a bucket, files up to the
    first that has rows. InputError if a file cannot be read, unless such files are skipped and others can be read.
    """
    model = jobs.load_for(settings)
    opened: jobs.Job | None = None
    has_rows = False
    refused = dict[str, InputError]()
    for file in files:
        if isinstance(file, RemotePath) and (has_rows or (refused and settings.on_error == "stop")):
            break
        job = _open_job(replace(settings, file=str(file)), model, NO_COLUMNS)
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


def _open_job(settings: Embed | Predict, model: Predictor, form: Parquet) -> jobs.Job:
    """The job of one file. form: the columns of its part if it has no rows, or cannot be read."""
    try:
        job = jobs.open_job(settings, model)
    except StorageError:
        raise
    except InputError as error:
        rows = RowsOfFile(_raise(error), is_part=True)
    except PermissionError as error:
        rows = RowsOfFile(_raise(not_permitted(error)), is_part=True)
    else:
        return job if job.inputs.has_rows() or form is NO_COLUMNS else replace(job, writer=form)
    return jobs.Job(settings, model, rows, _compute_nothing, form)


def _raise(error: InputError) -> Iterator[ModelInput]:
    raise error
    yield


def _compute_nothing(rows: Sequence[ModelInput], progress: Progress | None = None) -> list[ResultRow]:
    """The results of a file that has no rows."""
    return []


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
    versions = [[one.name, one.size, one.version] for one in inputs]
    if not (out / PLAN).is_file():
        plan = PartsPlan(facts, inputs, _cut(inputs, settings, model))
        with suppress(FileExistsError):  # another process has made it meanwhile
            text = json.dumps({"made_with": facts, "inputs": versions, "parts": plan.parts})
            create(out / PLAN, text.encode())
            return plan
    stored = json.loads((out / PLAN).read_bytes())
    _check_facts(out, stored["made_with"], facts, mixed=settings.mixed)
    if stored["inputs"] != versions:
        changed = {json.dumps(one) for one in versions} ^ {json.dumps(one) for one in stored["inputs"]}
        raise InputError(
            f"{out}: the input has changed since the parts were planned ({json.loads(min(changed))[0]}); give the same "
            "files, or name a new directory"
        )
    return PartsPlan(stored["made_with"], inputs, [RowRange(*part) for part in stored["parts"]])


def _check_facts(out: Path, planned: dict[str, Any], facts: dict[str, Any], *, mixed: bool) -> str:
    """The differences of this machine from that of the plan, if they are allowed."""
    differing = {name for name in planned.keys() | facts.keys() if planned.get(name) != facts.get(name)}
    changed = differences(*({name: one.get(name) for name in differing} for one in (planned, facts)))
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
    Empties `files`: of a million paths in memory, one form is enough."""
    above = root if len(files) > 1 or files[0] != root else root.parent
    shared = len(above.parts) if not set(str(above)) & set("*?[") else _num_shared(files)
    inputs, remaining = list[InputFile](), deque(files)
    files.clear()
    while remaining:
        file = remaining.popleft()
        state = file_state(file)
        version = state if isinstance(file, RemotePath) else _version(file)
        inputs.append(InputFile(str(file), "/".join(file.parts[shared:]), _size(file), version, state))
    return inputs


def _version(file: Path) -> str:
    """The digest of a local file, or the reason why it is not read."""
    try:
        return _digest(file)
    except (FileNotFoundError, PermissionError) as error:  # a link to nothing, or the file of another user
        return str(error.strerror)


def _size(file: Path) -> int:
    """The bytes of a file; 0 for a link to nothing."""
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


def _num_shared(files: list[Path]) -> int:
    first, last = files[0].parts[:-1], files[-1].parts[:-1]  # they are sorted
    return next((n for n, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))


def _cut(inputs: Iterable[InputFile], settings: Embed | Predict, model: Predictor) -> list[RowRange]:
    """The parts. Files larger than PART_BYTES are read to find rows where they are cut, but compressed ones, which
    are read as one stream, are not cut."""
    parts = []
    for index, one in enumerate(inputs):
        cuts, path = [0], Path(one.name)
        if one.size > PART_BYTES and not is_compressed(path) and file_type(path) not in (*EXPLICIT_TYPES, ".json"):
            cuts = [*_cuts(one, settings, model)]
        ends = [*cuts[1:], None]
        parts += [RowRange(index, first, end and end - first) for first, end in zip(cuts, ends, strict=True)]
    return parts


def _cuts(one: InputFile, settings: Embed | Predict, model: Predictor) -> Iterator[int]:
    """The indices of rows with which a part begins."""
    if file_type(Path(one.name)) == ".parquet":
        num_rows = estimate_num_rows(one.path) or 1
        yield from range(0, num_rows, min(PART_ROWS, max(1, num_rows * PART_BYTES // one.size)))
        return
    first = size = 0
    yield 0
    rows = _open_job(replace(settings, file=one.path), model, NO_COLUMNS).inputs
    for number, row in enumerate(rows):
        if size >= PART_BYTES or number - first == PART_ROWS:
            first, size = number, 0
            yield number
        size += num_bytes(row)
    if rows.error is not None and settings.on_error == "stop":
        raise InputError(f"{rows.error}, or skip such rows with {flag('on_error', 'skip')}")


# --- a part -----------------------------------------------------------------------------------------------------------


class _OpenFile:
    """The input that this process reads: its next part goes on where the last one ended."""

    model: Predictor | None = None
    settings: Embed | Predict | None = None  # those of `model`, without the file
    facts: dict[str, Any]  # those of `model` and this machine
    job: jobs.Job | None = None
    position = 0

    def prepare(self, task: PartTask) -> None:
        """Load the model of a part, unless it is loaded."""
        settings = replace(task.settings, file="-")
        if self.settings != settings:
            self.model, self.settings, self.job = jobs.load_for(task.settings), settings, None
            self.facts = jobs.reproduction_facts(task.settings, self.model, task.threads)
        set_num_threads(task.threads)

    def open(self, task: PartTask) -> jobs.Job:
        """The job of a part, whose inputs begin with its first row."""
        assert self.model is not None
        if self.job is None or self.job.settings != task.settings or self.position > task.rows.first:
            self.job, self.position = _open_job(task.settings, self.model, task.form), 0
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
    blocks = split_into_blocks(
        islice(job.inputs, task.rows.rows), task.settings.on_error, job.scores, first=task.rows.first
    )
    facts = {**_open_file.facts, "part": task.rows, "input": task.input.version}
    key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:8]
    work = _work_directory(out) / f"{key}-{task.name}.parquet"
    try:
        with open_output(work, replace(job.writer, file=task.column), json.loads(json.dumps(facts))) as output:
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
    record = {"part": task.name, "file": task.input.name, "first_row": task.rows.first, "rows": journal.rows}
    record |= {"results": journal.results, "skipped": journal.set_aside, "bytes": size, "sha256": digest}
    record |= {"unread": _unread(job.inputs, task.rows)}
    record |= {"host": socket.gethostname(), "process": os.getpid(), "differs": changed}
    with suppress(FileExistsError):  # the work was done twice
        create(record_file, json.dumps(record).encode())
    return record


def _unread(rows: RowsOfFile, part: RowRange) -> str | None:
    """Why the file of a part is not read further than to a row of this part; None if it is."""
    last = rows.num_rows - 1
    is_here = last >= part.first and (part.rows is None or last < part.first + part.rows)
    return str(rows.error) if rows.error is not None and is_here else None


def _check_state(one: InputFile) -> None:
    if file_state(as_path(one.path)) != one.state:
        raise InputError(f"{one.path}: has changed while the job was running; start again in a new directory")


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
    """Move a complete file to its place. Returns its size and digest; with `mixed`, those of one that is there."""
    size, digest = work.stat().st_size, _digest(work)
    try:
        if isinstance(target, RemotePath):
            target.put(work, create=True)
        else:
            target.parent.mkdir(exist_ok=True)
            os.link(work, target)
    except FileExistsError:
        content = target.read_bytes()
        size, other = len(content), hashlib.sha256(content).hexdigest()
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
    is_mixed = any(record["differs"] for record in records)
    manifest = {**totals, "is_mixed": is_mixed, "made_with": plan.made_with, "parts": records}
    with suppress(FileExistsError):  # another process has ended at the same time
        create(out / MANIFEST, json.dumps(manifest, indent=1).encode())
    with suppress(OSError):  # another command is at work there
        _work_directory(out).rmdir()
    return Journal(plan.made_with, rows=totals["rows"], results=totals["results"], set_aside=totals["skipped"])


def estimate(job: jobs.Job, files: list[Path], num_parts: int) -> Estimate:
    """The estimated time and cost of a job, from the time of its first rows."""
    settings = job.settings
    size = sum(map(_size, files))
    num_rows = _num_rows(files, settings, job.model)
    is_cpu = job.model.device == "cpu"
    hour = CORE_HOUR * num_threads() if is_cpu else GPU_HOUR
    price = f"${CORE_HOUR} per core and hour" if is_cpu else f"${GPU_HOUR} per GPU and hour"
    block = next(split_into_blocks(islice(job.inputs, SAMPLE_ROWS), "skip"), None)
    if not num_rows or block is None or not block.inputs:
        return Estimate(len(files), num_parts, size, num_rows, None, None, price)
    start = time.perf_counter()
    jobs.compute_block(job.compute, block, replace(settings, on_error="skip"))
    seconds = (time.perf_counter() - start) / len(block) * num_rows
    return Estimate(len(files), num_parts, size, num_rows, seconds, hour * seconds / 3600, price)


def _num_rows(files: list[Path], settings: Embed | Predict, model: Predictor) -> int | None:
    """The rows of all files: counted in up to SAMPLE_FILES small ones, else estimated from such a sample; None if
    nothing is known of it."""
    sample = files[:: math.ceil(len(files) / SAMPLE_FILES)]
    num_rows = num_bytes = 0
    for file in sample:
        size = _size(file)
        if size > SAMPLE_SIZE:
            rows = estimate_num_rows(str(file), settings.encoding)
        else:
            inputs = _open_job(replace(settings, file=str(file)), model, NO_COLUMNS).inputs
            rows = sum(1 for _ in inputs) - (inputs.error is not None)
        if rows is not None:
            num_rows += rows
            num_bytes += size
    total = sum(map(_size, files))
    if not num_bytes:
        return None if total else 0
    return round(num_rows * total / num_bytes)


# --- the verbs `embed` and `predict`: a file, or a directory of parts -------------------------------------------------

VECTOR_SUFFIXES, PREDICTION_SUFFIXES = (".npy", ".parquet", ".jsonl"), (".parquet", ".jsonl", ".csv", ".tsv")


def embed(settings: Embed) -> tuple[Journal, int] | Estimate:
    """Write a vector per row to `out`. Returns the counts and the size of a vector."""
    if not settings.writes_parts:
        check_output(settings.out, VECTOR_SUFFIXES, "vectors", resume=settings.resume)
    job, result = _run(settings)
    return (result, job.width) if isinstance(result, Journal) else result


def predict(settings: Predict) -> Journal | Estimate:
    """Write the model's prediction for each row to `out`."""
    assert settings.out is not None
    if not settings.writes_parts:
        check_output(settings.out, PREDICTION_SUFFIXES, "predictions", resume=settings.resume)
    return _run(settings)[1]


def _run(settings: Embed | Predict) -> tuple[jobs.Job, Journal | Estimate]:
    if (settings.mixed or settings.ray) and not settings.writes_parts:
        raise InputError(f"mixed and ray are for the parts of a directory; {settings.out} is a file: name a directory")
    if settings.writes_parts or (settings.out is not None and settings.out.suffix == ".parquet"):
        require(settings.out, "pyarrow")
    if settings.writes_parts:
        return run(settings)
    if getattr(settings, "text", None) is None:
        jobs.check_is_one(settings)
    if not settings.dry_run:
        job = jobs.open_job(settings)
        return job, jobs.write(job)
    if settings.file == "-":
        raise InputError("dry_run: standard input is not known before it is read; name a file")
    open_file(as_path(settings.file)).close()
    job = jobs.open_job(settings)
    return job, estimate(job, [as_path(settings.file)], 1)
