"""What a model says of each row of a file of any size, or of standard input: read, worked on and written in blocks,
in input order."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

import bothways
from bothways.batch_jobs.blocks import Block, about_how_many, in_blocks
from bothways.batch_jobs.journal import Journal, refuse, unfinished
from bothways.batch_jobs.rows import PREDICT_ROWS, columns, predict_labels
from bothways.batch_jobs.writers import Format, JsonLines, Npy, Parquet, ResultRow, Separated, Vectors, vector_column
from bothways.checkpoint import checkpoint
from bothways.checkpoint.weights import OLD_WEIGHTS, WEIGHTS
from bothways.data.datasets import arrow_files
from bothways.data.files import ARROW
from bothways.data.stream import LiveInput, ModelInput, all_columns, read_questions, read_texts, resolve_columns
from bothways.data.tables import read_schema
from bothways.errors import InputError, RowsError
from bothways.inference.load import load
from bothways.inference.predictor import Predictor
from bothways.log import ProgressBar, logger
from bothways.settings import Embed, Predict

VECTORS, PREDICTIONS = (".npy", ".parquet", ".jsonl"), (".parquet", ".jsonl", ".csv", ".tsv")  # endings of files
# Settings that change no byte of a result, or are compared otherwise.
FREE = ("model", "file", "text", "pair", "out", "resume", "on_error", "dtype", "json")


def embed(settings: Embed) -> tuple[Journal, int]:
    """Write a vector a row. What was written, and the size of a vector."""
    refuse(settings.out, VECTORS, "vectors", resume=settings.resume)
    model = load(settings.model, dtype=settings.dtype, window=settings.window)
    learned = {} if settings.text_column else model.checkpoint.settings
    known = resolve_columns(settings.file, settings, learned)
    found = read_texts(settings.file, text=known["text"], pair=known["pair"], encoding=settings.encoding)
    blocks = in_blocks(_single(found, settings.file, settings.text_column, "a vector is of one"), settings.on_error)
    width = int(model.embed([], pooling=settings.pooling).shape[1])

    def say(given: Sequence[ModelInput]) -> Vectors:
        found = [one.text for one in given]
        return model.embed(found, pooling=settings.pooling, normalize=settings.normalize, long=settings.long)

    form = Npy(width) if settings.out.suffix == ".npy" else _table(settings.out, vector_column(width))
    return _write(settings.out, form, blocks, say, settings, model), width


def predict(settings: Predict) -> Journal:
    """Write what the model says of each row (tasks/saying.py) to `out`."""
    assert settings.out is not None
    refuse(settings.out, PREDICTIONS, "predictions", resume=settings.resume)
    model = load(settings.model, dtype=settings.dtype, window=settings.window)
    keep = _keep(settings, model)
    say = _say_of(model, settings, keep)
    form = _table(settings.out, _columns(model, settings, keep), settings.escape_formulas)
    return _write(settings.out, form, _blocks(model, settings, keep), say, settings, model)


def printed(settings: Predict) -> Iterator[list[ResultRow]]:
    """The same row by row, a block at a time; of standard input, whatever is there. With on_error "skip" each begins
    with the row's number."""
    if settings.resume:
        raise InputError("resume needs a file to go on with; name it with --out")
    model = load(settings.model, dtype=settings.dtype, window=settings.window)
    keep = _keep(settings, model)
    say = _say_of(model, settings, keep)
    for read in _blocks(model, settings, keep):
        block, rows = _said(say, read, settings)
        for number, why in block.wrong.items():
            logger.warning(f"row {number:,} set aside: {why}")
        numbered = ({"row": number, **row} for number, row in zip(block.numbers, rows, strict=True))
        yield [*numbered] if settings.on_error == "skip" else rows


