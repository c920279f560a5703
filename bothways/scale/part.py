"""A part of a job in parts: a range of rows of one file, as a .parquet and a record."""

import hashlib
import json
import os
import socket
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from bothways.base.device import set_num_threads
from bothways.base.paths import as_path
from bothways.inference.jobs.blocks import RowsOfFile, split_into_blocks
from bothways.inference.jobs.facts import reproduction_facts
from bothways.inference.jobs.journal import BusyError, open_output, side_file
from bothways.inference.jobs.part import compute_block, plan_file
from bothways.inference.jobs.plan import JobPlan, load_for
from bothways.inference.jobs.writers import Parquet
from bothways.inference.predictor import Predictor
from bothways.scale.plan import PartTask, RowRange, check_facts
from bothways.scale.publish import RECORDS, SKIPPED, create, publish, work_directory
from bothways.settings.predict import Embed, Predict


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
            OPEN_FILE.plan = None


def _compute(task: PartTask, out: Path, record_file: Path) -> dict[str, Any]:
    # The machine and the file must be those of the plan.
    task.input.check_unchanged()
    OPEN_FILE.prepare(task)
    changed = check_facts(out, task.made_with, OPEN_FILE.facts, mixed=task.settings.mixed)

    # The rows of the part, from where the last part of this file ended.
    plan = OPEN_FILE.open(task)
    assert isinstance(plan.writer, Parquet)
    rows = islice(plan.inputs, task.rows.rows)
    blocks = split_into_blocks(rows, plan.on_error, plan.scores, first=task.rows.first)

    # What was begun here, with the same facts, is continued.
    facts = {**OPEN_FILE.facts, "part": task.rows, "input": task.input.version}
    key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:8]
    work = work_directory(out) / f"{key}-{task.name}.parquet"
    writer = replace(plan.writer, file=task.column)
    try:
        with open_output(work, writer, json.loads(json.dumps(facts))) as output:
            output.skip_done(blocks)
            for block in blocks:
                output.add(block, *compute_block(plan, block))
            journal = output.finish()
    except BaseException:
        OPEN_FILE.plan = None  # which has read further
        raise

    # The record comes last: with it the part is done.
    task.input.check_unchanged()
    if journal.set_aside:
        publish(side_file(work), out / SKIPPED / f"{task.name}.jsonl", mixed=task.settings.mixed)
    size, digest = publish(work, out / f"{task.name}.parquet", mixed=task.settings.mixed)
    record = {
        "part": task.name,
        "file": task.input.name,
        "first_row": task.rows.first,
        "rows": journal.rows,
        "results": journal.results,
        "skipped": journal.set_aside,
        "bytes": size,
        "sha256": digest,
        "unread": _unread(plan.inputs, task.rows),
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


# --- the file that is open --------------------------------------------------------------------------------------------


class _OpenFile:
    """The input that this process reads: its next part goes on where the last one ended."""

    model: Predictor | None = None
    settings: Embed | Predict | None = None  # of `model`, without the file
    facts: dict[str, Any]  # of `model` and this machine
    plan: JobPlan | None = None
    position = 0

    def prepare(self, task: PartTask) -> None:
        """Load the model of a part, unless it is loaded."""
        settings = replace(task.settings, file="-")
        if self.settings != settings:
            self.model = load_for(task.settings)
            self.settings = settings
            self.plan = None
            self.facts = reproduction_facts(task.settings, self.model, task.threads)
        set_num_threads(task.threads)

    def open(self, task: PartTask) -> JobPlan:
        """The plan of a part, whose inputs begin with its first row."""
        assert self.model is not None
        if self.plan is None or self.plan.settings != task.settings or self.position > task.rows.first:
            self.plan = plan_file(task.settings, task.input.path, self.model, task.form)
            self.position = 0
        for _ in islice(self.plan.inputs, task.rows.first - self.position):
            pass
        self.position = task.rows.first + (task.rows.rows or 0)
        return self.plan

    def close(self) -> None:
        self.model = self.settings = self.plan = None


OPEN_FILE = _OpenFile()
