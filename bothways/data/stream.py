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

from bothways.data.columns import Columns, find_texts, text_in
from bothways.data.datasets import PREFIX, HubDataset, is_lines, saved_files
from bothways.data.files import checked_lines, kind_of, not_text, open_file
from bothways.data.glue import look_of, look_rows
from bothways.data.squad import nodes
from bothways.data.tables import Row, named_columns, rows
from bothways.data.text_encodings import decoder, divides_lines
from bothways.errors import InputError
from bothways.tables_in_memory import MemoryTable, Source

FIRST_ROWS = 64  # whose columns decide which hold the texts
WRONG_IN_A_ROW = 10_000  # no file of ours
PAUSE, LONGEST_WAIT = 0.05, 0.5  # seconds: without a new line, and since the first line that waits for an answer


class Given(NamedTuple):
    """What a model is asked about: a text, perhaps with a second one; or a question, its passage (pair) and its id.

    kept: values of the columns that go along into the result, as JSON has them.
    """

    text: str
    pair: str | None = None
    id: str | None = None
    kept: tuple[Any, ...] = ()


Some = TypeVar("Some")
Found = Given | InputError
Live = Found | None  # None: the next line of standard input is not there yet
Record = tuple[str, Row] | InputError  # 'file:line' and columns by name


def texts(
    file: str,
    *,
    text: str | None = None,
    pair: str | None = None,
    keep: Sequence[str] = (),
    live: bool = False,
    encoding: str | None = None,
) -> Iterator[Live]:
    """The texts, with second ones where there are any, of a .txt (one a line), a table, a dataset (data/datasets.py), a
    file of GLUE (data/glue.py), or of the lines of standard input, "-".

    text, pair: names of columns; None: found by their usual names (data/columns.py) among those of the first 64 rows.
    Several between commas are read together. encoding: of text files without a byte-order mark; None: UTF-8.
    keep: columns whose values go along; of a text a line, "text". live: None stands wherever standard input pauses.
    InputError where the file as a whole cannot be read, and where it is empty.
    """
    path = Path(file)
    if file == "-":
        refuse_columns("standard input", text, pair)
        yield from _standard_input(keep, live, encoding)
    elif look := look_of(path, encoding):
        names = (look.text, pair or look.pair) if text is None else (text, pair)
        yield from _by_columns(path, _in_place(partial(look_rows, path, look, encoding=encoding)), *names, keep)
    elif not is_lines(path):
        yield from _by_columns(path, _records(path, encoding), text, pair, keep)
    else:
        refuse_columns(file, text, pair)
        lines = (line.wrong or _line(line.text, keep) for line in checked_lines(path, encoding))
        yield from _not_none(path, lines, "a file of texts holds one a line")


def refuse_columns(file: object, text: str | None, pair: str | None) -> None:
    """InputError where a column is named of what has none, but our own names."""
    for named in (text, pair):
        if named not in (None, "text", "pair"):
            raise InputError(f"{file}: holds a text a line, and no column {named!r}; give a table, or name no column")


def first_columns(file: str | Source, encoding: str | None = None) -> Sequence[str]:
    """Names of the columns of a table's first rows that can be read, or of a file of GLUE; none of a .txt, of "-"."""
    path = Path(file) if isinstance(file, str) else file
    if file == "-":
        return []
    if isinstance(path, Path) and (look := look_of(path, encoding)):
        return look.columns
    if is_lines(path):
        return []
    first_rows = islice((one[1] for one in _records(path, encoding) if not isinstance(one, InputError)), FIRST_ROWS)
    return list(dict.fromkeys(name for row in first_rows for name in row))