def _keep(settings: Predict, model: Predictor) -> dict[str, str]:
    """The columns that go along into the result, with their names there: input_NAME where the result has that name."""
    if settings.keep_columns is None:
        return {}
    there = [*_literal(settings)] if settings.text is not None else all_columns(settings.file, settings.encoding)
    names = there if settings.keep_columns == "all" else [settings.keep_columns]
    if settings.keep_columns not in ("all", *there):
        names = [name.strip() for name in settings.keep_columns.split(",")]
    if absent := [name for name in names if name not in there]:
        where = settings.file if settings.text is None else "--text"
        raise InputError(f"{where}: no column {absent[0]!r} to keep (there are: {', '.join(there)}); name others")
    taken = {"row", *columns(model, settings.top).names}
    if model.task == "answer":  # whose id is the question's own
        names = [name for name in names if name != "id"]
    kept: dict[str, str] = {}
    for name in sorted(names, key=taken.__contains__):  # those that keep their names first
        kept[name] = name
        while kept[name] in taken:
            kept[name] = f"input_{kept[name]}"
        taken.add(kept[name])
    return {name: kept[name] for name in names}


def _literal(settings: Predict) -> ResultRow:
    """The row that stands on the command line."""
    return {"text": settings.text} | ({} if settings.pair is None else {"pair": settings.pair})


def _columns(model: Predictor, settings: Predict, keep: Mapping[str, str]) -> Any:
    """The types of a result's columns, a pyarrow.Schema. Numbers of a Parquet or Arrow file keep their types; what else
    goes along is text, or JSON."""
    import pyarrow

    path = Path(settings.file)
    files = (arrow_files(path) if path.is_dir() else None) or [path]
    known = read_schema(files[0]) if keep and files[0].suffix in (".parquet", ARROW) else pyarrow.schema([])
    types, kinds = pyarrow.types, {field.name: field.type for field in known}

    def type_of(name: str) -> Any:
        kind = kinds.get(name, pyarrow.string())
        is_number = types.is_integer(kind) or types.is_float32(kind) or types.is_float64(kind)
        return kind if is_number or types.is_boolean(kind) else pyarrow.string()

    return pyarrow.schema([*((own, type_of(name)) for name, own in keep.items()), *columns(model, settings.top)])


def _say_of(
    model: Predictor, settings: Predict, keep: Mapping[str, str]
) -> Callable[[Sequence[ModelInput]], list[ResultRow]]:
    """What the model says of rows, behind what is kept of them. InputError where it has no head to say anything with:
    no fault of a row."""
    if settings.top is not None and model.task in ("regress", "tag"):
        raise InputError(f"top ({settings.top}) is for labels and answers; the task of this model is {model.task}")
    told: dict[str, Any] = {} if settings.top is None else {"top": settings.top}
    say: Callable[[Sequence[ModelInput]], list[ResultRow]] = partial(
        PREDICT_ROWS.get(model.task, predict_labels), model, long=settings.long, **told
    )
    say([])
    if not keep:
        return say

    def with_kept(given: Sequence[ModelInput]) -> list[ResultRow]:
        kept = (dict(zip(keep.values(), one.kept, strict=True)) for one in given)
        return [{**before, **row} for before, row in zip(kept, say(given), strict=True)]

    return with_kept


def _table(out: Path, columns: Any, escape_formulas: bool = False) -> Format:
    if out.suffix in (".csv", ".tsv"):
        return Separated(columns.names, out.suffix == ".tsv", escape_formulas)
    return JsonLines() if out.suffix == ".jsonl" else Parquet(columns)


def _blocks(model: Predictor, settings: Predict, keep: Mapping[str, str]) -> Iterator[Block]:
    if settings.text is not None:
        found: Iterator[LiveInput] = iter([_asked(model, settings, keep)])
    elif model.task == "answer":
        found = read_questions(
            settings.file,
            question=settings.text_column,
            context=settings.pair_column,
            keep=[*keep],
            encoding=settings.encoding,
        )
    else:
        known = resolve_columns(settings.file, settings, model.checkpoint.settings)
        # Blocks of a file to go on with are a function of the text alone, never of when it comes.
        found = read_texts(settings.file, **known, keep=[*keep], live=settings.out is None, encoding=settings.encoding)
        if model.task == "tag":
            found = _single(found, settings.file, known["text"], "entities are found in one")
        found = _as_learned(found, settings, known["text"], model)
    scores = len(model.labels) if model.task == "classify" and settings.top is None else 0
    return in_blocks(found, settings.on_error, max(1, scores))


