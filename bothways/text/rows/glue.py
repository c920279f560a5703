"""GLUE (Wang 2018): the published files, some recognized only by their first line; and SICK.

All files are tab-separated, whatever their extension, and quotes are ordinary characters. CoLA, STS-B and QQP may lack
a header, STS-B rows have seven or nine columns, and MRPC (with a byte-order mark) and SICK come as .txt. SICK (Marelli
2014) is not part of GLUE, but can replace MNLI.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from bothways.base.errors import RowError, RowLocation, format_count
from bothways.settings.tables_in_memory import RowOrError
from bothways.text.rows.text_files import decoded_lines, file_type

Values = Sequence[str]  # the values of a line


@dataclass(frozen=True)
class FileFormat:
    """A file format recognized by its first line: its columns, of which the last ones may be missing.

    text, pair, label: the columns that are read if none are named. fewest: columns in a row.
    """

    task: str
    columns: Values
    fits: Callable[[Values], bool]
    text: str
    pair: str | None
    label: str
    fewest: int


def _cola(values: Values) -> bool:
    return len(values) == 4 and values[1] in ("0", "1")


def _stsb(values: Values) -> bool:
    return len(values) in (7, 9) and values[4].replace(".", "", 1).isdecimal() and float(values[4]) <= 5


def _qqp(values: Values) -> bool:
    return len(values) == 6 and all(value.isdecimal() for value in values[:3]) and values[5] in ("0", "1")


_STSB = ("genre", "file", "year", "number", "score", "sentence1", "sentence2", "source1", "source2")
_QQP = ("id", "qid1", "qid2", "question1", "question2", "is_duplicate")
_MRPC = ("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String")
_SICK = ("pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment")
FORMATS = (
    FileFormat(
        task="CoLA",
        columns=("source", "label", "mark", "sentence"),
        fits=_cola,
        text="sentence",
        pair=None,
        label="label",
        fewest=4,
    ),
    FileFormat(
        task="STS-B",
        columns=_STSB,
        fits=_stsb,
        text="sentence1",
        pair="sentence2",
        label="score",
        fewest=7,
    ),
    FileFormat(
        task="QQP",
        columns=_QQP,
        fits=_qqp,
        text="question1",
        pair="question2",
        label="is_duplicate",
        fewest=6,
    ),
    FileFormat(
        task="MRPC",
        columns=_MRPC,
        fits=lambda values: tuple(values) == _MRPC,
        text="#1 String",
        pair="#2 String",
        label="Quality",
        fewest=5,
    ),
    FileFormat(
        task="SICK",
        columns=_SICK,
        fits=lambda values: tuple(values) == _SICK,
        text="sentence_A",
        pair="sentence_B",
        label="entailment_judgment",
        fewest=5,
    ),
)


def detect_format(path: Path, encoding: str | None = None) -> FileFormat | None:
    """The format in FORMATS that matches the first line of a file, if any."""
    if file_type(path) not in (".tsv", ".csv", ".txt") or not path.is_file():
        return None
    for line in decoded_lines(path, encoding):
        values = line.text.split("\t")
        return next((file_format for file_format in FORMATS if file_format.fits(values)), None)
    return None


def format_rows(path: Path, file_format: FileFormat, encoding: str | None = None) -> Iterator[RowOrError]:
    """(location, values by column) of each row of a file in this format, or its error."""
    numbers = count()
    for line in decoded_lines(path, encoding):
        values = line.text.split("\t")
        if not line.error and (not line.text or tuple(values) == file_format.columns):  # the header, if there is one
            continue

        where = RowLocation(path, next(numbers), line.number)
        if line.error:
            yield line.error
        elif len(values) not in (file_format.fewest, len(file_format.columns)):
            expected = " or ".join(map(str, sorted({file_format.fewest, len(file_format.columns)})))
            found = format_count(len(values), "column")
            yield RowError(where, f"{found} where {file_format.task} has {expected}; fix the line")
        else:
            row = dict(zip(file_format.columns, values, strict=False))
            yield where.with_id(row), row