def columns_of(file: str, encoding: str | None = None) -> list[str]:
    """Names of all columns; a file of a text a line has a column "text". JSON lines are read to their end for it, since
    any row may have a new one."""
    path = Path(file)
    if file != "-" and kind_of(path) == ".json":
        return ["id", "question", "context"]
    if file == "-" or (is_lines(path) and not look_of(path, encoding)):
        return ["text"]
    if kind_of(path) != ".jsonl":
        return [*first_columns(file, encoding)]
    rows = (one[1] for one in _records(path, encoding) if not isinstance(one, InputError))
    return list(dict.fromkeys(name for row in rows for name in row))


def known_columns(
    file: str | Source, told: object, learned: Mapping[str, Any], uses: Sequence[str] = ("text", "pair")
) -> dict[str, str | None]:
    """The columns of each use that `told` names as USE_column; else those `learned` from by that name, if the file
    has them."""
    given = {use: getattr(told, f"{use}_column", None) for use in uses}
    before = {use: learned.get(f"{use}_column") for use in uses}
    wanted = any(before[use] and not given[use] for use in uses)
    there = first_columns(file, getattr(told, "encoding", None)) if wanted else []
    return {use: given[use] or (before[use] if named_columns(before[use] or "", there) else None) for use in uses}


def questions(
    file: str,
    *,
    question: str | None = None,
    context: str | None = None,
    keep: Sequence[str] = (),
    encoding: str | None = None,
) -> Iterator[Found]:
    """Questions and passages of a table or dataset with columns question and context (or those named), and id if there
    is one, else the row's number; or of SQuAD's .json, with answers or without. InputError as of texts."""
    path = Path(file)
    if file == "-":
        raise InputError("questions need passages; name a table with columns question and context, or SQuAD's JSON")
    if kind_of(path) == ".json":
        found = _not_none(path, nodes(path), "SQuAD's JSON holds at least one question")
        yield from (_asked(*one, number, keep) for number, one in enumerate(found))
        return
    names = question or "question", context or "context"
    records = enumerate(_not_none(path, _records(path, encoding), "a table of questions holds one a row"))
    yield from (_question(record, names, number, keep) for number, record in records)


def _question(record: Record, names: tuple[str, str], number: int, keep: Sequence[str]) -> Found:
    if isinstance(record, InputError):
        return record
    where, row = record
    columns = [named_columns(name, row.keys()) for name in names]
    if absent := [name for name, own in zip(names, columns, strict=True) if all(row[one] is None for one in own)]:
        there = ", ".join(row)
        way = "name it with --text-column or --pair-column"
        return InputError(f"{where}: no {absent[0]!r} (there are: {there}); {way}")
    found = _given(where, row, columns, keep)
    own = number if row.get("id") is None else row["id"]
    return found if isinstance(found, InputError) else found._replace(id=str(own))


def _asked(where: str, question: Any, passage: Any, number: int, keep: Sequence[str]) -> Found:
    """A question of SQuAD's JSON; its answers are not looked at."""
    held = [(question, "id"), (question, "question"), (passage, "context")]
    row = {key: node[key] for node, key in held if isinstance(node, Mapping) and node.get(key) is not None}
    if absent := [key for key in ("question", "context") if key not in row]:
        return InputError(f"{where}: no {absent[0]!r}; add it")
    return _question((where, row), ("question", "context"), number, keep)


def _standard_input(keep: Sequence[str], live: bool, encoding: str | None) -> Iterator[Live]:
    if sys.stdin is None:
        raise InputError("standard input is closed; name a file, or send lines to it")
    if encoding is not None and not divides_lines(encoding):
        raise InputError(f"encoding ({encoding}) is not read from standard input; name a file, or convert it before")
    decode = decoder(encoding)
    lines: Iterable[bytes | None] = _as_they_come(sys.stdin.buffer) if live else sys.stdin.buffer
    number = 0
    for line in lines:
        if line is None:
            yield None
            continue
        number += 1
        line = line.removeprefix(BOM_UTF8) if number == 1 else line
        try:
            yield _line(decode(line).rstrip("\r\n"), keep)
        except UnicodeDecodeError as error:
            yield not_text(f"line {number} of standard input", line, f"byte {error.start}", encoding)


