"""Inputs of a model: texts, pairs and questions, streamed from any source in bounded memory.

A row that cannot be read yields an InputError in its place, so that rows keep their numbers.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from bothways.base.errors import InputError, RowError, RowLocation, flag
from bothways.settings.tables_in_memory import RowOrError, TableRow, TableSource
from bothways.text.data.columns import Columns, find_text_columns, read_text, refuse_column_names
from bothways.text.data.squad import question_nodes
from bothways.text.rows.column_names import match_columns
from bothways.text.rows.rows import FIRST_ROWS, Rows, Source, named_source, open_rows, refuse_empty
from bothways.text.rows.standard_input import StandardInput

TEXT: tuple[Columns, None] = (("text",), None)  # the columns of a source with one text per line


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


InputOrError = ModelInput | InputError
LiveInput = InputOrError | None  # None: standard input has no further line yet


def read_texts(
    source: str | Rows,
    *,
    text: str | None = None,
    pair: str | None = None,
    keep: Sequence[str] = (),
    live: bool = False,
    encoding: str | None = None,
) -> Iterator[LiveInput]:
    """Stream the texts, and second texts if there are any, of a source (text/rows/rows.py).

    source: a path, "-" for standard input, or its rows, which are open already.
    text, pair: column names, or several, comma-separated, which are joined; None: found by standard or common names
    (text/data/columns.py) among the columns of the first 64 rows.
    keep: columns whose values are passed on; "text" for one text per line.
    live: yield None whenever standard input pauses.
    encoding: of text files without a byte-order mark; None means UTF-8.

    InputError if the source as a whole cannot be read, EmptyInput if it has no row.
    """
    rows = as_rows(source, encoding)
    if rows.form.is_text:
        refuse_column_names(rows.source, text, pair)
        for row in rows.live() if live else rows.refuse_empty():
            yield row if row is None or isinstance(row, InputError) else _model_input(*row, TEXT, keep)
    else:
        columns = rows.form.chosen(text, pair)
        yield from _by_columns(rows, columns["text"], columns["pair"], keep)


def _by_columns(rows: Rows, text: str | None, pair: str | None, keep: Sequence[str]) -> Iterator[InputOrError]:
    """The texts in the columns found in the first rows.

    A later row whose additional columns would change that choice yields an error.
    """
    pair = None if pair == "pair" else pair  # the standard name is allowed without such a column
    remaining = rows.refuse_empty()
    first_rows = list(islice(remaining, FIRST_ROWS))
    columns = dict.fromkeys(name for row in first_rows if not isinstance(row, InputError) for name in row[1])
    chosen = find_text_columns(rows.source, list(columns), text, pair) if columns else None

    for row in chain(first_rows, remaining):
        if isinstance(row, InputError):
            yield row
            continue

        where, values = row
        if chosen is None or not values.keys() <= columns.keys():
            wider = columns | dict.fromkeys(values)
            if chosen and _find_or_none(rows.source, wider, text, pair) != chosen:
                new_columns = ", ".join(values.keys() - columns.keys())
                yield RowError(
                    where, f"has {new_columns}, which no earlier row has; fix the row, or add it to all rows"
                )
                continue

            chosen = chosen or find_text_columns(rows.source, list(wider), text, pair)
            columns = wider
        yield _model_input(where, values, chosen, keep)


def _find_or_none(
    source: Source, columns: Iterable[str], text: str | None, pair: str | None
) -> tuple[Columns, Columns | None] | None:
    try:
        return find_text_columns(source, list(columns), text, pair)
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


def read_questions(
    source: str | Rows,
    *,
    question: str | None = None,
    context: str | None = None,
    keep: Sequence[str] = (),
    encoding: str | None = None,
) -> Iterator[InputOrError]:
    """Stream questions and passages of a table or dataset, or of SQuAD's .json, with or without answers.

    source: a path, or its rows, which are open already.
    Tables have columns question and context, or those named, and optionally id; the default id is the row number.
    InputError: see `read_texts`.
    """
    rows = as_rows(source, encoding)
    if isinstance(rows.source, StandardInput):
        raise InputError("questions need passages; name a table with columns question and context, or SQuAD's JSON")

    if rows.form.is_squad:
        assert isinstance(rows.source, Path)
        expected = f"{rows.source}: empty; SQuAD's JSON has at least one question"
        nodes = refuse_empty(question_nodes(rows.source), expected)
        yield from (_squad_question(*node, number, keep) for number, node in enumerate(nodes))
        return

    names = question or "question", context or "context"
    yield from (_question(row, names, number, keep) for number, row in enumerate(rows.refuse_empty()))


def _question(row_or_error: RowOrError, names: tuple[str, str], number: int, keep: Sequence[str]) -> InputOrError:
    if isinstance(row_or_error, InputError):
        return row_or_error

    where, row = row_or_error
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


# --- the columns of a source ------------------------------------------------------------------------------------------


def as_rows(source: str | TableSource | Rows, encoding: str | None = None) -> Rows:
    """The rows of a source, or of standard input ("-"); those that are open already as they are."""
    if isinstance(source, Rows):
        return source
    return open_rows(named_source(source) if isinstance(source, str) else source, encoding)


def first_columns(source: str | TableSource | Rows, encoding: str | None = None) -> list[str]:
    """The names of the columns in the first rows of a source."""
    return as_rows(source, encoding).names()


def resolve_columns(
    source: str | TableSource | Rows,
    settings: object,
    trained: Mapping[str, Any],
    roles: Sequence[str] = ("text", "pair"),
) -> dict[str, str | None]:
    """For each role, the column that `settings` name as ROLE_column, else the one in `trained`, if the source has it.

    trained: the columns that the model was fine-tuned with.
    """
    named = {role: getattr(settings, f"{role}_column", None) for role in roles}
    learned = {role: trained.get(f"{role}_column") for role in roles}
    needs_columns = any(learned[role] and not named[role] for role in roles)
    existing = first_columns(source, getattr(settings, "encoding", None)) if needs_columns else []
    return {
        role: named[role] or (learned[role] if match_columns(learned[role] or "", existing) else None) for role in roles
    }
