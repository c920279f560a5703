"""Streaming input: texts and questions from files or standard input, in bounded memory.

A row that cannot be read yields an InputError in its place, so that rows keep their numbers.
"""

import math
import sys
import time
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, count, islice
from pathlib import Path
from select import select
from typing import Any, BinaryIO, NamedTuple, TypeVar

from bothways.base.errors import EmptyInput, InputError, RowError, RowLocation, flag
from bothways.base.paths import as_path
from bothways.settings.tables_in_memory import MemoryTable, TableList, TableSource
from bothways.text.data.annotations import is_annotation_file, text_rows
from bothways.text.data.columns import Columns, find_text_columns, read_text
from bothways.text.data.datasets import HUB_PREFIX, HubDataset, arrow_files, is_dataset, is_text_file
from bothways.text.data.glue import detect_format, format_rows
from bothways.text.data.json_tables import has_questions, is_json_table
from bothways.text.data.squad import question_nodes
from bothways.text.data.tables import TableRow, iter_rows, match_columns
from bothways.text.data.text_encodings import has_ascii_newlines, line_decoder
from bothways.text.data.text_files import ARROW, decoded_lines, decoding_error, file_type, open_file

FIRST_ROWS = 64  # rows that determine which columns hold the texts
MOST_CONSECUTIVE_ERRORS = 10_000  # above this, the file is probably not the intended one
EMPTY_TABLE = "a table has a header and at least one row"
PAUSE = 0.05  # seconds without a new line
LONGEST_WAIT = 0.5  # seconds since the first unanswered line


class ModelInput(NamedTuple):
    """Input of a model: a text, optionally with a second one; or a question, its passage (pair) and its id.

    kept: JSON values of the columns to copy into the result. line: of the file, where the row begins; None without
    lines.
    """

    text: str
    pair: str | None = None
    id: str | None = None
    kept: tuple[Any, ...] = ()
    line: int | None = None


Some = TypeVar("Some")
InputOrError = ModelInput | InputError
LiveInput = InputOrError | None  # None: standard input has no further line yet
RowOrError = tuple[RowLocation, TableRow] | InputError  # (location, values by column)


def read_texts(
    file: str,
    *,
    text: str | None = None,
    pair: str | None = None,
    keep: Sequence[str] = (),
    live: bool = False,
    encoding: str | None = None,
) -> Iterator[LiveInput]:
    """Stream the texts, and second texts if there are any, of a file, dataset or standard input ("-").

    Accepts a .txt (one text per line), a table, a dataset (data/datasets.py) or a GLUE file (data/glue.py).
    text, pair: column names, or several, comma-separated, which are joined; None: found by standard or common names
    (data/columns.py) among the columns of the first 64 rows. encoding: of text files without a byte-order mark; None
    means UTF-8. keep: columns whose values are passed on; "text" for one text per line. live: yield None whenever
    standard input pauses. InputError if the file as a whole cannot be read, EmptyInput if it has no row.
    """
    path = as_path(file)
    if file == "-":
        refuse_column_names("standard input", text, pair)
        yield from _standard_input(keep, live, encoding)
    elif file_format := detect_format(path, encoding):
        names = (file_format.text, pair or file_format.pair) if text is None else (text, pair)
        yield from _by_columns(
            path,
            _errors_in_place(partial(format_rows, path, file_format, encoding=encoding)),
            *names,
            keep,
        )
    elif not is_text_file(path):
        yield from _by_columns(path, _records(path, encoding), text, pair, keep)
    else:
        refuse_column_names(file, text, pair)
        lines = (line.error or _line_input(line.number, line.text, keep) for line in decoded_lines(path, encoding))
        yield from _refuse_empty(path, lines, "a file of texts has one per line")


def refuse_column_names(file: object, text: str | None, pair: str | None) -> None:
    """InputError if a column other than the standard ones is named for a source without columns."""
    for named in (text, pair):
        if named not in (None, "text", "pair"):
            raise InputError(f"{file}: has one text per line and no column {named!r}; give a table, or omit the column")