def _line(text: str, keep: Sequence[str]) -> Given:
    return Given(text, kept=(text,) if keep else ())


def _as_they_come(file: Any) -> Iterator[bytes | None]:
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
    path: Path, records: Iterable[Record], text: str | None, pair: str | None, keep: Sequence[str]
) -> Iterator[Found]:
    """The texts in columns chosen by the first rows. A later row whose further columns would change that is wrong."""
    pair = None if pair == "pair" else pair  # our own name may be given where there is none
    records = _not_none(path, records, "a table has a header and at least one row")
    first_rows = list(islice(records, FIRST_ROWS))
    columns = dict.fromkeys(name for one in first_rows if not isinstance(one, InputError) for name in one[1])
    chosen = find_texts(path, list(columns), text, pair) if columns else None
    for record in chain(first_rows, records):
        if isinstance(record, InputError):
            yield record
            continue
        where, row = record
        if chosen is None or not row.keys() <= columns.keys():
            wider = columns | dict.fromkeys(row)
            if chosen and _chosen(path, wider, text, pair) != chosen:
                there = ", ".join(row.keys() - columns.keys())
                yield InputError(f"{where}: has {there}, which no row had before; mend the row, or give it to all")
                continue
            chosen, columns = chosen or find_texts(path, list(wider), text, pair), wider
        yield _given(where, row, chosen, keep)


def _chosen(
    path: Path, columns: Iterable[str], text: str | None, pair: str | None
) -> tuple[Columns, Columns | None] | None:
    try:
        return find_texts(path, list(columns), text, pair)
    except InputError:  # with these columns it could be one or another
        return None


def _given(where: str, row: Row, names: Sequence[Columns | None], keep: Sequence[str]) -> Given | InputError:
    try:
        kept = tuple(_plain(f"{where}: {name!r}", row.get(name)) for name in keep) if keep else ()
        text, *second = (text_in(where, row, name) for name in names if name is not None)
        return Given(text, second[0] if second else None, kept=kept)
    except InputError as wrong:
        return wrong.with_traceback(None)  # which would keep the row
    except RecursionError:
        return InputError(f"{where}: a value to keep has too many brackets inside each other; name other columns")


def _plain(where: str, value: Any) -> Any:
    """A column's value as JSON has it: null for a number that is not finite, text for dates and decimals."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Mapping):
        return {str(name): _plain(where, inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(where, inner) for inner in value]
    if isinstance(value, bytes):
        raise InputError(f"{where} holds bytes, which are not kept; name other columns with --keep-columns")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _records(path: Source, encoding: str | None) -> Iterator[Record]:
    """The rows of a table or MemoryTable, of `hf:NAME[:CONFIG][@SPLIT]`, or of a directory `datasets` saved."""
    if isinstance(path, MemoryTable):
        yield from _in_place(partial(rows, path))
        return
    if path.as_posix().startswith(PREFIX):
        yield from HubDataset.parse(path.as_posix()).rows()
        return
    for file in (saved_files(path) if path.is_dir() else None) or [path]:
        open_file(file).close()
        yield from _in_place(partial(rows, file, encoding=encoding))


def _in_place(read: Callable[..., Iterator[tuple[str, Row]]]) -> Iterator[Record]:
    """What read(broken=...) gives, with what it tells of broken rows in their place."""
    wrong: list[InputError] = []

    def broken(error: InputError) -> None:
        wrong.append(error)
        if len(wrong) == WRONG_IN_A_ROW:
            raise InputError(f"{wrong[0]}; so are {WRONG_IN_A_ROW:,} rows in a row: is it the file you mean?")

    for record in read(broken=broken):
        yield from wrong
        wrong.clear()
        yield record
    yield from wrong


def _not_none(path: Path, found: Iterable[Some], what: str) -> Iterator[Some]:
    is_empty = True
    for one in found:
        is_empty = False
        yield one
    if is_empty:
        raise InputError(f"{path}: empty; {what}")
