"""Batch prediction and embedding of files of any size, or standard input, in blocks."""

import hashlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import bothways
from bothways.base.device import num_cores, num_threads, set_num_threads
from bothways.base.errors import (
    InputError,
    RowError,
    RowLocation,
    RowsError,
    flag,
    format_count,
    id_column,
    no_such_column,
)
from bothways.base.log import logger
from bothways.base.paths import as_path
from bothways.core.build import library_name
from bothways.core.library import FOLDER, SUFFIX, Core, find_core
from bothways.inference.jobs import writers
from bothways.inference.jobs.blocks import Block, RowsOfFile, block_limits, estimate_num_rows, split_into_blocks
from bothways.inference.jobs.job_progress import JobProgress
from bothways.inference.jobs.journal import Journal, open_output
from bothways.inference.load import load
from bothways.inference.predictor import Predictor
from bothways.inference.reading import Progress
from bothways.model.checkpoint.directory import Directory
from bothways.model.checkpoint.weights import OLD_WEIGHTS, WEIGHTS
from bothways.settings.predict import Embed, Predict
from bothways.tasks import TASKS
from bothways.tasks.class_decoding import stored_calibration
from bothways.tasks.novelty import promise, stored_scope
from bothways.tasks.scores import probability_column
from bothways.tasks.task import OPTIONS
from bothways.text.data.model_inputs import (
    LiveInput,
    ModelInput,
    all_columns,
    first_columns,
    has_lines,
    read_questions,
    read_texts,
    resolve_columns,
)
from bothways.text.rows.column_names import rename_columns
from bothways.text.rows.datasets import HUB_PREFIX, arrow_files
from bothways.text.rows.rows import open_rows
from bothways.text.rows.text_files import find_files, is_pattern
from bothways.text.tokenizer.worker_processes import in_order

# Settings that do not change the results, or are compared in another way.
IGNORED_SETTINGS = {
    "model",
    "file",
    "text",
    "pair",
    "out",
    "resume",
    "on_error",
    "dtype",
    "device",
    "json",
    "workers",
    "ray",
    "mixed",
    "dry_run",
}

SHOWN_SCORES = 5  # labels of a row of a .csv or .tsv: in 77 columns, label and score are not found
PLAIN_TYPE = re.compile("u?int(8|16|32|64)|float|double|bool")  # of a kept column in an Arrow schema


class BlockFunction(Protocol):
    """The function from input rows to results: vectors, or result rows."""

    def __call__(self, rows: Sequence[ModelInput], progress: Progress | None = None) -> Any: ...


@dataclass(frozen=True)
class Job:
    """A model with settings for one input file, as a function from input rows to results and their file format.

    inputs: all rows of the file, read once. scores: per row. width: the size of a vector; 0 for predictions.
    """

    settings: Embed | Predict
    model: Predictor
    inputs: RowsOfFile
    compute: BlockFunction
    writer: writers.ResultFormat
    scores: int = 1
    width: int = 0

    def blocks(self) -> Iterator[Block]:
        return split_into_blocks(self.inputs, self.settings.on_error, self.scores)


def open_job(settings: Embed | Predict, model: Predictor | None = None) -> Job:
    """model: the model of the settings; None: to be loaded."""
    if isinstance(settings, Embed):
        return _embed_job(settings, model or load_for(settings))
    model = model or load_for(settings)
    kept = _kept_columns(settings, model)
    assert settings.out is not None
    return Job(
        settings=settings,
        model=model,
        inputs=RowsOfFile(read_inputs(model, settings, kept), is_part=settings.writes_parts),
        compute=_prediction_function(model, settings, kept),
        writer=_table(settings.out, _output_columns(model, settings, kept), settings.escape_formulas),
        scores=scores_per_row(model, settings),
    )


