"""The plan of a job in parts: which rows of which file each part has, and what its results depend on."""

import json
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from bothways.base.errors import InputError, differences, flag
from bothways.base.paths import RemotePath, as_path
from bothways.inference.jobs.blocks import estimate_num_rows, num_bytes
from bothways.inference.jobs.estimate import size_of
from bothways.inference.jobs.facts import reproduction_facts, threads_of
from bothways.inference.jobs.part import plan_file
from bothways.inference.jobs.writers import Parquet
from bothways.inference.predictor import Predictor
from bothways.scale.publish import PLAN, create, digest_of
from bothways.settings.predict import Embed, Predict
from bothways.text.rows.text_files import EXPLICIT_TYPES, file_type, is_compressed

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


class InputFile(NamedTuple):
    """A file of the input.

    name: relative to the input.
    version: the e_tag of an object, or the digest of a local file, which must be read for it.
    state: see `file_state`.
    """

    path: str
    name: str
    size: int
    version: str
    state: str

    def check_unchanged(self) -> None:
        if file_state(as_path(self.path)) != self.state:
            raise InputError(f"{self.path}: has changed while the job was running; start again in a new directory")


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
            threads=threads_of(settings),
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


def open_plan(out: Path, files: list[Path], settings: Embed | Predict, model: Predictor) -> PartsPlan:
    """The plan in the directory, or a new one. InputError if it has other settings or inputs."""
    facts = reproduction_facts(settings, model, threads_of(settings))
    inputs = versions_of(files, as_path(settings.file))
    versions = [[file.name, file.size, file.version] for file in inputs]
    if not (out / PLAN).is_file():
        plan = PartsPlan(facts, inputs, cut_into_parts(inputs, settings, model))
        with suppress(FileExistsError):  # another process has made it meanwhile
            text = json.dumps({"made_with": facts, "inputs": versions, "parts": plan.parts})
            create(out / PLAN, text.encode())
            return plan

    stored = json.loads((out / PLAN).read_bytes())
    check_facts(out, stored["made_with"], facts, mixed=settings.mixed)
    if stored["inputs"] != versions:
        changed = {json.dumps(file) for file in versions} ^ {json.dumps(file) for file in stored["inputs"]}
        raise InputError(
            f"{out}: the input has changed since the parts were planned ({json.loads(min(changed))[0]}); give the same "
            "files, or name a new directory"
        )
    return PartsPlan(stored["made_with"], inputs, [RowRange(*part) for part in stored["parts"]])


def check_facts(out: Path, planned: dict[str, Any], facts: dict[str, Any], *, mixed: bool) -> str:
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


def versions_of(files: list[Path], root: Path) -> list[InputFile]:
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


def file_state(path: Path) -> str:
    """A value that changes with a file: the e_tag of an object, or size and time of a local file ("" if it is
    not there). The file is not read."""
    if not isinstance(path, RemotePath) and not path.exists():
        return ""
    status: Any = path.stat()
    return status.e_tag if isinstance(path, RemotePath) else f"{status.st_size} {status.st_mtime_ns}"


def _version(file: Path) -> str:
    """The digest of a local file, or the reason why it is not read."""
    try:
        return digest_of(file)
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


def cut_into_parts(inputs: Iterable[InputFile], settings: Embed | Predict, model: Predictor) -> list[RowRange]:
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
    rows = plan_file(settings, file.path, model).inputs
    for number, row in enumerate(rows):
        if size >= PART_BYTES or number - first == PART_ROWS:
            first = number
            size = 0
            yield number
        size += num_bytes(row)
    if rows.error is not None and settings.on_error == "stop":
        raise InputError(f"{rows.error}, or skip such rows with {flag('on_error', 'skip')}")
