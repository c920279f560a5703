"""Tables with a row for each word (Kaggle's entities): sentences by a column of numbers, or by empty rows."""

import ast
import json
import math
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Literal

from bothways.base.errors import InputError, RowError, RowLocation, shorten
from bothways.settings.tables_in_memory import MemoryTable, TableRow, TableSource
from bothways.text.data.columns import find_column
from bothways.text.data.tags import Sentence
from bothways.text.rows.row_errors import RowErrors
from bothways.text.rows.text_files import decoded_lines, file_type

# Names of columns, in lower case and with spaces.
WORD_NAMES = ("word", "words", "token", "tokens")
TEXT_NAMES = ("text", "sentence")  # whose words are separated by spaces
ENTITY_NAMES = ("tag", "ner", "ner tag")
TAG_NAMES = (*ENTITY_NAMES, "tags", "ner tags", "pos", "pos tag", "pos tags")
SENTENCE_NAMES = (
    "sentence #",
    "sentence#",
    "sentence",
    "sentence id",
    "sentence idx",
    "sentence number",
    "sentence index",
    "sent id",
    "sent idx",
)
FIRST_ROWS = 10  # in which lists are recognized
LISTED = re.compile(r"\s*\[.*\]\s*", re.DOTALL)  # a list, written as text
NO_COMMA = re.compile(r"(['\"])\s+\1|\d\s+\d")  # between the values of an array, as numpy prints it
JSON_LIST = '["O", "B-PER"]'
SPAN_NAMES = ("entities", "ents", "spans")  # of labelled characters, which a CSV holds as JSON
LONGEST_SENTENCE = 100  # words of a table that may be one sentence
WAYS_OUT = "add a column 'sentence' with the number of each word's sentence, or an empty row after each sentence"


def has_word_columns(columns: Collection[str], word_names: Collection[str] = WORD_NAMES) -> bool:
    """Whether a table has a column of words and one of tags, by their usual names."""
    known = {*map(_plain_name, columns)}
    return bool(known & {*word_names} and known & {*TAG_NAMES})


def names_words(
    path: TableSource, encoding: str | None = None, word_names: Collection[str] = (*WORD_NAMES, *TEXT_NAMES)
) -> bool:
    """Whether the first line of a CSV or TSV names a column of words and one of tags, or of a text and of its entities,
    so that it is no CoNLL file.

    word_names: of the column of words, in lower case.
    """
    if isinstance(path, MemoryTable) or file_type(path) not in (".csv", ".tsv") or not path.is_file():
        return False
    first = next((line.text for line in decoded_lines(path, encoding) if line.text.strip()), "")
    separators = "\t" if file_type(path) == ".tsv" else ",;\t"
    for separator in separators:
        columns = [name.strip().strip('"') for name in first.split(separator)]
        if has_word_columns(columns, word_names) or has_span_columns(columns):
            return True
    return False


def has_span_columns(columns: Collection[str]) -> bool:
    """Whether a table has a column of texts and one of entities, as `predict` writes them."""
    return "text" in columns and any(name in columns for name in SPAN_NAMES)


def with_spans(row: TableRow) -> TableRow:
    """A row of a CSV with its lists of entities, which are JSON there; other rows as they are."""
    written = [name for name in SPAN_NAMES if isinstance(row.get(name), str) and LISTED.match(row[name])]
    read: dict[str, Any] = {}
    for name in written:
        with suppress(ValueError, RecursionError):
            read[name] = json.loads(row[name])
    return {**row, **read} if read else row


def find_word_column(
    path: TableSource, row: TableRow, role: Literal["words", "tags"], other: str | None = None
) -> str | None:
    """The column of words or of tags with a usual name of single ones, or of sentences as text; None without one.

    row: the first one. other: the column of the other role, if it is known.
    """
    columns = [*row]
    if role == "tags":
        # A label beside a text would be the label of the text.
        choices: list[Sequence[str]] = (
            [ENTITY_NAMES, ("label",)] if other and _plain_name(other) in WORD_NAMES else [ENTITY_NAMES]
        )
    else:
        are_tags = other is not None and _plain_name(other) in TAG_NAMES and isinstance(row[other], str)
        choices = [WORD_NAMES, TEXT_NAMES] if are_tags else [WORD_NAMES]

    for names in choices:
        usual = [name for name in columns if _plain_name(name) in names]
        if usual:
            return find_column(
                path,
                usual,
                role,
                named=None,
                standard=[name.strip().lower() for name in usual],
                common=(),
            )
    return None


