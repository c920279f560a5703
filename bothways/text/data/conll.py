"""CoNLL files: a word and its tag per line, a blank line between sentences; CoNLL-U and CoNLL-2012 too."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from re import fullmatch

from bothways.base.errors import InputError, LineLocation, RowError, RowLocation, flag, format_count
from bothways.text.data.tag_spellings import are_entity_tags
from bothways.text.data.tags import Sentence
from bothways.text.rows.row_errors import RowErrorHandler, raise_error
from bothways.text.rows.text_files import Line, decoded_lines, file_type

DOCSTART = "-DOCSTART-"  # marks a document boundary
COLUMN_SEPARATORS = " \t"  # other white space can be part of a word
CONLL_U_COLUMNS = 10
CONLL_2012_START = "#begin document"  # marks a document of CoNLL-2012
CONLL_2012_COLUMNS = 12  # at least: a column for each predicate more
CONLL_2012_WORDS = 3
CONLL_2012_TAGS = 10
FIRST_LINES = 64  # in which tagged words are recognized
NON_WORD_ID = r"\d+[-.]\d+"  # 3-4: a multiword token, whose words follow; 3.1: an empty node


def looks_tagged(path: Path, encoding: str | None = None) -> bool:
    """Whether the first lines of a text file are words, each with a tag of entities or the ten columns of CoNLL-U."""
    if file_type(path) not in (".txt", ".conll", ".conllu") or not path.is_file():
        return False
    lines = [line.text for line in islice(decoded_lines(path, encoding), FIRST_LINES) if not line.error]
    rows = [line.split() for line in lines if line.strip() and not line.startswith(("#", DOCSTART))]
    tagged = [row for row in rows if not (len(row) == CONLL_U_COLUMNS and row[0][0].isdigit())]
    return bool(rows) and all(len(row) > 1 for row in tagged) and are_entity_tags({row[-1] for row in tagged})


@dataclass(frozen=True)
class ColumnLayout:
    """The column layout of all lines with a word: separated by tabs or spaces, and how many columns."""

    line_number: int  # the line that determines the layout
    tabs: bool
    num_columns: int


def read_conll(
    path: Path,
    *,
    words: int | None = None,
    tags: int | None = None,
    on_row_error: RowErrorHandler = raise_error,
    encoding: str | None = None,
) -> list[Sentence]:
    """The sentences of a file, compressed or not.

    words, tags: column indices from 0; -1 is the last column. None: the first and the last one; in CoNLL-2012 the
    columns of words and names, 3 and 10.

    The first line with a word that does not start with # determines the layout: tab-separated if it contains a tab,
    else separated by spaces. `-DOCSTART-` separates documents. A line before a sentence that starts with # and has a
    different number of columns is a comment. In CoNLL-U (ten columns; words=1, tags=3), multiword tokens and empty
    nodes (rows 3-4 and 3.1) are skipped. In CoNLL-2012, whose documents start with `#begin document`, the number of
    columns may differ between sentences.
    on_row_error: receives the error of an invalid sentence; if it returns, the sentence is skipped. InputError names
    file and line.
    """
    lines = list(decoded_lines(path, encoding))
    layout = _layout(path, lines)
    is_2012 = layout.num_columns >= CONLL_2012_COLUMNS and any(line.text.startswith(CONLL_2012_START) for line in lines)
    words = words if words is not None else CONLL_2012_WORDS if is_2012 else 0
    tags = tags if tags is not None else CONLL_2012_TAGS if is_2012 else -1
    _check_columns(path, layout, words, tags)

    start = CONLL_2012_START if is_2012 else DOCSTART
    is_divided = any(line.text.startswith(start) for line in lines)

    sentences = []
    number = -1
    for document, group in _groups(lines, start):
        try:
            # The predicates of a sentence of CoNLL-2012 have a column each.
            has_words = is_2012 and not all(line.text.startswith("#") for line in group)
            own_layout = _layout(path, group) if has_words else layout
            rows = _words(path, group, own_layout, words, tags)
        except InputError as error:
            number += 1
            on_row_error(error)
            continue
        if rows:
            number += 1
            texts, labels = zip(*((values[words], values[tags]) for _, values in rows), strict=True)
            where = RowLocation(path, number, rows[0][0])
            sentences.append(Sentence(words=texts, tags=labels, where=where, document=document if is_divided else None))
    if sentences and all(_are_numbers(sentence.words) for sentence in sentences):
        raise InputError(
            f"{path}: column {words} numbers the words; name the column of words, such as {flag('words_column', '1')}"
        )
    return sentences


def num_columns(path: Path, encoding: str | None = None) -> int:
    """The number of columns of a file, by its first line with a word."""
    return _layout(path, [*decoded_lines(path, encoding)]).num_columns


def _are_numbers(words: Sequence[str]) -> bool:
    """Whether the words are 1, 2, 3 ..., as in the first column of CoNLL-U."""
    plain = [word for word in words if not fullmatch(NON_WORD_ID, word)]
    return bool(plain) and plain == [str(number) for number in range(1, len(plain) + 1)]


def _layout(path: Path, lines: Sequence[Line]) -> ColumnLayout:
    for line in lines:
        if not line.error and line.text.strip(COLUMN_SEPARATORS) and not line.text.startswith(("#", DOCSTART)):
            tabs = "\t" in line.text
            return ColumnLayout(line.number, tabs, len(_split(line.text, tabs)))
    for line in lines:
        if line.error:
            raise line.error
    raise InputError(f"{path}: no sentence; a CoNLL file has a word and its tag on each line")


def _split(text: str, tabs: bool) -> list[str]:
    return text.split("\t") if tabs else [value for value in text.split(" ") if value]


def _check_columns(path: Path, layout: ColumnLayout, words: int, tags: int) -> None:
    for role, column in (("words", words), ("tags", tags)):
        if column not in range(-layout.num_columns, layout.num_columns):
            raise InputError(
                f"{path}:{layout.line_number}: no column {column} (there are {layout.num_columns}, counted from 0); "
                f"name another with {flag(role + '_column')}"
            )
    if (words - tags) % layout.num_columns == 0:
        raise InputError(
            f"{path}:{layout.line_number}: words and tags are the same column, of {layout.num_columns}; separate them "
            f"by a tab or a space, or name others with {flag('words_column')} and {flag('tags_column')}"
        )


def _groups(lines: Sequence[Line], start: str) -> Iterator[tuple[int, list[Line]]]:
    """(document index, lines) for each block of lines between blank lines. start: of the line ahead of a document."""
    document = 0
    has_sentence = False
    group: list[Line] = []
    for line in lines:
        is_docstart = line.text.startswith(start)
        if not is_docstart and line.text.strip(COLUMN_SEPARATORS):
            group.append(line)
            continue
        if group:
            yield document, group
            group = []
            has_sentence = True
        if is_docstart and has_sentence:
            document += 1
            has_sentence = False
    if group:
        yield document, group


def _words(
    path: Path, lines: Sequence[Line], layout: ColumnLayout, words: int, tags: int
) -> list[tuple[int, list[str]]]:
    """(line number, columns) for each word of a sentence."""
    rows: list[tuple[int, list[str]]] = []
    for line in lines:
        if line.error:
            raise line.error
        values = _split(line.text, layout.tabs)
        if not _is_word(LineLocation(path, line.number), values, layout, words, is_first=not rows):
            continue
        if not (values[words] and values[tags]):
            raise RowError(LineLocation(path, line.number), "the word or its tag is empty; fill it in")
        rows.append((line.number, values))
    return rows


def _is_word(where: str, values: list[str], layout: ColumnLayout, words: int, *, is_first: bool) -> bool:
    """Whether a line holds a word, not a comment or another CoNLL-U row. InputError for a wrong number of columns."""
    if len(values) == layout.num_columns:
        numbered = len(values) == CONLL_U_COLUMNS and words % CONLL_U_COLUMNS != 0
        return not (numbered and fullmatch(NON_WORD_ID, values[0]))
    if is_first and values[0].startswith("#"):
        return False
    raise RowError(
        where,
        f"{format_count(len(values), 'column')} where line {layout.line_number} has {layout.num_columns}; "
        "fix the line, "
        f"or separate all columns by {'tabs' if layout.tabs else 'spaces'}",
    )
