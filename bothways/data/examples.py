"""Labelled examples, in whatever people keep them: texts with labels and numbers, and words with tags."""

from dataclasses import replace

from bothways.data.columns import ColumnRole, LabelCheck, Table, build_table, column_not_found, find_column
from bothways.data.conll import Sentence, read_conll
from bothways.data.datasets import has_named_columns, is_text_file, read_rows
from bothways.data.files import read_lines
from bothways.data.glue import glue_table
from bothways.data.stream import refuse_column_names
from bothways.data.tables import OnError, RowErrors, TableRow
from bothways.errors import InputError
from bothways.tables_in_memory import MemoryTable, TableSource

TAGS = ("ner_tags", "ner", "labels")  # usual names of columns, beside our own


def read_table(
    path: TableSource,
    *,
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    group: str | None = None,
    need_labels: bool,
    encoding: str | None = None,
    on_error: OnError | None = None,
    check: LabelCheck | None = None,
) -> Table:
    """The texts of a table in a file or in memory, a dataset (data/datasets.py) or a file of GLUE (data/glue.py); a
    .txt holds one a line.

    text, pair, label: names of columns, which must be there; None: found by their usual names (data/columns.py). Texts
    of several columns, named between commas, are read together. Pairs, and labels unless needed, may be absent. group:
    the column of groups, read only if it is named.
    encoding: of text files without a byte-order mark; None: UTF-8. on_error: rows that cannot be read, lack a text or a
    needed label, or whose label does not pass `check`, are all named in one InputError, or left out and noted.
    InputError names the file, the line and the columns there are.
    """
    errors = RowErrors(on_error)
    columns = {"text": text, "pair": pair, "label": label, "group": group}
    table = glue_table(path, **columns, need_labels=need_labels, broken=errors, check=check, encoding=encoding)
    if table is None and not is_text_file(path):
        found = read_rows(path, broken=errors, encoding=encoding)
        if not found:
            errors.notes(0)
        table = build_table(path, found, **columns, need_labels=need_labels, broken=errors, check=check)
    if table is not None:
        return replace(table, notes=errors.notes(len(table)))
    if need_labels:
        raise InputError(
            f"{path}: a .txt has no labels; give .csv, .tsv, .jsonl or .parquet with columns "
            f"{text or 'text'!r} and {label or 'label'!r}"
        )
    assert not isinstance(path, MemoryTable)  # whose rows have columns
    refuse_column_names(path, text, pair)
    numbered = list(read_lines(path, encoding))
    if not numbered:
        raise InputError(f"{path}: empty; a file of texts holds one a line")
    return Table([line for _, line in numbered], None, None, [f"{path}:{number}" for number, _ in numbered])


# --- words with tags --------------------------------------------------------------------------------------------------


def read_tagged(
    path: TableSource,
    *,
    words: str | None = None,
    tags: str | None = None,
    encoding: str | None = None,
    errors: RowErrors | None = None,
) -> list[Sentence]:
    """Sentences of a CoNLL file (data/conll.py), or of a table in a file or in memory, or a dataset, with a list of
    words and one of tags a row.

    words, tags: names of columns, in a CoNLL file their numbers from 0 (-1 is the last one). None: the usual names; the
    first and the last column. What is no .jsonl, .parquet, .arrow or dataset is taken for a CoNLL file.
    encoding: as of read_table. errors: decides on sentences that cannot be read, whose `notes` are the caller's; None:
    InputError names the files and lines of all.
    """
    decided = errors or RowErrors()
    if isinstance(path, MemoryTable) or has_named_columns(path):
        found = _tagged_rows(path, words, tags, decided, encoding)
    else:
        columns = {"words": _column_number(words, "words", 0), "tags": _column_number(tags, "tags", -1)}
        found = read_conll(path, **columns, broken=decided, encoding=encoding)
    if errors is None or not found:
        decided.notes(len(found))
    return found


def _tagged_rows(
    path: TableSource, words: str | None, tags: str | None, errors: RowErrors, encoding: str | None
) -> list[Sentence]:
    rows = read_rows(path, broken=errors, encoding=encoding)
    if not rows:
        errors.notes(0)
        raise InputError(f"{path}: empty; a table of sentences holds one a row")
    columns = list(rows[0][1])
    words = find_column(path, columns, "words", words, ["words"], ["tokens"])
    tags = find_column(path, columns, "tags", tags, ["tags"], TAGS)
    if words is None or tags is None:
        raise column_not_found(path, columns, "words" if words is None else "tags")
    found = []
    for where, row in rows:
        try:
            found.append(_sentence(where, row, words, tags))
        except InputError as wrong:
            errors(wrong)
    return found


def _column_number(given: str | None, use: ColumnRole, usual: int) -> int:
    try:
        return usual if given is None else int(given)
    except ValueError:
        raise InputError(
            f"--{use}-column ({given}): a CoNLL file's columns have no names; give a number from 0, -1 for the last one"
        ) from None


def _sentence(where: str, row: TableRow, words: str, tags: str) -> Sentence:
    for name in (words, tags):
        value = row.get(name)
        if not isinstance(value, list) or not value or None in value:
            held = "an empty list" if value == [] else "a list with gaps" if isinstance(value, list) else repr(value)
            raise InputError(f"{where}: {name!r} holds {held}, not a list of {name}; mend the row or drop it")
    if len(row[words]) != len(row[tags]):
        raise InputError(f"{where}: {len(row[words])} words but {len(row[tags])} tags; mend the row or drop it")
    for name in (words, tags):
        if strange := [value for value in row[name] if not isinstance(value, str | int | float)]:
            raise InputError(
                f"{where}: {name!r} holds {type(strange[0]).__name__}, not text; name the column with "
                f"--{'words' if name == words else 'tags'}-column"
            )
    if "" in row[words]:
        raise InputError(f"{where}: word {row[words].index('') + 1} is empty; mend the row or drop it")
    return Sentence(tuple(map(str, row[words])), tuple(map(str, row[tags])), where)