def word_row_sentences(
    path: TableSource, rows: Sequence[tuple[RowLocation, TableRow]], words: str, tags: str, errors: RowErrors
) -> list[Sentence]:
    """The sentences of a table with a row for each word.

    A column that numbers the sentences, such as `Sentence #`, may be filled at each word or at the first one only;
    without it, empty rows and lines separate sentences. `errors` receives the error of a sentence with a word or a tag
    that is missing. InputError if nothing separates the sentences of a long table.
    """
    columns = [*rows[0][1]]
    number = next((name for name in columns if _plain_name(name) in SENTENCE_NAMES and name not in (words, tags)), None)

    sentences: list[Sentence] = []
    num_groups = 0
    for group in _groups(rows, number, words, tags):
        num_groups += 1
        try:
            values = [(_value(where, row, words), _value(where, row, tags)) for where, row in group]
        except InputError as error:
            errors(error)
            continue
        texts, labels = zip(*values, strict=True)
        sentences.append(Sentence(texts, labels, group[0][0]))
    if number is None and num_groups == 1 and len(rows) > 1:
        problem = f"a row for each word, and nothing separates the sentences of its {len(rows):,} words; {WAYS_OUT}"
        if len(rows) > LONGEST_SENTENCE:
            raise InputError(f"{path}: {problem}")
        errors.remarks.append(f"read as one sentence: {problem}")
    return sentences


def holds_single_words(rows: Sequence[tuple[RowLocation, TableRow]], words: str, tags: str) -> bool:
    """Whether the first rows have a word and its tag each, rather than lists of them."""
    for _, row in islice(rows, FIRST_ROWS):
        values = [row.get(words), row.get(tags)]
        if any(isinstance(value, list) or (isinstance(value, str) and LISTED.match(value)) for value in values):
            return False
        if _are_spaced(*values):
            return False
    return any(isinstance(row.get(tags), str | int) for _, row in islice(rows, FIRST_ROWS))


def with_lists(where: RowLocation, row: TableRow, words: str, tags: str) -> TableRow:
    """A row of a CSV with its lists, which are text there: ['Ada', 'left'], ["Ada", "left"], or Ada left.

    InputError for lists without commas, as numpy prints them.
    """
    if _are_spaced(row.get(words), row.get(tags)):
        return {**row, words: row[words].split(), tags: row[tags].split()}
    written = [name for name in (words, tags) if isinstance(row.get(name), str) and LISTED.match(row[name])]
    if tags not in written:
        return row
    lists: dict[str, Any] = {name: _read_list(where, name, row[name]) for name in written}
    if words not in lists and isinstance(row.get(words), str):
        lists[words] = row[words].split()
    return {**row, **lists}


def _are_spaced(words: Any, tags: Any) -> bool:
    """Whether words and tags are separated by spaces."""
    if not (isinstance(words, str) and isinstance(tags, str)) or LISTED.match(tags):
        return False
    return len(words.split()) == len(tags.split()) > 1


def _read_list(where: RowLocation, name: str, value: str) -> Any:
    advice = f"write JSON, such as {JSON_LIST}"
    if NO_COMMA.search(value):
        raise RowError(where, f"{name!r} is a list without commas ({shorten(value)}); {advice}")
    for read in (json.loads, ast.literal_eval):
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            return read(value)
    raise RowError(where, f"{name!r} is not readable as a list ({shorten(value)}); {advice}")


def _groups(
    rows: Sequence[tuple[RowLocation, TableRow]], number: str | None, words: str, tags: str
) -> Iterator[list[tuple[RowLocation, TableRow]]]:
    """The rows of each sentence."""
    group: list[tuple[RowLocation, TableRow]] = []
    current: Any = None  # number of the sentence
    last_line: int | None = None
    for where, row in rows:
        is_blank = all(map(_is_blank, row.values()))
        own_number = None if number is None or _is_blank(row.get(number)) else row[number]
        if number is not None:
            is_new = own_number is not None and own_number != current
        else:
            # The lines between two rows are empty.
            is_new = last_line is not None and where.line is not None and where.line > last_line + 1

        if group and (is_new or is_blank):
            yield group
            group = []
        if not is_blank:
            group.append((where, row))

        current = current if own_number is None else own_number
        last_line = where.line
    if group:
        yield group


def _value(where: RowLocation, row: TableRow, column: str) -> str:
    value = row.get(column)
    if _is_blank(value):
        raise RowError(where, f"{column!r} is empty; fill it in or drop the row")
    if not isinstance(value, str | int | float):
        raise RowError(where, f"{column!r} holds {type(value).__name__}, not a word or its tag; fix the row")
    return str(value).strip() if isinstance(value, str) else str(value)


def _is_blank(value: Any) -> bool:
    if isinstance(value, str):
        return not value.strip()
    return value is None or (isinstance(value, float) and math.isnan(value))


def _plain_name(name: str) -> str:
    return " ".join(name.strip().lower().replace("_", " ").split())
