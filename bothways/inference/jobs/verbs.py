"""The verbs `embed` and `predict`: into a file, or a directory of parts."""

from bothways.base.errors import InputError, require
from bothways.base.paths import as_path
from bothways.base.registry import load_name
from bothways.inference.jobs import jobs
from bothways.inference.jobs.estimate import Estimate, estimate
from bothways.inference.jobs.journal import Journal, check_output
from bothways.settings.predict import Embed, Predict
from bothways.text.rows.text_files import open_file

VECTOR_SUFFIXES = (".npy", ".parquet", ".jsonl")
PREDICTION_SUFFIXES = (".parquet", ".jsonl", ".csv", ".tsv")
PARTS = "bothways.scale.parts:run"  # for a directory; loaded by name, since it stands above


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
        written: tuple[jobs.Job, Journal | Estimate] = load_name(PARTS)(settings)
        return written

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
