"""What a model says of each row of a file or of standard input: one dictionary a row, in input order."""

import sys
from collections.abc import Iterator
from dataclasses import asdict
from itertools import repeat
from pathlib import Path
from typing import Any

from bothways.data.examples import read_table
from bothways.data.files import kind_of
from bothways.data.labelled import labelled_rows
from bothways.data.order import blocks
from bothways.data.squad import read_squad
from bothways.errors import InputError
from bothways.predict import Predictor, load
from bothways.settings import Embed, Predict

BLOCK = 4096  # rows read before they are predicted
Row = dict[str, Any]


def rows(settings: Predict) -> Iterator[Row]:
    """label, score and scores of a classifier (labels, where a text may have several); score of a regression model;
    entities; or id, answer, start, end and score."""
    model = load(settings.model, dtype=settings.dtype)
    if "spans" in model.module.num_outputs:
        for asked in blocks(questions_of(settings), BLOCK):
            yield from answers(model, asked, settings)
        return
    say = tags if "tokens" in model.module.num_outputs else numbers if is_regression(model) else labels
    for block in blocks(texts_of(settings), BLOCK):
        yield from say(model, block, settings)


def is_regression(model: Predictor) -> bool:
    return "classes" in model.module.num_outputs and not model.labels


def labels(model: Predictor, block: list[tuple[str, str | None]], settings: Predict) -> Iterator[Row]:
    for found in model.classify([text for text, _ in block], pairs_of(block), long=settings.long):
        several = {"labels": list(found.labels)} if model.checkpoint.several else {}
        yield {"label": found.label, **several, "score": found.score, "scores": found.scores}


def numbers(model: Predictor, block: list[tuple[str, str | None]], settings: Predict) -> Iterator[Row]:
    for number in model.score([text for text, _ in block], pairs_of(block), long=settings.long).tolist():
        yield {"score": number}


def tags(model: Predictor, block: list[tuple[str, str | None]], settings: Predict) -> Iterator[Row]:
    for found in model.tag([text for text, _ in block], long=settings.long):
        yield {"entities": [asdict(entity) for entity in found]}


def answers(model: Predictor, asked: list[tuple[str, str, str]], settings: Predict) -> Iterator[Row]:
    found = model.answers(
        [question for _, question, _ in asked], [passage for _, _, passage in asked], long=settings.long
    )
    for (id, _, _), (best, *_) in zip(asked, found, strict=True):
        yield {"id": id, "answer": best.text, "start": best.start, "end": best.end, "score": best.score}


def pairs_of(block: list[tuple[str, str | None]]) -> list[str] | None:
    return [pair for _, pair in block if pair is not None] or None


def texts_of(settings: Predict | Embed) -> Iterator[tuple[str, str | None]]:
    """(text, pair) in input order, of a file or of the lines of standard input."""
    if settings.file == "-":
        for number, line in enumerate(sys.stdin.buffer, 1):
            try:
                yield line.decode().rstrip("\r\n"), None
            except UnicodeDecodeError as error:
                where = f"line {number} of standard input"
                raise InputError(f"{where}: not UTF-8 at byte {error.start}; convert it first") from None
        return
    pair = settings.pair_column if isinstance(settings, Predict) else None
    table = read_table(Path(settings.file), text=settings.text_column, pair=pair, need_labels=False)
    yield from zip(table.texts, table.pairs or repeat(None, len(table)), strict=True)


def questions_of(settings: Predict) -> Iterator[tuple[str, str, str]]:
    """(id, question, passage) of SQuAD's JSON, or of a table with columns question and context."""
    if settings.file == "-":
        raise InputError("questions need passages; name a table with columns question and context, or SQuAD's JSON")
    path = Path(settings.file)
    if kind_of(path) == ".json":
        yield from ((one.id, one.question, one.context) for one in read_squad(path, on_error="skip"))
        return
    table = labelled_rows(path)
    for number, (where, row) in enumerate(table):
        names = settings.text_column or "question", settings.pair_column or "context"
        if absent := [name for name in names if row.get(name) is None]:
            there = ", ".join(row)
            raise InputError(
                f"{where}: no {absent[0]!r} (there are: {there}); name it with --text-column or --pair-column"
            )
        yield str(row.get("id", number)), str(row[names[0]]), str(row[names[1]])
