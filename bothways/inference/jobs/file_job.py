"""The job of one file among others, which may have no rows, or not be readable."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from bothways.base.errors import InputError, StorageError, not_permitted
from bothways.inference.jobs import jobs
from bothways.inference.jobs.blocks import RowsOfFile
from bothways.inference.jobs.writers import Parquet, ResultRow
from bothways.inference.predictor import Predictor
from bothways.inference.reading import Progress
from bothways.settings.predict import Embed, Predict
from bothways.text.data.model_inputs import ModelInput

NO_COLUMNS = Parquet({})


def open_file_job(settings: Embed | Predict, model: Predictor, form: Parquet) -> jobs.Job:
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
    return jobs.Job(
        settings=settings,
        model=model,
        inputs=rows,
        compute=_compute_nothing,
        writer=form,
    )


def _raise(error: InputError) -> Iterator[ModelInput]:
    raise error
    yield


def _compute_nothing(rows: Sequence[ModelInput], progress: Progress | None = None) -> list[ResultRow]:
    """The results of a file that has no rows."""
    return []
