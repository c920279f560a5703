"""A part of a job: a range of the rows of its source, block by block, as results."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from bothways.base.device import set_num_threads
from bothways.base.errors import InputError, RowError, RowLocation, RowsError, StorageError, flag, not_permitted
from bothways.inference.jobs.blocks import Block, RowsOfFile
from bothways.inference.jobs.facts import threads_of
from bothways.inference.jobs.job_progress import JobProgress
from bothways.inference.jobs.plan import JobPlan, plan_job
from bothways.inference.jobs.writers import Parquet, ResultRow
from bothways.inference.predictor import Predictor
from bothways.inference.reading import Progress
from bothways.settings.predict import Embed, Predict
from bothways.text.data.model_inputs import ModelInput
from bothways.text.tokenizer.worker_processes import in_order

NO_COLUMNS = Parquet({})


def compute_blocks(
    plan: JobPlan, blocks: Iterator[Block], progress: JobProgress
) -> Iterator[tuple[Block, tuple[Block, Any]]]:
    """Each block, and what `compute_block` returns for it; in worker processes, if the settings want any."""
    settings = plan.settings
    if settings.workers is None:
        for block in blocks:
            yield block, compute_block(plan, block, progress)
        return

    tasks = ((settings, threads_of(settings), block) for block in blocks)
    for (_, _, block), result in in_order(_compute_in_worker, tasks, settings.workers):
        progress.finish_block(len(block))
        yield block, result


def _compute_in_worker(task: tuple[Embed | Predict, int, Block]) -> tuple[Block, Any]:
    settings, threads, block = task
    return compute_block(_plan_in_worker(settings, threads), block)


@lru_cache(1)
def _plan_in_worker(settings: Embed | Predict, threads: int) -> JobPlan:
    plan = plan_job(settings)
    set_num_threads(threads)
    return plan


def compute_block(plan: JobPlan, block: Block, progress: JobProgress | None = None) -> tuple[Block, Any]:
    """A block and its results; with on_error "skip" the block without the rows that cannot be computed."""
    while True:
        try:
            results = plan.compute(block.inputs, progress.within_block(len(block)) if progress else None)
            if progress:
                progress.finish_block(len(block))
            return block, results
        except RowsError as error:
            if plan.on_error == "stop":
                index = min(error.rows)
                where = RowLocation(plan.source, block.row_numbers[index], block.inputs[index].line)
                raise RowError(
                    where, f"{error.rows[index]}, or skip such rows with {flag('on_error', 'skip')}"
                ) from None
            block = block.without(error.rows)
        except InputError as error:
            if not block.row_numbers:
                raise
            first = block.row_numbers[0]
            last = block.row_numbers[-1]
            raise InputError(f"{plan.source}: rows {first} to {last}: {error}") from None


# --- one file among others --------------------------------------------------------------------------------------------


def plan_file(settings: Embed | Predict, file: str, model: Predictor, form: Parquet = NO_COLUMNS) -> JobPlan:
    """The plan of one file among others, which may have no rows, or not be readable.

    form: the columns of its part if it has no rows, or cannot be read.
    """
    settings = replace(settings, file=file)
    try:
        plan = plan_job(settings, model)
    except StorageError:
        raise
    except InputError as error:
        rows = RowsOfFile(_raise(error), is_part=True)
    except PermissionError as error:
        rows = RowsOfFile(_raise(not_permitted(error)), is_part=True)
    else:
        return plan if plan.inputs.has_rows() or form is NO_COLUMNS else replace(plan, writer=form)
    return JobPlan(
        settings=settings,
        model=model,
        source=file,
        inputs=rows,
        compute=_compute_nothing,
        writer=form,
        on_error=settings.on_error,
    )


def _raise(error: InputError) -> Iterator[ModelInput]:
    raise error
    yield


def _compute_nothing(rows: Sequence[ModelInput], progress: Progress | None = None) -> list[ResultRow]:
    """The results of a file that has no rows."""
    return []