def _embed_job(settings: Embed, model: Predictor) -> Job:
    trained = {} if settings.text_column else model.description.settings
    names = resolve_columns(settings.file, settings, trained)
    inputs = read_texts(settings.file, text=names["text"], pair=names["pair"], encoding=settings.encoding)
    inputs = _require_single(inputs, settings.file, settings.text_column, "a vector is of one")
    width = int(model.embed([], pooling=settings.pooling).shape[1])

    def compute(rows: Sequence[ModelInput], progress: Progress | None = None) -> writers.Vectors:
        return model.embed(
            [row.text for row in rows],
            pooling=settings.pooling,
            normalize=settings.normalize,
            long=settings.long,
            progress=progress,
        )

    writer = writers.Npy(width) if settings.out.suffix == ".npy" else _table(settings.out, writers.vector_column(width))
    rows = RowsOfFile(inputs, is_part=settings.writes_parts)
    return Job(
        settings=settings,
        model=model,
        inputs=rows,
        compute=compute,
        writer=writer,
        width=width,
    )


def check_is_one(settings: Embed | Predict) -> None:
    """InputError if the input is a pattern, or a folder other than a dataset: the rows of an output are of one file."""
    path = as_path(settings.file)
    if settings.file == "-" or str(path).startswith(HUB_PREFIX) or path.is_file():
        return
    is_folder = path.is_dir()
    if arrow_files(path) if is_folder else not is_pattern(path):
        return
    count = format_count(len(find_files(path)), "file")
    parts = f", or a directory with {flag('out')}, in which each file has a part"
    raise InputError(
        f"{path}: a {'folder' if is_folder else 'pattern'} ({count}) where one file is read; name one"
        + ("" if isinstance(settings, Predict) and settings.label_next is not None else parts)
    )


def write(job: Job) -> Journal:
    """Write the results of all rows to one file."""
    settings = job.settings
    out = job.settings.out
    assert out is not None
    threads = threads_of(settings)
    blocks = job.blocks()

    with open_output(out, job.writer, reproduction_facts(settings, job.model, threads)) as output:
        if settings.resume and not output.journal.blocks:
            logger.info(f"{out}: nothing to resume; beginning at the first row")
        output.skip_done(blocks)
        num_rows = estimate_num_rows(settings.file, settings.encoding)
        with JobProgress(out.name, num_rows, done=output.journal.rows) as progress:
            for block, (computed, results) in _results(job, blocks, progress):
                output.add(block, computed, results)

        if job.inputs.error is not None:
            logger.warning(f"{job.inputs.error}; what comes before it is kept")

        return output.finish()


def _results(job: Job, blocks: Iterator[Block], progress: JobProgress) -> Iterator[tuple[Block, tuple[Block, Any]]]:
    """Each block, and what `compute_block` returns for it."""
    settings = job.settings
    if settings.workers is None:
        for block in blocks:
            yield block, compute_block(job.compute, block, settings, progress)
        return
    tasks = ((settings, threads_of(settings), block) for block in blocks)
    for (_, _, block), result in in_order(_compute_in_worker, tasks, settings.workers):
        progress.finish_block(len(block))
        yield block, result


