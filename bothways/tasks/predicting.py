"""What a model says of each row of a file of any size, or of standard input: read, worked on and written in blocks,
in input order."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

import bothways
from bothways import checkpoint
from bothways.data.blocks import Block, about_how_many, in_blocks
from bothways.data.streams import Found, Given, known_columns, questions, texts
from bothways.disk import as_json
from bothways.errors import InputError, RowsError
from bothways.predict import Predictor, load
from bothways.settings import Embed, Predict
from bothways.tasks.formats import Format, JsonLines, Npy, Parquet, Row, Vectors, vector_column
from bothways.tasks.progress import lines
from bothways.tasks.rowbar import RowBar
from bothways.tasks.saying import SAY, columns, kind_of
from bothways.tasks.streaming import Journal, refuse, unfinished
from bothways.weights import OLD_WEIGHTS, WEIGHTS

ENDINGS = (".npy", ".parquet", ".jsonl")
# Settings that change no byte of a result, or are compared otherwise.
FREE = ("model", "file", "out", "resume", "on_error", "dtype", "json")


def embed(settings: Embed) -> tuple[Journal, int]:
    """Write a vector a row. What was written, and the size of a vector."""
    refuse(settings.out, ENDINGS, "vectors", resume=settings.resume)
    model = load(settings.model, dtype=settings.dtype)
    model.read_in(settings.window)
    found = texts(settings.file, text=settings.text_column)
    blocks = in_blocks(_single(found, settings.file, settings.text_column, "a vector is of one"), settings.on_error)
    width = int(model.embed([], pooling=settings.pooling).shape[1])

    def say(given: Sequence[Given]) -> Vectors:
        found = [one.text for one in given]
        return model.embed(found, pooling=settings.pooling, normalize=settings.normalize, long=settings.long)

    form = Npy(width) if settings.out.suffix == ".npy" else _table(settings.out, vector_column(width))
    return _write(settings.out, form, blocks, say, settings, model), width


def predict(settings: Predict) -> Journal:
    """Write what the model says of each row (tasks/saying.py) to `out`."""
    assert settings.out is not None
    refuse(settings.out, ENDINGS[1:], "predictions", resume=settings.resume)
    model = load(settings.model, dtype=settings.dtype)
    model.read_in(settings.window)
    form = _table(settings.out, columns(model, settings.top))
    say = _say_of(model, settings)
    return _write(settings.out, form, _blocks(model, settings), say, settings, model)


def printed(settings: Predict) -> Iterator[list[str]]:
    """The same as JSON, a line a row, block by block. With on_error "skip" each begins with the row's number."""
    if settings.resume:
        raise InputError("resume needs a file to go on with; name it with --out")
    model = load(settings.model, dtype=settings.dtype)
    model.read_in(settings.window)
    say = _say_of(model, settings)
    for read in _blocks(model, settings):
        block, rows = _said(say, read, settings)
        for number, why in block.wrong.items():
            lines(f"row {number:,} set aside: {why}")
        numbered = ({"row": number, **row} for number, row in zip(block.numbers, rows, strict=True))
        yield [as_json(row) for row in (numbered if settings.on_error == "skip" else rows)]


def _say_of(model: Predictor, settings: Predict) -> Callable[[Sequence[Given]], list[Row]]:
    """What the model says of rows. InputError where it has no head to say anything with: no fault of a row."""
    kind = kind_of(model)
    if settings.top > 1 and kind != "answers":
        raise InputError(f"top ({settings.top}) is for a model that finds answers; this one gives {kind}")
    told: dict[str, Any] = {"top": settings.top} if kind == "answers" else {}
    say: Callable[[Sequence[Given]], list[Row]] = partial(SAY[kind], model, long=settings.long, **told)
    say([])
    return say


def _table(out: Path, columns: Any) -> Format:
    return JsonLines() if out.suffix == ".jsonl" else Parquet(columns)


def _blocks(model: Predictor, settings: Predict) -> Iterator[Block]:
    if kind_of(model) == "answers":
        found = questions(settings.file, question=settings.text_column, context=settings.pair_column)
    else:
        known = known_columns(settings.file, settings, model.checkpoint.told)
        found = texts(settings.file, **known)
        if kind_of(model) == "entities":
            found = _single(found, settings.file, known["text"], "entities are found in one")
        found = _as_learned(found, settings, known["text"], model)
    return in_blocks(found, settings.on_error)


def _single(found: Iterator[Found], file: str, column: str | None, why: str) -> Iterator[Found]:
    """The same. InputError where rows have two texts, of which one would be left out, and nobody said which."""
    for one in found:
        if column is None and isinstance(one, Given) and one.pair is not None:
            raise InputError(f"{file}: a row has two texts, and {why}; say which with --text-column")
        yield one


def _as_learned(found: Iterator[Found], settings: Predict, column: str | None, model: Predictor) -> Iterator[Found]:
    """The same, of a model of single texts without second ones where one column is named. InputError where a row has
    two texts and the model was fine-tuned on single ones, or the reverse."""
    alone = model.reads_alone(column, settings.pair_column)
    for one in found:
        if isinstance(one, Given):
            one = one._replace(pair=None) if alone else one
            model.refuse_other_texts(one.pair is not None, settings.file)
        yield one


def _write(
    out: Path, form: Format, blocks: Iterator[Block], say: Callable[[Sequence[Given]], Any], settings: Embed | Predict,
    model: Predictor,
) -> Journal:  # fmt: skip
    with unfinished(out, form, _made_with(settings, model), lines) as growing:
        if settings.resume and not growing.journal.blocks:
            lines(f"{out}: nothing to go on from; beginning at the first row")
        growing.catch_up(blocks)
        with RowBar(out.name, total=about_how_many(settings.file), done=growing.journal.rows) as bar:
            for block in blocks:
                growing.add(block, *_said(say, block, settings))
                bar.show(growing.journal.rows)
        return growing.finish()


def _said(say: Callable[[Sequence[Given]], Any], block: Block, settings: Embed | Predict) -> tuple[Block, Any]:
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
    names = ("*.json", "*.txt", "*.model", "*.safetensors", "*/config.json")
    files = sorted(file for name in names for file in directory.glob(name) if not file.name.startswith("."))
    if not (directory / WEIGHTS).exists():
        files += sorted(directory.glob(OLD_WEIGHTS))
    for file in files:
        with file.open("rb") as opened:
            digest.update(repr((file.name, hashlib.file_digest(opened, "sha256").hexdigest())).encode())
    return digest.hexdigest()[:16]
