"""Labelled examples from files, datasets and tables: texts with labels, and words with tags."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bothways.base.errors import InputError, RowError, RowLocation, flag, format_count
from bothways.base.log import logger
from bothways.settings.tables_in_memory import MemoryTable, TableList, TableRow, TableSource
from bothways.text.data import annotations
from bothways.text.data.columns import (
    ColumnRole,
    LabelCheck,
    Table,
    build_table,
    column_not_found,
    find_column,
    join_tables,
    refuse_column_names,
)
from bothways.text.data.conll import looks_tagged, read_conll
from bothways.text.data.tag_spellings import standard_tags
from bothways.text.data.tags import Scheme, Sentence
from bothways.text.data.word_rows import (
    WORD_NAMES,
    find_word_column,
    has_span_columns,
    has_word_columns,
    holds_single_words,
    names_words,
    with_lists,
    with_spans,
    word_row_sentences,
)
from bothways.text.rows.annotation_files import (
    has_annotations,
    layouts_message,
    read_annotations,
)
from bothways.text.rows.row_errors import OnError, RowErrors
from bothways.text.rows.rows import FORMS, JSON_FORMS, Rows, form_of, open_rows, read_rows
from bothways.text.rows.text_files import CONVERSIONS, JSON, file_type

TAGS = ("ner_tags", "ner", "labels")  # common names of the tag column, besides the standard `tags`


def read_table(
    path: TableSource,
    *,
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    group: str | None = None,
    need_group: bool = True,
    need_labels: bool,
    encoding: str | None = None,
    on_error: OnError | None = None,
    check: LabelCheck | None = None,
) -> Table:
    """Read a table from a file, memory, a dataset (text/rows/datasets.py) or a GLUE file (text/rows/glue.py).

    A .txt has one text per line and no labels.

    text, pair, label, group: column names; None: found by standard or common names (text/data/columns.py), except for
    groups. A text or pair may be several columns, comma-separated. Pairs are optional, as are labels unless needed.
    need_group: whether a file without the group column is refused, or read without groups.
    encoding: of text files without a byte-order mark; None means UTF-8. on_error: rows that cannot be read, lack a text
    or a needed label, or whose label fails `check`, raise one InputError for all, or are skipped with a note.
    """
    if isinstance(path, TableList):
        options = {"text": text, "pair": pair, "label": label, "group": group, "encoding": encoding}
        tables = [
            read_table(part, **options, need_group=need_group, need_labels=need_labels, on_error=on_error, check=check)
            for part in path.parts
        ]
        return join_tables(path, tables)

    errors = RowErrors(on_error)
    rows = open_rows(path, encoding)
    if rows.form.is_text:
        return _read_lines(rows, text, pair, label, need_labels=need_labels)

    located_rows = [*rows.read(errors)]
    if not located_rows:
        errors.notes(0)
    if need_labels:
        located_rows = annotations.accepted_rows(path, located_rows, errors, used=[text, pair, label])

    has_group = need_group or (group is not None and any(group in row for _, row in located_rows))
    table = build_table(
        path,
        located_rows,
        **rows.form.chosen(text, pair, label),
        group=group if has_group else None,
        need_labels=need_labels,
        on_row_error=errors,
        check=check,
    )
    return replace(table, notes=errors.notes(len(table)))


def _read_lines(rows: Rows, text: str | None, pair: str | None, label: str | None, *, need_labels: bool) -> Table:
    """A table of the lines of a .txt. InputError if it is empty, or if labels or columns are wanted."""
    if need_labels:
        raise InputError(
            f"{rows.source}: a .txt has no labels; give .csv, .tsv, .jsonl or .parquet with columns "
            f"{text or 'text'!r} and {label or 'label'!r}"
        )

    refuse_column_names(rows.source, text, pair)
    located_rows = [*rows.read()]
    if not located_rows:
        raise InputError(f"{rows.source}: empty; {rows.form.empty}")
    texts = [row["text"] for _, row in located_rows]
    return Table(texts=texts, pairs=None, labels=None, where=[where for where, _ in located_rows])


# --- words with tags --------------------------------------------------------------------------------------------------


def read_tagged(
    path: TableSource,
    *,
    words: str | None = None,
    tags: str | None = None,
    scheme: Scheme = "iob2",
    encoding: str | None = None,
    errors: RowErrors | None = None,
) -> list[Sentence]:
    """Tagged sentences from a CoNLL file (data/conll.py), from a table or dataset with lists of words and tags, or with
    a row for each word (data/word_rows.py), or from texts with labelled characters (data/annotations.py).

    words, tags: column names, or in a CoNLL file column indices from 0 (-1 is the last). None: the standard or common
    names; in a CoNLL file the first and the last column. Sources other than .jsonl, .parquet, .arrow, .xlsx, datasets
    and tables in memory are read as CoNLL, except for .json, which holds a list of texts, and for a CSV or TSV whose
    header names the columns.
    scheme: of the tags of texts with labelled characters; "plain" keeps all tags as they are, else those in another
    spelling become B-X, I-X and O (data/tag_spellings.py). encoding: see `read_table`. errors: collects the errors of
    invalid sentences and remarks on changed ones; the caller then calls its `notes`. None: one InputError for all, and
    remarks are logged.
    """
    if isinstance(path, TableList):
        return join_sentences(
            read_tagged(part, words=words, tags=tags, scheme=scheme, encoding=encoding, errors=errors)
            for part in path.parts
        )

    row_errors = errors or RowErrors()
    form = form_of(path, encoding)
    if isinstance(path, Path) and form in JSON_FORMS:
        is_table = form is FORMS[JSON]
        rows = read_rows(path, row_errors, encoding) if is_table else _annotations(path, row_errors, encoding)
        rows = annotations.accepted_rows(path, rows, row_errors)
        if not rows or _has_words(rows[0][1], words):
            sentences = _tagged_rows(path, rows, words, tags=tags, errors=row_errors, scheme=scheme)
        else:
            sentences = annotations.annotated_sentences(rows, row_errors, scheme)
    elif isinstance(path, MemoryTable) or has_tag_columns(path, words, tags, encoding):
        rows = read_rows(path, row_errors, encoding)
        sentences = _tagged_rows(
            path,
            annotations.accepted_rows(path, rows, row_errors, used=[tags]),
            words,
            tags=tags,
            errors=row_errors,
            scheme=scheme,
        )
    elif file_type(path) in CONVERSIONS:
        raise InputError(f"{path}: {CONVERSIONS[file_type(path)]}")
    else:
        columns = {"words": _column_number(words, "words"), "tags": _column_number(tags, "tags")}
        sentences = read_conll(path, **columns, on_row_error=row_errors, encoding=encoding)
    if scheme != "plain":
        sentences = standard_tags(sentences, row_errors)
    if errors is None or not sentences:
        for note in row_errors.notes(len(sentences)):
            logger.warning(f"{path}: {note}")
    return sentences


def _annotations(path: Path, errors: RowErrors, encoding: str | None) -> list[tuple[RowLocation, Any]]:
    """The rows of an annotation file. The errors of rows that cannot be read go to `errors`."""
    rows: list[tuple[RowLocation, Any]] = []
    for row in read_annotations(path, encoding):
        if isinstance(row, InputError):
            errors(row)
        else:
            rows.append(row)
    return rows


def has_tag_columns(
    path: TableSource, words: str | None = None, tags: str | None = None, encoding: str | None = None
) -> bool:
    """Whether words and tags are in columns with names, rather than in the columns of a CoNLL file.

    words, tags: the columns that were named, which a CSV or TSV must have if they are no numbers.
    """
    if form_of(path, encoding).has_names:
        return True
    if isinstance(path, MemoryTable) or file_type(path) not in (".csv", ".tsv"):
        return False
    named = [column for column in (words, tags) if column is not None]
    if named:
        return not all(column.lstrip("-").isdecimal() for column in named)
    return names_words(path, encoding)


def holds_tagged_words(path: TableSource, encoding: str | None = None) -> bool:
    """Whether a source has words with tags, and no texts with labels."""
    if isinstance(path, MemoryTable):
        return has_word_columns(path.columns)
    if file_type(path) in (".conll", ".conllu") or looks_tagged(path, encoding):
        return True
    rows = open_rows(path, encoding)
    if rows.form.has_names:
        return has_word_columns(rows.names())
    return names_words(path, encoding, WORD_NAMES)


def join_sentences(parts: Iterable[list[Sentence]]) -> list[Sentence]:
    """The sentences of several files, whose documents are numbered on."""
    joined: list[Sentence] = []
    first = 0
    for sentences in parts:
        joined += [
            sentence if sentence.document is None else replace(sentence, document=first + sentence.document)
            for sentence in sentences
        ]
        first += 1 + max((sentence.document or 0 for sentence in sentences), default=0)
    return joined


def _tagged_rows(
    path: TableSource,
    rows: list[tuple[RowLocation, TableRow]],
    words: str | None,
    tags: str | None,
    errors: RowErrors,
    scheme: Scheme,
) -> list[Sentence]:
    if not rows:
        errors.notes(0)
        raise InputError(f"{path}: empty; a table of sentences has one per row")

    columns = list(rows[0][1])
    if words is None and tags is None and has_span_columns(columns):
        rows = [(where, with_spans(row)) for where, row in rows]
    if words is None and tags is None and any(has_annotations(row) for _, row in rows):
        return annotations.annotated_sentences(rows, errors, scheme)

    words = find_column(path, columns, "words", named=words, standard=["words"], common=["tokens"])
    tags = find_column(path, columns, "tags", named=tags, standard=["tags"], common=TAGS)
    words = words or find_word_column(path, rows[0][1], "words")
    tags = tags or find_word_column(path, rows[0][1], "tags", words)
    words = words or find_word_column(path, rows[0][1], "words", tags)

    if words is None or tags is None:
        missing = column_not_found(path, columns, "words" if words is None else "tags")
        raise InputError(f"{missing}; {layouts_message()}")

    if holds_single_words(rows, words, tags):
        return word_row_sentences(path, rows, words, tags, errors)

    sentences = []
    for where, row in rows:
        try:
            sentences.append(_sentence(where, row, words, tags))
        except InputError as error:
            errors(error)
    return sentences


def _has_words(row: TableRow, named: str | None) -> bool:
    """Whether a row has words, in the named column or one with a usual name, and no annotated text."""
    if not isinstance(row, Mapping) or has_annotations(row):
        return False
    return named in row if named else has_word_columns([*row])


def _column_number(named: str | None, role: ColumnRole) -> int | None:
    try:
        return None if named is None else int(named)
    except ValueError:
        raise InputError(
            f"{flag(role + '_column')} ({named}): columns of a CoNLL file have no names; give an index from 0, -1 for "
            "the last"
        ) from None


def _sentence(where: RowLocation, row: TableRow, words: str, tags: str) -> Sentence:
    row = with_lists(where, row, words, tags)
    for name in (words, tags):
        value = row.get(name)
        if not isinstance(value, list) or not value or None in value:
            shown = "an empty list" if value == [] else "a list with gaps" if isinstance(value, list) else repr(value)
            raise RowError(where, f"{name!r} holds {shown}, not a list of {name}; fix the row or drop it")
    if len(row[words]) != len(row[tags]):
        raise RowError(
            where,
            f"{format_count(len(row[words]), 'word')} but {format_count(len(row[tags]), 'tag')}; fix the "
            "row or drop it",
        )
    for name in (words, tags):
        if invalid := [value for value in row[name] if not isinstance(value, str | int | float)]:
            option = flag("words_column" if name == words else "tags_column")
            kind = type(invalid[0]).__name__
            raise RowError(where, f"{name!r} holds {kind}, not text; name the column with {option}")
    if "" in row[words]:
        raise RowError(where, f"{words}[{row[words].index('')}] is empty; fix the row or drop it")
    return Sentence(tuple(map(str, row[words])), tuple(map(str, row[tags])), where)
