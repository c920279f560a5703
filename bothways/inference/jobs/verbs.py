"""The verbs `embed` and `predict`: into a file, into a directory of parts, or row by row."""

import sys
from collections.abc import Iterator, Sequence

from bothways.base.errors import InputError, flag, require
from bothways.base.log import logger
from bothways.base.paths import as_path
from bothways.base.registry import load_name
from bothways.inference.jobs.blocks import estimate_num_rows
from bothways.inference.jobs.estimate import Estimate, estimate
from bothways.inference.jobs.facts import reproduction_facts, threads_of
from bothways.inference.jobs.job_progress import JobProgress
from bothways.inference.jobs.journal import Journal, check_output, open_output
from bothways.inference.jobs.part import compute_block, compute_blocks
from bothways.inference.jobs.plan import JobPlan, plan_job
from bothways.inference.jobs.source import check_is_one
from bothways.inference.jobs.writers import ResultRow
from bothways.settings.predict import Embed, Predict
from bothways.text.rows.standard_input import STANDARD_INPUT
from bothways.text.rows.text_files import open_file

VECTOR_SUFFIXES = (".npy", ".parquet", ".jsonl")
PREDICTION_SUFFIXES = (".parquet", ".jsonl", ".csv", ".tsv")
PARTS = "bothways.scale.parts:run"  # for a directory; loaded by name, since it stands above


def embed(settings: Embed) -> tuple[Journal, int] | Estimate:
    """Write a vector per row to `out`. Returns the counts and the size of a vector."""
    plan, result = _run(settings, VECTOR_SUFFIXES, "vectors")
    return (result, plan.width) if isinstance(result, Journal) else result


def predict(settings: Predict) -> Journal | Estimate:
    """Write the model's prediction for each row to `out`."""
    return _run(settings, PREDICTION_SUFFIXES, "predictions")[1]


def predict_blocks(settings: Predict) -> Iterator[list[ResultRow]]:
    """Yield the predictions block by block. A block of standard input contains the lines that have arrived. With
    on_error "skip" each row begins with its index."""
    if settings.resume:
        raise InputError(f"resume needs an output file; name it with {flag('out')}")
    if settings.text is None:
        check_is_one(settings)

    # On a terminal the predictions themselves show the progress.
    plan = plan_job(settings)
    num_rows = estimate_num_rows(settings.file, settings.encoding)
    with JobProgress("predict", num_rows, bar=not sys.stdout.isatty()) as progress:
        for block_read in plan.blocks():
            block, rows = compute_block(plan, block_read, progress)
            for number, reason in block.errors.items():
                logger.warning(f"row {number:,} skipped: {reason}")
            numbered = ({"row": number, **row} for number, row in zip(block.row_numbers, rows, strict=True))
            yield [*numbered] if plan.on_error == "skip" else rows


def _run(settings: Embed | Predict, suffixes: Sequence[str], content: str) -> tuple[JobPlan, Journal | Estimate]:
    assert settings.out is not None
    if settings.writes_parts:
        require(settings.out, "pyarrow")
        written: tuple[JobPlan, Journal | Estimate] = load_name(PARTS)(settings)
        return written

    # What is wrong with the names is said before the model is loaded.
    check_output(settings.out, suffixes, content, resume=settings.resume)
    if settings.mixed or settings.ray:
        raise InputError(f"mixed and ray are for the parts of a directory; {settings.out} is a file: name a directory")
    if settings.out.suffix == ".parquet":
        require(settings.out, "pyarrow")
    if getattr(settings, "text", None) is None:
        check_is_one(settings)

    if not settings.dry_run:
        plan = plan_job(settings)
        return plan, _write(plan)

    if settings.file == STANDARD_INPUT:
        raise InputError("dry_run: standard input is not known before it is read; name a file")
    file = as_path(settings.file)
    open_file(file).close()
    plan = plan_job(settings)
    return plan, estimate(plan, [file], 1)


def _write(plan: JobPlan) -> Journal:
    """Write the results of all rows to one file."""
    settings = plan.settings
    out = settings.out
    assert out is not None
    threads = threads_of(settings)
    blocks = plan.blocks()

    with open_output(out, plan.writer, reproduction_facts(settings, plan.model, threads)) as output:
        if settings.resume and not output.journal.blocks:
            logger.info(f"{out}: nothing to resume; beginning at the first row")
        output.skip_done(blocks)

        num_rows = estimate_num_rows(settings.file, settings.encoding)
        with JobProgress(out.name, num_rows, done=output.journal.rows) as progress:
            for block, (computed, results) in compute_blocks(plan, blocks, progress):
                output.add(block, computed, results)

        if plan.inputs.error is not None:
            logger.warning(f"{plan.inputs.error}; what comes before it is kept")
        return output.finish()