def has_lines(file: str) -> bool:
    """Whether the rows of a file, or of standard input ("-"), are at lines of it."""
    path = as_path(file)
    return file == "-" or not (is_dataset(path) or file_type(path) in (".parquet", ARROW, ".json"))


def first_columns(file: str | TableSource, encoding: str | None = None) -> Sequence[str]:
    """The column names in the first readable rows of a table, or of a GLUE file; [] for a .txt and "-"."""
    path = as_path(file) if isinstance(file, str) else file
    if file == "-":
        return []
    if isinstance(path, Path) and (file_format := detect_format(path, encoding)):
        return file_format.columns
    if is_text_file(path):
        return []
    return _column_names(_records(path, encoding), FIRST_ROWS, [])


def first_rows(file: TableSource, encoding: str | None = None) -> list[TableRow]:
    return [*islice((record[1] for record in _records(file, encoding) if isinstance(record, tuple)), FIRST_ROWS)]


def _column_names(records: Iterable[RowOrError], limit: int | None, errors: list[InputError]) -> list[str]:
    """The column names in the first readable rows; the first error of the others is added to `errors`."""

    def rows() -> Iterator[TableRow]:
        for record in records:
            if not isinstance(record, InputError):
                yield record[1]
            elif not errors:
                errors.append(record)

    return list(dict.fromkeys(name for row in islice(rows(), limit) for name in row))


def all_columns(file: str, encoding: str | None = None) -> list[str]:
    """The names of all columns; "text" for one text per line.

    JSON lines are read to the end, since any row may add a column. InputError, the error of the first row, if no
    row can be read.
    """
    path = as_path(file)
    if file != "-" and file_type(path) == ".json" and not is_json_table(path):
        return ["id", "question", "context"]
    if file != "-" and (file_format := detect_format(path, encoding)):
        return [*file_format.columns]
    if file == "-" or is_text_file(path):
        return ["text"]
    errors: list[InputError] = []
    records = _refuse_empty(path, _records(path, encoding), EMPTY_TABLE)
    names = _column_names(records, None if file_type(path) == ".jsonl" else FIRST_ROWS, errors)
    if errors and not names:
        raise errors[0]
    return names


def resolve_columns(
    file: str | TableSource, settings: object, trained: Mapping[str, Any], roles: Sequence[str] = ("text", "pair")
) -> dict[str, str | None]:
    """For each role, the column that `settings` name as ROLE_column, else the one in `trained`, if the file has it.

    trained: the columns that the model was fine-tuned with.
    """
    named = {role: getattr(settings, f"{role}_column", None) for role in roles}
    learned = {role: trained.get(f"{role}_column") for role in roles}
    needs_columns = any(learned[role] and not named[role] for role in roles)
    existing = first_columns(file, getattr(settings, "encoding", None)) if needs_columns else []
    return {
        role: named[role] or (learned[role] if match_columns(learned[role] or "", existing) else None) for role in roles
    }


def read_questions(
    file: str,
    *,
    question: str | None = None,
    context: str | None = None,
    keep: Sequence[str] = (),
    encoding: str | None = None,
) -> Iterator[InputOrError]:
    """Stream questions and passages of a table or dataset, or of SQuAD's .json, with or without answers.

    Tables have columns question and context, or those named, and optionally id; the default id is the row number.
    InputError: see `read_texts`.
    """
    path = as_path(file)
    if file == "-":
        raise InputError("questions need passages; name a table with columns question and context, or SQuAD's JSON")
    if file_type(path) == ".json" and not has_questions(path):
        nodes = _refuse_empty(path, question_nodes(path), "SQuAD's JSON has at least one question")
        yield from (_squad_question(*one, number, keep) for number, one in enumerate(nodes))
        return
    names = question or "question", context or "context"
    records = enumerate(_refuse_empty(path, _records(path, encoding), "a table of questions has one per row"))
    yield from (_question(record, names, number, keep) for number, record in records)


