"""The plan of a job: everything that is decided once, before the first row is computed."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

from bothways.base.errors import InputError
from bothways.base.log import logger
from bothways.inference.explain import explanations
from bothways.inference.jobs import writers
from bothways.inference.jobs.blocks import Block, RowsOfFile, split_into_blocks
from bothways.inference.jobs.columns import PredictionColumns, num_scores, prediction_columns, score_labels
from bothways.inference.jobs.source import JobSource, read_inputs, read_texts_to_embed, source_of
from bothways.inference.load import load
from bothways.inference.predictor import Predictor
from bothways.inference.reading import Progress, ReadOptions
from bothways.settings.base import AskedFor
from bothways.settings.predict import Embed, Predict
from bothways.tasks import TASKS
from bothways.tasks.class_decoding import stored_calibration
from bothways.tasks.decide.questions import named_options
from bothways.tasks.novelty import promise, stored_scope
from bothways.tasks.task import OPTIONS, split_pairs
from bothways.text.data.model_inputs import ModelInput

# An explained row counts as so many scores of a block: each of its words is a text to be read.
EXPLAINED_SCORES = 1 << 13


class BlockFunction(Protocol):
    """The function from input rows to results: vectors, or result rows."""

    def __call__(self, rows: Sequence[ModelInput], progress: Progress | None = None) -> Any: ...


@dataclass(frozen=True)
class JobPlan:
    """What becomes of the rows of one source.

    settings: of the job; what follows from them is in the other fields.
    model: of the settings.
    source: the name of the source in messages.
    inputs: all of its rows, read once.
    compute: the function from these rows to results.
    writer: the file format of the results.
    on_error: what to do about rows that cannot be read or computed.
    scores: per row.
    width: the size of a vector; 0 for predictions.
    """

    settings: Embed | Predict
    model: Predictor
    source: str
    inputs: RowsOfFile
    compute: BlockFunction
    writer: writers.ResultFormat
    on_error: Literal["stop", "skip"]
    scores: int = 1
    width: int = 0

    def blocks(self) -> Iterator[Block]:
        return split_into_blocks(self.inputs, self.on_error, self.scores)


def plan_job(settings: Embed | Predict, model: Predictor | None = None) -> JobPlan:
    """model: the model of the settings; None: to be loaded."""
    model = model or load_for(settings)
    source = source_of(settings)
    if isinstance(settings, Embed):
        return _plan_vectors(settings, model, source)
    return _plan_predictions(settings, model, source)


def load_for(settings: Embed | Predict) -> Predictor:
    """The model of the settings, with the options that it is asked for."""
    model = load(
        settings.model,
        dtype=settings.dtype,
        device=settings.device,
        window=settings.window,
    )
    return model if isinstance(settings, Embed) else asking(model, settings)


def asking(model: Predictor, asked: AskedFor) -> Predictor:
    """The model with the options of the settings as its labels; the model itself if they name none."""
    if asked.options is None:
        return model
    return model.asking(
        named_options(asked.options),
        question=asked.question or "",
        none=asked.none is not False,
    )


def _plan_vectors(settings: Embed, model: Predictor, source: JobSource) -> JobPlan:
    inputs = read_texts_to_embed(settings, model, source)
    width = int(model.embed([], pooling=settings.pooling).shape[1])

    def compute(rows: Sequence[ModelInput], progress: Progress | None = None) -> writers.Vectors:
        return model.embed(
            [row.text for row in rows],
            pooling=settings.pooling,
            normalize=settings.normalize,
            long=settings.long,
            progress=progress,
        )

    is_npy = settings.out.suffix == ".npy"
    return JobPlan(
        settings=settings,
        model=model,
        source=source.name,
        inputs=RowsOfFile(inputs, is_part=settings.writes_parts),
        compute=compute,
        writer=writers.Npy(width) if is_npy else _table(settings.out, writers.vector_column(width)),
        on_error=settings.on_error,
        width=width,
    )


def _plan_predictions(settings: Predict, model: Predictor, source: JobSource) -> JobPlan:
    top = num_scores(settings, model)
    columns = prediction_columns(settings, model, source, top)

    # An option that the model lacks is reported before a row that it does not read.
    compute = _prediction_function(settings, model, columns, top)
    inputs = read_inputs(settings, model, source, columns.name_by_input_column)
    return JobPlan(
        settings=settings,
        model=model,
        source=source.name,
        inputs=RowsOfFile(inputs, is_part=settings.writes_parts),
        compute=compute,
        writer=_table(settings.out, columns.types(), settings.escape_formulas),
        on_error=settings.on_error,
        scores=max(scores_per_row(model, top), EXPLAINED_SCORES if settings.explain else 1),
    )


def scores_per_row(model: Predictor, top: int | None) -> int:
    return max(1, TASKS[model.task].load().scores_per_row(model, top))


def _prediction_function(
    settings: Predict, model: Predictor, columns: PredictionColumns, top: int | None
) -> BlockFunction:
    """The function from input rows to result rows, copied columns first. InputError if the model has no head for
    predictions."""
    task = TASKS[model.task].load()
    for name, use in OPTIONS.items():
        value = getattr(settings, name)
        if value is not None and name not in task.options:
            raise InputError(f"{name} ({value}) is for {use}; the task of this model is {model.task}")
    if settings.top == "all" and not model.labels:
        raise InputError(f"top (all) is for labels; the task of this model is {model.task}; give a number")

    # What the numbers promise is said once.
    if settings.coverage is not None:
        logger.info(stored_calibration(model.description.metadata).guarantee(settings.coverage))
    if settings.in_scope is not None:
        logger.info(promise(stored_scope(model.description), settings.in_scope))

    options: dict[str, Any] = {name: getattr(settings, name) for name in OPTIONS} | {"top": top}
    options = {name: value for name, value in options.items() if value is not None}
    predict_rows: Callable[..., list[writers.ResultRow]] = partial(
        task.predict_rows,
        model,
        long=settings.long,
        **options,
    )
    has_lines = columns.has_lines

    # A missing head must not be reported as the error of a row.
    predict_rows([])

    def compute(rows: Sequence[ModelInput], progress: Progress | None = None) -> list[writers.ResultRow]:
        results = predict_rows(rows, progress=progress)
        if settings.explain:
            results = with_words(model, rows, results, {"long": settings.long})
        copied = (dict(zip(columns.name_by_input_column.values(), row.kept, strict=True)) for row in rows)
        lines = ({"line": row.line} if has_lines else {} for row in rows)
        return [{**line, **kept, **result} for line, kept, result in zip(lines, copied, results, strict=True)]

    return compute


def with_words(
    model: Predictor, rows: Sequence[ModelInput], results: Sequence[writers.ResultRow], reading: ReadOptions
) -> list[writers.ResultRow]:
    """Result rows with the words of each text and their effects, those of the largest effects first."""
    found = explanations(model, *split_pairs(rows), label=None, options=reading)
    return [{**result, "words": one.to_json()["words"]} for result, one in zip(results, found, strict=True)]


def _table(out: Path | None, columns: writers.Columns, escape_formulas: bool = False) -> writers.ResultFormat:
    """The format of a table. out: None: standard output, of lines of JSON."""
    if out is None or out.suffix == ".jsonl":
        return writers.JsonLines()
    if out.suffix in (".csv", ".tsv"):
        return writers.Separated(
            columns=[*columns],
            tabs=out.suffix == ".tsv",
            escape_formulas=escape_formulas,
            labels=score_labels(columns),
        )
    return writers.Parquet(columns)