def _asked(model: Predictor, settings: Predict, keep: Iterable[str]) -> ModelInput:
    """The text on the command line. InputError where the model reads pairs and it is alone, or the reverse."""
    row = _literal(settings)
    if "pair" not in row and (model.task == "answer" or model.reads_pairs):
        raise InputError("text: this model reads two; give the second, of a question its passage, with --pair")
    if "pair" in row and (model.task == "tag" or model.reads_pairs is False):
        raise InputError("pair: this model reads single texts; leave out --pair")
    return ModelInput(row["text"], row.get("pair"), id="0", kept=tuple(row[name] for name in keep))


def _single(found: Iterator[LiveInput], file: str, column: str | None, why: str) -> Iterator[LiveInput]:
    """The same. InputError where rows have two texts, of which one would be left out, and nobody said which."""
    for one in found:
        if column is None and isinstance(one, ModelInput) and one.pair is not None:
            raise InputError(f"{file}: a row has two texts, and {why}; say which with --text-column")
        yield one


def _as_learned(
    found: Iterator[LiveInput], settings: Predict, column: str | None, model: Predictor
) -> Iterator[LiveInput]:
    """The same, of a model of single texts without second ones where one column is named. InputError where a row has
    two texts and the model was fine-tuned on single ones, or the reverse."""
    alone = model.ignores_pairs(column, settings.pair_column)
    for one in found:
        if isinstance(one, ModelInput):
            one = one._replace(pair=None) if alone else one
            model.check_pairs(one.pair is not None, settings.file)
        yield one


def _write(
    out: Path, form: Format, blocks: Iterator[Block], say: Callable[[Sequence[ModelInput]], Any],
    settings: Embed | Predict, model: Predictor,
) -> Journal:  # fmt: skip
    with unfinished(out, form, _made_with(settings, model)) as growing:
        if settings.resume and not growing.journal.blocks:
            logger.info(f"{out}: nothing to go on from; beginning at the first row")
        growing.catch_up(blocks)
        with ProgressBar(out.name, about_how_many(settings.file), done=growing.journal.rows, unit="rows") as bar:
            for block in blocks:
                growing.add(block, *_said(say, block, settings))
                bar.update(growing.journal.rows)
        return growing.finish()


def _said(say: Callable[[Sequence[ModelInput]], Any], block: Block, settings: Embed | Predict) -> tuple[Block, Any]:
    """What is said of a block's rows; with on_error "skip" the block without those of which nothing can be said."""
    while True:
        try:
            return block, say(block.given)
        except RowsError as error:
            if settings.on_error == "stop":
                place = min(error.rows)
                raise InputError(
                    f"row {block.numbers[place]:,}, counted from 0: {error.rows[place]}, or set such rows aside with "
                    "--on-error skip"
                ) from None
            block = block.without(error.rows)
        except InputError as error:
            if not block.numbers:
                raise
            first, last = block.numbers[0], block.numbers[-1]
            raise InputError(f"of rows {first:,} to {last:,}, counted from 0, {error}") from None


def _made_with(settings: Embed | Predict, model: Predictor) -> dict[str, Any]:
    """What else decides a result's bytes: settings, the model's files, and with what it is computed."""
    given = {name: value for name, value in asdict(settings).items() if name not in FREE}
    return {
        "verb": type(settings).__name__.lower(),
        **given,
        "model": _fingerprint(checkpoint.find(settings.model)),
        "dtype": str(model.dtype),
        "device": model.device.type,
        "processor": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "bothways": bothways.__version__,
    }


def _fingerprint(directory: Path) -> str:
    """Names a checkpoint: a hash of its files, 16 hexadecimal digits."""
    digest = hashlib.sha256()
    names = ("*.json", "*.txt", "*.model", "*.safetensors", "*/config.json", "*/*.safetensors")
    files = sorted(file for name in names for file in directory.glob(name) if not file.name.startswith("."))
    if not (directory / WEIGHTS).exists():
        files += sorted(directory.glob(OLD_WEIGHTS))
    for file in files:
        with file.open("rb") as opened:
            digest.update(repr((file.name, hashlib.file_digest(opened, "sha256").hexdigest())).encode())
    return digest.hexdigest()[:16]