def _question(record: RowOrError, names: tuple[str, str], number: int, keep: Sequence[str]) -> InputOrError:
    if isinstance(record, InputError):
        return record
    where, row = record
    columns = [match_columns(name, row.keys()) for name in names]
    if missing := [name for name, keys in zip(names, columns, strict=True) if all(row[key] is None for key in keys)]:
        existing = ", ".join(row)
        advice = f"name it with {flag('text_column')} or {flag('pair_column')}"
        return RowError(where, f"no {missing[0]!r} (there are: {existing}); {advice}")
    model_input = _model_input(where, row, columns, keep)
    question_id = number if row.get("id") is None else row["id"]
    return model_input if isinstance(model_input, InputError) else model_input._replace(id=str(question_id))


def _squad_question(where: RowLocation, question: Any, passage: Any, number: int, keep: Sequence[str]) -> InputOrError:
    """A question of SQuAD's JSON; its answers are ignored."""
    fields = [(question, "id"), (question, "question"), (passage, "context")]
    row = {key: node[key] for node, key in fields if isinstance(node, Mapping) and node.get(key) is not None}
    if missing := [key for key in ("question", "context") if key not in row]:
        return RowError(where, f"no {missing[0]!r}; add it")
    return _question((where, row), ("question", "context"), number, keep)


def _standard_input(keep: Sequence[str], live: bool, encoding: str | None) -> Iterator[LiveInput]:
    if sys.stdin is None:
        raise InputError("standard input is closed; name a file, or send lines to it")
    if encoding is not None and not has_ascii_newlines(encoding):
        raise InputError(
            f"encoding ({encoding}) is not supported for standard input; name a file, or convert the text first"
        )

    decode = line_decoder(encoding)
    lines: Iterable[bytes | None] = _live_lines(sys.stdin.buffer) if live else sys.stdin.buffer
    number = 0
    for line in lines:
        if line is None:
            yield None
            continue

        number += 1
        line = line.removeprefix(BOM_UTF8) if number == 1 else line
        try:
            yield _line_input(number, decode(line).rstrip("\r\n"), keep)
        except UnicodeDecodeError as error:
            yield decoding_error(f"line {number} of standard input", line, f"byte {error.start}", encoding)


def _line_input(number: int, text: str, keep: Sequence[str]) -> ModelInput:
    return ModelInput(text, kept=(text,) if keep else (), line=number)


def _live_lines(file: Any) -> Iterator[bytes | None]:
    """The lines of a binary file, with None when the lines so far should be processed without waiting for more."""
    parts: list[bytes] = []  # parts of a line whose end has not arrived yet
    first_line_time: float | None = None  # arrival of the first line since the last None
    while chunk := file.read1(1 << 16):
        first_line_time = first_line_time or time.monotonic()
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            yield b"".join((*parts, end))
            parts.clear()
        parts.append(rest)
        wait = min(PAUSE, first_line_time + LONGEST_WAIT - time.monotonic())
        if not _is_readable(file, max(0.0, wait)):
            yield None
            first_line_time = None
    if last := b"".join(parts):
        yield last


def _is_readable(file: BinaryIO, seconds: float) -> bool:
    """Whether data or the end of the file arrives within this time; True if the system cannot tell."""
    try:
        return bool(select([file], [], [], seconds)[0])
    except (OSError, ValueError):  # not a system file, or a pipe on Windows
        return True


