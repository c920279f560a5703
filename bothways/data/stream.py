"""Texts of a file of any size, one after another, in memory that does not grow with the file.

Where a row cannot be read, the error that says why stands in its place, so that rows keep their numbers.
"""

import math
import sys
import time
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from select import select
from typing import Any, BinaryIO, NamedTuple, TypeVar

from bothways.data.columns import Columns, find_text_columns, read_text
from bothways.data.datasets import HUB_PREFIX, HubDataset, arrow_files, is_text_file
from bothways.data.files import decoded_lines, decoding_error, file_type, open_file
from bothways.data.glue import detect_format, format_rows
from bothways.data.squad import question_nodes
from bothways.data.tables import TableRow, iter_rows, match_columns
from bothways.data.text_encodings import has_ascii_newlines, line_decoder
from bothways.errors import InputError
from bothways.tables_in_memory import MemoryTable, TableSource

FIRST_ROWS = 64  # whose columns decide which hold the texts
MOST_CONSECUTIVE_ERRORS = 10_000  # no file of ours
PAUSE, LONGEST_WAIT = 0.05, 0.5  # seconds: without a new line, and since the first line that waits for an answer


class ModelInput(NamedTuple):
    """What a model is asked about: a text, perhaps with a second one; or a question, its passage (pair) and its id.

    kept: values of the columns that go along into the result, as JSON has them.
    """

    text: str
    pair: str | None = None
    id: str | None = None
    kept: tuple[Any, ...] = ()


Some = TypeVar("Some")
InputOrError = ModelInput | InputError
LiveInput = InputOrError | None  # None: the next line of standard input is not there yet
RowOrError = tuple[str, TableRow] | InputError  # 'file:line' and columns by name


def read_texts(
    file: str,
    *,
    text: str | None = None,
    pair: str | None = None,
    keep: Sequence[str] = (),
    live: bool = False,
    encoding: str | None = None,
) -> Iterator[LiveInput]:
    """The texts, with second ones where there are any, of a .txt (one a line), a table, a dataset (data/datasets.py), a
    file of GLUE (data/glue.py), or of the lines of standard input, "-".

    text, pair: names of columns; None: found by their usual names (data/columns.py) among those of the first 64 rows.
    Several between commas are read together. encoding: of text files without a byte-order mark; None: UTF-8.
    keep: columns whose values go along; of a text a line, "text". live: None stands wherever standard input pauses.
    InputError where the file as a whole cannot be read, and where it is empty.
    """
    path = Path(file)
    if file == "-":
        refuse_column_names("standard input", text, pair)
        yield from _standard_input(keep, live, encoding)
    elif look := detect_format(path, encoding):
        names = (look.text, pair or look.pair) if text is None else (text, pair)
        yield from _by_columns(
            path, _errors_in_place(partial(format_rows, path, look, encoding=encoding)), *names, keep
        )
    elif not is_text_file(path):
        yield from _by_columns(path, _records(path, encoding), text, pair, keep)
    else:
        refuse_column_names(file, text, pair)
        lines = (line.wrong or _line_input(line.text, keep) for line in decoded_lines(path, encoding))
        yield from _refuse_empty(path, lines, "a file of texts holds one a line")


def refuse_column_names(file: object, text: str | None, pair: str | None) -> None:
    """InputError where a column is named of what has none, but our own names."""
    for named in (text, pair):
        if named not in (None, "text", "pair"):
            raise InputError(f"{file}: holds a text a line, and no column {named!r}; give a table, or name no column")


def first_columns(file: str | TableSource, encoding: str | None = None) -> Sequence[str]:
    """Names of the columns of a table's first rows that can be read, or of a file of GLUE; none of a .txt, of "-"."""
    path = Path(file) if isinstance(file, str) else file
    if file == "-":
        return []
    if isinstance(path, Path) and (look := detect_format(path, encoding)):
        return look.columns
    if is_text_file(path):
        return []
    first_rows = islice((one[1] for one in _records(path, encoding) if not isinstance(one, InputError)), FIRST_ROWS)
    return list(dict.fromkeys(name for row in first_rows for name in row))


