"""The verbs `embed` and `predict`: a file, or a directory of parts."""

from bothways.cloud import as_path
from bothways.errors import InputError
from bothways.inference.jobs import parts
from bothways.inference.jobs.jobs import Job, open_job, write
from bothways.inference.jobs.journal import Journal, check_output
from bothways.inference.jobs.parts import Estimate
from bothways.settings.predict import Embed, Predict
from bothways.text.data.text_files import open_file

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


def _run(settings: Embed | Predict) -> tuple[Job, Journal | Estimate]:
    if (settings.mixed or settings.ray) and not settings.writes_parts:
        raise InputError(f"mixed and ray are for the parts of a directory; {settings.out} is a file: name a directory")
    if settings.writes_parts:
        return parts.run(settings)
    if not settings.dry_run:
        job = open_job(settings)
        return job, write(job)
    if settings.file == "-":
        raise InputError("dry_run: standard input is not known before it is read; name a file")
    open_file(as_path(settings.file)).close()
    job = open_job(settings)
    return job, parts.estimate(job, [as_path(settings.file)], 1)