def _by_columns(
    path: Path, records: Iterable[RowOrError], text: str | None, pair: str | None, keep: Sequence[str]
) -> Iterator[InputOrError]:
    """The texts in the columns found in the first rows.

    A later row whose additional columns would change that choice yields an error.
    """
    pair = None if pair == "pair" else pair  # the standard name is allowed without such a column
    records = _refuse_empty(path, records, EMPTY_TABLE)
    first_rows = list(islice(records, FIRST_ROWS))
    columns = dict.fromkeys(name for record in first_rows if not isinstance(record, InputError) for name in record[1])
    chosen = find_text_columns(path, list(columns), text, pair) if columns else None

    for record in chain(first_rows, records):
        if isinstance(record, InputError):
            yield record
            continue

        where, row = record
        if chosen is None or not row.keys() <= columns.keys():
            wider = columns | dict.fromkeys(row)
            if chosen and _find_or_none(path, wider, text, pair) != chosen:
                new_columns = ", ".join(row.keys() - columns.keys())
                yield RowError(
                    where, f"has {new_columns}, which no earlier row has; fix the row, or add it to all rows"
                )
                continue
            chosen = chosen or find_text_columns(path, list(wider), text, pair)
            columns = wider
        yield _model_input(where, row, chosen, keep)


def _find_or_none(
    path: Path, columns: Iterable[str], text: str | None, pair: str | None
) -> tuple[Columns, Columns | None] | None:
    try:
        return find_text_columns(path, list(columns), text, pair)
    except InputError:  # ambiguous with these columns
        return None


def _model_input(
    where: RowLocation, row: TableRow, names: Sequence[Columns | None], keep: Sequence[str]
) -> ModelInput | InputError:
    try:
        kept_values = tuple(_json_value(where, name, row.get(name)) for name in keep) if keep else ()
        text, *second = (read_text(where, row, name) for name in names if name is not None)
        return ModelInput(text, second[0] if second else None, kept=kept_values, line=where.line)
    except InputError as error:
        return error.with_traceback(None)  # the traceback would keep the row in memory
    except RecursionError:
        return RowError(where, "a value to keep is nested too deeply; name other columns")


def _json_value(where: str, column: str, value: Any) -> Any:
    """A value of a column as JSON: null for non-finite numbers, text for dates and decimals."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Mapping):
        return {str(name): _json_value(where, column, inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(where, column, inner) for inner in value]
    if isinstance(value, bytes):
        advice = f"name other columns with {flag('keep_columns')}"
        raise RowError(where, f"{column!r} holds bytes, which JSON cannot; {advice}")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _records(path: TableSource, encoding: str | None) -> Iterator[RowOrError]:
    """The rows of a table or MemoryTable, of `hf:NAME[:CONFIG][@SPLIT]`, a saved dataset or a list in a .json."""
    if isinstance(path, TableList):
        for part in path.parts:
            yield from _records(part, encoding)
        return

    if isinstance(path, MemoryTable):
        yield from _errors_in_place(partial(iter_rows, path))
        return

    if path.as_posix().startswith(HUB_PREFIX):
        yield from HubDataset.parse(path.as_posix()).rows()
        return

    if is_annotation_file(path):
        yield from text_rows(path)
        return

    part_of = path, count()
    for file in (arrow_files(path) if path.is_dir() else None) or [path]:
        open_file(file).close()
        yield from _errors_in_place(partial(iter_rows, file, encoding=encoding, part_of=part_of))


def _errors_in_place(read: Callable[..., Iterator[tuple[RowLocation, TableRow]]]) -> Iterator[RowOrError]:
    """The rows that read(on_row_error=...) yields, with its errors in their places."""
    errors: list[InputError] = []

    def on_row_error(error: InputError) -> None:
        errors.append(error)
        if len(errors) == MOST_CONSECUTIVE_ERRORS:
            raise InputError(
                f"{errors[0]}; {MOST_CONSECUTIVE_ERRORS:,} rows in a row cannot be read; is this the right file?"
            )

    for record in read(on_row_error=on_row_error):
        yield from errors
        errors.clear()
        yield record
    yield from errors


def _refuse_empty(path: Path, items: Iterable[Some], expected: str) -> Iterator[Some]:
    is_empty = True
    for item in items:
        is_empty = False
        yield item
    if is_empty:
        raise EmptyInput(f"{path}: empty; {expected}")
