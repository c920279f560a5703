"""Large jobs in named parts: a directory, local or in object storage, with a .parquet file for each part of the input.

Any number of processes, on any number of machines, may work on one directory (scale/publish.py), and be killed: work
that is done twice gives the same bytes.
"""

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bothways.base.errors import EmptyInput, InputError, flag, format_count
from bothways.base.log import logger
from bothways.base.paths import RemotePath, as_path
from bothways.inference.jobs.estimate import Estimate, estimate, size_of
from bothways.inference.jobs.job_progress import JobProgress
from bothways.inference.jobs.journal import Journal
from bothways.inference.jobs.part import NO_COLUMNS, plan_file
from bothways.inference.jobs.plan import JobPlan, load_for
from bothways.inference.jobs.writers import Parquet
from bothways.scale import ray
from bothways.scale.part import OPEN_FILE, compute_part
from bothways.scale.plan import InputFile, PartsPlan, PartTask, cut_into_parts, open_plan
from bothways.scale.publish import check_directory, done_parts, write_manifest
from bothways.settings.predict import Embed, Predict
from bothways.text.rows.datasets import HUB_PREFIX
from bothways.text.rows.standard_input import STANDARD_INPUT
from bothways.text.rows.text_files import find_files, note_on_unread, unread_files
from bothways.text.tokenizer.worker_processes import in_order


def run(settings: Embed | Predict) -> tuple[JobPlan, Journal | Estimate]:
    """Work on all parts that are not done. Returns the counts of all parts."""
    assert settings.out is not None
    out = as_path(settings.out)
    root = as_path(settings.file)
    _check_places(out, root, settings)

    # All files are named, and the first with rows is opened, before anything is written.
    files = find_files(root)
    note = note_on_unread(unread_files(root))
    if note:
        logger.info(note)
    first, refused = _open_first(root, files, settings)
    if settings.dry_run:
        inputs = [InputFile(str(file), file.name, size_of(file), version="", state="") for file in files]
        return first, estimate(first, files, len(cut_into_parts(inputs, settings, first.model)))

    # All commands that work on the directory have one plan.
    if not isinstance(out, RemotePath):
        out.mkdir(exist_ok=True)
    plan = open_plan(out, files, settings, first.model)

    assert isinstance(first.writer, Parquet)
    form = first.writer
    tasks = (plan.task(number, settings, form) for number in _missing_parts(out, plan))
    busy = _work_on(out, plan, tasks, settings, refused=refused)
    if busy:
        raise InputError(
            f"{out}: another command is writing {busy:,} of the parts; wait for it, or use {flag('resume', True)} then"
        )
    return first, write_manifest(out, plan.made_with, [plan.name(number) for number in range(len(plan.parts))])


def _check_places(out: Path, root: Path, settings: Embed | Predict) -> None:
    """InputError if the directory is not for this job, or the input cannot be divided."""
    check_directory(out, resume=settings.resume)
    if settings.file == STANDARD_INPUT or str(root).startswith(HUB_PREFIX):
        raise InputError(f"{settings.file}: is read as one stream, and has no parts; name files, or an output file")
    if out.is_relative_to(root):
        raise InputError(f"{out}: is in the input, {root}; name a directory elsewhere")


def _open_first(root: Path, files: list[Path], settings: Embed | Predict) -> tuple[JobPlan, set[str]]:
    """The plan of the first file with rows, and the paths of files that cannot be read, each with a line in the log.

    All local files are opened, so that what is wrong is said before anything is computed; of a bucket, files up to the
    first that has rows. InputError if a file cannot be read, unless such files are skipped and others can be read.
    """
    model = load_for(settings)
    opened: JobPlan | None = None
    has_rows = False
    refused: dict[str, InputError] = {}
    for file in files:
        if isinstance(file, RemotePath) and (has_rows or (refused and settings.on_error == "stop")):
            break

        plan = plan_file(settings, str(file), model)
        if plan.inputs.has_rows():
            opened = opened if has_rows else plan
            has_rows = True
        elif plan.inputs.error is not None:
            refused[str(file)] = plan.inputs.error
        elif plan.writer is not NO_COLUMNS:
            opened = opened or plan

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


def _missing_parts(out: Path, plan: PartsPlan) -> list[int]:
    """The numbers of the parts that are not done, in the order in which this command works on them."""
    done = done_parts(out)
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
    tasks: Iterator[PartTask],
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
        OPEN_FILE.close()
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