def all_columns(file: str, encoding: str | None = None) -> list[str]:
    """Names of all columns; a file of a text a line has a column "text". JSON lines are read to their end for it, since
    any row may have a new one."""
    path = Path(file)
    if file != "-" and file_type(path) == ".json":
        return ["id", "question", "context"]
    if file == "-" or (is_text_file(path) and not detect_format(path, encoding)):
        return ["text"]
    if file_type(path) != ".jsonl":
        return [*first_columns(file, encoding)]
    rows = (one[1] for one in _records(path, encoding) if not isinstance(one, InputError))
    return list(dict.fromkeys(name for row in rows for name in row))


def resolve_columns(
    file: str | TableSource, told: object, learned: Mapping[str, Any], uses: Sequence[str] = ("text", "pair")
) -> dict[str, str | None]:
    """The columns of each use that `told` names as USE_column; else those `learned` from by that name, if the file
    has them."""
    given = {use: getattr(told, f"{use}_column", None) for use in uses}
    before = {use: learned.get(f"{use}_column") for use in uses}
    wanted = any(before[use] and not given[use] for use in uses)
    there = first_columns(file, getattr(told, "encoding", None)) if wanted else []
    return {use: given[use] or (before[use] if match_columns(before[use] or "", there) else None) for use in uses}


def read_questions(
    file: str,
    *,
    question: str | None = None,
    context: str | None = None,
    keep: Sequence[str] = (),
    encoding: str | None = None,
) -> Iterator[InputOrError]:
    """Questions and passages of a table or dataset with columns question and context (or those named), and id if there
    is one, else the row's number; or of SQuAD's .json, with answers or without. InputError as of texts."""
    path = Path(file)
    if file == "-":
        raise InputError("questions need passages; name a table with columns question and context, or SQuAD's JSON")
    if file_type(path) == ".json":
        found = _refuse_empty(path, question_nodes(path), "SQuAD's JSON holds at least one question")
        yield from (_squad_question(*one, number, keep) for number, one in enumerate(found))
        return
    names = question or "question", context or "context"
    records = enumerate(_refuse_empty(path, _records(path, encoding), "a table of questions holds one a row"))
    yield from (_question(record, names, number, keep) for number, record in records)


def _question(record: RowOrError, names: tuple[str, str], number: int, keep: Sequence[str]) -> InputOrError:
    if isinstance(record, InputError):
        return record
    where, row = record
    columns = [match_columns(name, row.keys()) for name in names]
    if absent := [name for name, own in zip(names, columns, strict=True) if all(row[one] is None for one in own)]:
        there = ", ".join(row)
        way = "name it with --text-column or --pair-column"
        return InputError(f"{where}: no {absent[0]!r} (there are: {there}); {way}")
    found = _model_input(where, row, columns, keep)
    own = number if row.get("id") is None else row["id"]
    return found if isinstance(found, InputError) else found._replace(id=str(own))


def _squad_question(where: str, question: Any, passage: Any, number: int, keep: Sequence[str]) -> InputOrError:
    """A question of SQuAD's JSON; its answers are not looked at."""
    held = [(question, "id"), (question, "question"), (passage, "context")]
    row = {key: node[key] for node, key in held if isinstance(node, Mapping) and node.get(key) is not None}
    if absent := [key for key in ("question", "context") if key not in row]:
        return InputError(f"{where}: no {absent[0]!r}; add it")
    return _question((where, row), ("question", "context"), number, keep)


def _standard_input(keep: Sequence[str], live: bool, encoding: str | None) -> Iterator[LiveInput]:
    if sys.stdin is None:
        raise InputError("standard input is closed; name a file, or send lines to it")
    if encoding is not None and not has_ascii_newlines(encoding):
        raise InputError(f"encoding ({encoding}) is not read from standard input; name a file, or convert it before")
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
            yield _line_input(decode(line).rstrip("\r\n"), keep)
        except UnicodeDecodeError as error:
            yield decoding_error(f"line {number} of standard input", line, f"byte {error.start}", encoding)


def _line_input(text: str, keep: Sequence[str]) -> ModelInput:
    return ModelInput(text, kept=(text,) if keep else ())


def _live_lines(file: Any) -> Iterator[bytes | None]:
    """The lines of a binary file, and None wherever those that are there should not wait for the next."""
    begun: list[bytes] = []  # parts of a line whose end is not there yet
    first: float | None = None  # when the first line came that was not followed by None
    while chunk := file.read1(1 << 16):
        first = first or time.monotonic()
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            yield b"".join((*begun, end))
            begun.clear()
        begun.append(rest)
        wait = min(PAUSE, first + LONGEST_WAIT - time.monotonic())
        if not _is_readable(file, max(0.0, wait)):
            yield None
            first = None
    if last := b"".join(begun):
        yield last