def threads_of(settings: Embed | Predict) -> int:
    """The threads of each worker: its share of the cores, or one under Ray; without workers, of this process."""
    if settings.workers is None and settings.ray is None:
        return num_threads()
    return 1 if settings.ray else max(1, num_cores() // (settings.workers or 1))


def _compute_in_worker(task: tuple[Embed | Predict, int, Block]) -> tuple[Block, Any]:
    settings, threads, block = task
    return compute_block(_job_in_worker(settings, threads).compute, block, settings)


@lru_cache(1)
def _job_in_worker(settings: Embed | Predict, threads: int) -> Job:
    job = open_job(settings)
    set_num_threads(threads)
    return job


def predict_blocks(settings: Predict) -> Iterator[list[writers.ResultRow]]:
    """Yield the predictions block by block. A block of standard input contains the lines that have arrived. With
    on_error "skip" each row begins with its index."""
    if settings.resume:
        raise InputError(f"resume needs an output file; name it with {flag('out')}")
    if settings.text is None:
        check_is_one(settings)

    model = load_for(settings)
    kept = _kept_columns(settings, model)
    compute = _prediction_function(model, settings, kept)

    # On a terminal the predictions themselves show the progress.
    with JobProgress(
        "predict", estimate_num_rows(settings.file, settings.encoding), bar=not sys.stdout.isatty()
    ) as progress:
        for block_read in read_blocks(model, settings, kept):
            block, rows = compute_block(compute, block_read, settings, progress)
            for number, reason in block.errors.items():
                logger.warning(f"row {number:,} skipped: {reason}")
            numbered = ({"row": number, **row} for number, row in zip(block.row_numbers, rows, strict=True))
            yield [*numbered] if settings.on_error == "skip" else rows


def load_for(settings: Embed | Predict) -> Predictor:
    """The model of the settings."""
    return load(settings.model, dtype=settings.dtype, device=settings.device, window=settings.window)


def _kept_columns(settings: Predict, model: Predictor) -> dict[str, str]:
    """The input columns that are copied into the result, and their names there: input_NAME if NAME is taken. Unless
    they are named, the one that identifies a row, if there is one."""
    if settings.text is not None:
        available = [*_literal_row(settings)]
    elif settings.keep_columns is None:
        if "id" in result_columns(settings, model):
            return {}
        available = [*first_columns(settings.file, settings.encoding)]
    else:
        available = all_columns(settings.file, settings.encoding)

    if settings.keep_columns is None:
        names = [*filter(None, [id_column((*available,))])]
    elif settings.keep_columns in ("all", *available):
        names = available if settings.keep_columns == "all" else [settings.keep_columns]
    else:
        names = [name.strip() for name in settings.keep_columns.split(",")]

    if missing := [name for name in names if name not in available]:
        source = settings.file if settings.text is None else flag("text")
        raise no_such_column(source, missing[0], available, f"name others with {flag('keep_columns')}")

    columns = result_columns(settings, model)
    taken = {*columns, *(["line"] if _writes_lines(settings) else [])}
    if settings.out is not None and settings.out.suffix in (".csv", ".tsv"):
        taken |= {*map(probability_column, score_labels(columns))}

    if "id" in columns:  # the id of the question
        names = [name for name in names if name != "id"]
    return rename_columns(names, taken)


def _writes_lines(settings: Predict) -> bool:
    """Whether the result has the line of each row: where it has row numbers, of a file with lines."""
    return (
        has_lines(settings.file) and settings.text is None and (settings.out is not None or settings.on_error == "skip")
    )


def _literal_row(settings: Predict) -> writers.ResultRow:
    """The row of --text and --pair."""
    return {"text": settings.text} | ({} if settings.pair is None else {"pair": settings.pair})


def _output_columns(model: Predictor, settings: Predict, kept: Mapping[str, str]) -> writers.Columns:
    """The types of the output's columns. Kept numbers of a Parquet or Arrow file keep their types; other kept columns
    are text, or JSON."""
    types = open_rows(as_path(settings.file)).types() if kept and settings.file != "-" else {}
    plain = {name: kind for name, kind in types.items() if PLAIN_TYPE.fullmatch(str(kind))}
    copied = {output_name: plain.get(name, str) for name, output_name in kept.items()}
    return {**({"line": int} if _writes_lines(settings) else {}), **copied, **result_columns(settings, model)}


def _prediction_function(model: Predictor, settings: Predict, kept: Mapping[str, str]) -> BlockFunction:
    """The function from input rows to result rows, kept columns first. InputError if the model has no head for
    predictions."""
    task = TASKS[model.task].load()
    for name, use in OPTIONS.items():
        value = getattr(settings, name)
        if value is not None and name not in task.options:
            raise InputError(f"{name} ({value}) is for {use}; the task of this model is {model.task}")
    if settings.top == "all" and not model.labels:
        raise InputError(f"top (all) is for labels; the task of this model is {model.task}; give a number")
    options: dict[str, Any] = {name: getattr(settings, name) for name in OPTIONS} | {"top": num_scores(settings, model)}
    options = {name: value for name, value in options.items() if value is not None}
    if settings.coverage is not None:
        logger.info(stored_calibration(model.description.metadata).guarantee(settings.coverage))
    predict_rows: Callable[..., list[writers.ResultRow]] = partial(
        task.predict_rows,
        model,
        long=settings.long,
        **options,
    )
    if settings.in_scope is not None:
        logger.info(promise(stored_scope(model.description), settings.in_scope))
    writes_lines = _writes_lines(settings)
    predict_rows([])  # a missing head must not be reported as the error of a row

    def compute(rows: Sequence[ModelInput], progress: Progress | None = None) -> list[writers.ResultRow]:
        results = predict_rows(rows, progress=progress)
        copied = (dict(zip(kept.values(), row.kept, strict=True)) for row in rows)
        lines = ({"line": row.line} if writes_lines else {} for row in rows)
        return [{**line, **columns, **result} for line, columns, result in zip(lines, copied, results, strict=True)]

    return compute


def result_columns(settings: Predict, model: Predictor) -> writers.Columns:
    """The types of the columns of predictions."""
    top = num_scores(settings, model)
    columns = TASKS[model.task].load().columns(model, top, has_sets=settings.coverage is not None)
    if settings.in_scope is None:
        return columns
    scores = {"scores": columns["scores"]} if "scores" in columns else {}
    return {name: kind for name, kind in columns.items() if name not in scores} | {"is_like_training": bool} | scores


def num_scores(settings: Predict, model: Predictor) -> int | None:
    """How many labels (or answers) a row has scores of, the best first; None: all labels, or one answer.

    In a .csv or .tsv that is SHOWN_SCORES for more labels, unless the settings say otherwise.
    """
    if settings.top == "all":
        return None
    is_table = settings.out is not None and settings.out.suffix in (".csv", ".tsv")
    if settings.top is None and is_table and model.task == "classify" and len(model.labels) > SHOWN_SCORES:
        return SHOWN_SCORES
    return settings.top


def _table(out: Path, columns: writers.Columns, escape_formulas: bool = False) -> writers.ResultFormat:
    if out.suffix in (".csv", ".tsv"):
        return writers.Separated(
            columns=[*columns],
            tabs=out.suffix == ".tsv",
            escape_formulas=escape_formulas,
            labels=score_labels(columns),
        )
    return writers.JsonLines() if out.suffix == ".jsonl" else writers.Parquet(columns)


def read_blocks(model: Predictor, settings: Predict, kept: Mapping[str, str]) -> Iterator[Block]:
    rows = RowsOfFile(read_inputs(model, settings, kept), is_part=False)
    return split_into_blocks(rows, settings.on_error, scores_per_row(model, settings))


def scores_per_row(model: Predictor, settings: Predict) -> int:
    return max(1, TASKS[model.task].load().scores_per_row(model, num_scores(settings, model)))


def read_inputs(model: Predictor, settings: Predict, kept: Mapping[str, str]) -> Iterator[LiveInput]:
    task = TASKS[model.task].load()
    if settings.text is not None:
        inputs: Iterator[LiveInput] = iter([_literal_input(model, settings, kept)])
    elif task.inputs == "questions":
        inputs = read_questions(
            settings.file,
            question=settings.text_column,
            context=settings.pair_column,
            keep=[*kept],
            encoding=settings.encoding,
        )
    else:
        names = resolve_columns(settings.file, settings, model.description.settings)
        # Blocks of a resumable output must depend only on the rows, not on when they arrive.
        inputs = read_texts(settings.file, **names, keep=[*kept], live=settings.out is None, encoding=settings.encoding)
        if task.inputs == "single texts":
            inputs = _require_single(inputs, settings.file, names["text"], "the model reads one")
        inputs = _match_pairs(inputs, settings, names["text"], model)
    return inputs


def _literal_input(model: Predictor, settings: Predict, kept: Iterable[str]) -> ModelInput:
    """The input of --text and --pair. InputError if the model reads pairs and --pair is missing, or the reverse."""
    row = _literal_row(settings)
    kind = TASKS[model.task].load().inputs
    if "pair" not in row and (kind == "questions" or model.reads_pairs):
        raise InputError(
            f"text: this model reads two texts; give the second (the passage of a question) with {flag('pair')}"
        )
    if "pair" in row and (kind == "single texts" or model.reads_pairs is False):
        raise InputError(f"pair: this model reads single texts; leave out {flag('pair')}")
    return ModelInput(row["text"], row.get("pair"), id="0", kept=tuple(row[name] for name in kept))


def _require_single(inputs: Iterator[LiveInput], file: str, column: str | None, reason: str) -> Iterator[LiveInput]:
    """The inputs. InputError if a row has two texts and no setting chooses one of them."""
    for row in inputs:
        if column is None and isinstance(row, ModelInput) and row.pair is not None:
            raise InputError(f"{file}: a row has two texts, and {reason}; name its column with {flag('text_column')}")
        yield row


def _match_pairs(
    inputs: Iterator[LiveInput], settings: Predict, column: str | None, model: Predictor
) -> Iterator[LiveInput]:
    """The inputs, without second texts if Predictor.ignores_pairs. InputError if a row has two texts and the model was
    fine-tuned on single texts, or the reverse."""
    ignores_pairs = model.ignores_pairs(column, settings.pair_column)
    for row in inputs:
        if isinstance(row, ModelInput):
            row = row._replace(pair=None) if ignores_pairs else row
            model.check_pairs(row.pair is not None, settings.file)
        yield row


def score_labels(columns: writers.Columns) -> list[str]:
    """The labels of the column `scores`, if all rows have the same ones."""
    return [*kind] if isinstance(kind := columns.get("scores"), dict) else []


def compute_block(
    compute: BlockFunction, block: Block, settings: Embed | Predict, progress: JobProgress | None = None
) -> tuple[Block, Any]:
    """A block and its results; with on_error "skip" the block without the rows that cannot be computed."""
    while True:
        try:
            results = compute(block.inputs, progress.within_block(len(block)) if progress else None)
            if progress:
                progress.finish_block(len(block))
            return block, results
        except RowsError as error:
            if settings.on_error == "stop":
                index = min(error.rows)
                where = RowLocation(_source(settings), block.row_numbers[index], block.inputs[index].line)
                raise RowError(
                    where, f"{error.rows[index]}, or skip such rows with {flag('on_error', 'skip')}"
                ) from None
            block = block.without(error.rows)
        except InputError as error:
            if not block.row_numbers:
                raise
            first = block.row_numbers[0]
            last = block.row_numbers[-1]
            raise InputError(f"{_source(settings)}: rows {first} to {last}: {error}") from None


def _source(settings: Embed | Predict) -> str:
    """The name of the input in a message."""
    if isinstance(settings, Predict) and settings.text is not None:
        return flag("text")
    return "standard input" if settings.file == "-" else settings.file


def reproduction_facts(settings: Embed | Predict, model: Predictor, threads: int | None = None) -> dict[str, Any]:
    """Everything except the input that a result depends on: settings, model files, hardware and versions. threads: of
    the process that computes; None: of this one."""
    return {
        "verb": type(settings).__name__.lower(),
        "block": block_limits(),
        **{
            name: [*value] if isinstance(value, tuple) else value  # as JSON returns it
            for name, value in asdict(settings).items()
            if name not in IGNORED_SETTINGS
        },
        # The forms of a table must not be mixed: with more labels it once had a column for each.
        **({"top": num_scores(settings, model)} if isinstance(settings, Predict) else {}),
        "model": _fingerprint(Directory(settings.model).path),
        "dtype": model.dtype,
        "device": model.device.partition(":")[0],
        "threads": threads or num_threads(),
        **_library_facts(model.backend.library),
        "bothways": bothways.__version__,
    }


def _library_facts(library: str) -> dict[str, str]:
    """The version of the library that computes, and the instructions of the processor that it uses."""
    if library == "torch":
        import torch

        return {"processor": torch.backends.cpu.get_cpu_capability(), "torch": torch.__version__}
    config: Any = np.show_config(mode="dicts")
    facts = {"processor": " ".join(config["SIMD Extensions"].get("found", [])), "numpy": np.__version__}
    core = find_core()
    if library == "core" and isinstance(core, Core):
        # numpy computes the heads.
        facts |= {"core": f"{core.instruction_set} {library_name(FOLDER, SUFFIX)}"}
    return facts


def _fingerprint(directory: Path) -> str:
    """A hash of a checkpoint's files, 16 hexadecimal digits."""
    digest = hashlib.sha256()
    names = ("*.json", "*.txt", "*.model", "*.safetensors", "*/config.json", "*/*.safetensors")
    files = sorted(file for name in names for file in directory.glob(name) if not file.name.startswith("."))
    if not (directory / WEIGHTS).exists():
        files += sorted(directory.glob(OLD_WEIGHTS))
    for file in files:
        with file.open("rb") as opened:
            digest.update(repr((file.name, hashlib.file_digest(opened, "sha256").hexdigest())).encode())
    return digest.hexdigest()[:16]