def _is_readable(file: BinaryIO, seconds: float) -> bool:
    """Whether it has something to read within this time, or has ended; True where the system does not say."""
    try:
        return bool(select([file], [], [], seconds)[0])
    except (OSError, ValueError):  # not a file of the system's; a pipe on Windows
        return True


def _by_columns(
    path: Path, records: Iterable[RowOrError], text: str | None, pair: str | None, keep: Sequence[str]
) -> Iterator[InputOrError]:
    """The texts in columns chosen by the first rows. A later row whose further columns would change that is wrong."""
    pair = None if pair == "pair" else pair  # our own name may be given where there is none
    records = _refuse_empty(path, records, "a table has a header and at least one row")
    first_rows = list(islice(records, FIRST_ROWS))
    columns = dict.fromkeys(name for one in first_rows if not isinstance(one, InputError) for name in one[1])
    chosen = find_text_columns(path, list(columns), text, pair) if columns else None
    for record in chain(first_rows, records):
        if isinstance(record, InputError):
            yield record
            continue
        where, row = record
        if chosen is None or not row.keys() <= columns.keys():
            wider = columns | dict.fromkeys(row)
            if chosen and _find_or_none(path, wider, text, pair) != chosen:
                there = ", ".join(row.keys() - columns.keys())
                yield InputError(f"{where}: has {there}, which no row had before; mend the row, or give it to all")
                continue
            chosen, columns = chosen or find_text_columns(path, list(wider), text, pair), wider
        yield _model_input(where, row, chosen, keep)


def _find_or_none(
    path: Path, columns: Iterable[str], text: str | None, pair: str | None
) -> tuple[Columns, Columns | None] | None:
    try:
        return find_text_columns(path, list(columns), text, pair)
    except InputError:  # with these columns it could be one or another
        return None


def _model_input(
    where: str, row: TableRow, names: Sequence[Columns | None], keep: Sequence[str]
) -> ModelInput | InputError:
    try:
        kept = tuple(_json_value(f"{where}: {name!r}", row.get(name)) for name in keep) if keep else ()
        text, *second = (read_text(where, row, name) for name in names if name is not None)
        return ModelInput(text, second[0] if second else None, kept=kept)
    except InputError as wrong:
        return wrong.with_traceback(None)  # which would keep the row
    except RecursionError:
        return InputError(f"{where}: a value to keep has too many brackets inside each other; name other columns")


def _json_value(where: str, value: Any) -> Any:
    """A column's value as JSON has it: null for a number that is not finite, text for dates and decimals."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Mapping):
        return {str(name): _json_value(where, inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(where, inner) for inner in value]
    if isinstance(value, bytes):
        raise InputError(f"{where} holds bytes, which are not kept; name other columns with --keep-columns")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _records(path: TableSource, encoding: str | None) -> Iterator[RowOrError]:
    """The rows of a table or MemoryTable, of `hf:NAME[:CONFIG][@SPLIT]`, or of a directory `datasets` saved."""
    if isinstance(path, MemoryTable):
        yield from _errors_in_place(partial(iter_rows, path))
        return
    if path.as_posix().startswith(HUB_PREFIX):
        yield from HubDataset.parse(path.as_posix()).rows()
        return
    for file in (arrow_files(path) if path.is_dir() else None) or [path]:
        open_file(file).close()
        yield from _errors_in_place(partial(iter_rows, file, encoding=encoding))


def _errors_in_place(read: Callable[..., Iterator[tuple[str, TableRow]]]) -> Iterator[RowOrError]:
    """What read(broken=...) gives, with what it tells of broken rows in their place."""
    wrong: list[InputError] = []

    def broken(error: InputError) -> None:
        wrong.append(error)
        if len(wrong) == MOST_CONSECUTIVE_ERRORS:
            raise InputError(f"{wrong[0]}; so are {MOST_CONSECUTIVE_ERRORS:,} rows in a row: is it the file you mean?")

    for record in read(broken=broken):
        yield from wrong
        wrong.clear()
        yield record
    yield from wrong


def _refuse_empty(path: Path, found: Iterable[Some], what: str) -> Iterator[Some]:
    is_empty = True
    for one in found:
        is_empty = False
        yield one
    if is_empty:
        raise InputError(f"{path}: empty; {what}")
