"""Words with tags in columns, as CoNLL's shared tasks give them: a word a line, a blank line between sentences."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from re import fullmatch

from bothways.data.files import Line, decoded_lines
from bothways.data.tables import RowErrorHandler, raise_error
from bothways.errors import InputError

DOCSTART = "-DOCSTART-"  # stands between documents, or before each
COLUMN_SEPARATORS = " \t"  # what divides columns; other white space can be part of a word
CONLL_U_COLUMNS = 10
NON_WORD_ID = r"\d+[-.]\d+"  # 3-4: two words written as one, which follow; 3.1: a word that is not written at all


@dataclass(frozen=True, slots=True)
class Sentence:
    """Words, a tag for each, and where the first one stands.

    document: the number, from 0, of the one it is part of; None in a file that does not divide documents.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...]
    where: str
    document: int | None = None

    def __len__(self) -> int:
        return len(self.words)


@dataclass(frozen=True)
class ColumnLayout:
    """What all lines with a word have in common: columns between tabs or between spaces, and how many."""

    number: int  # of the line that tells
    tabs: bool
    num_columns: int


def read_conll(
    path: Path, *, words: int = 0, tags: int = -1, broken: RowErrorHandler = raise_error, encoding: str | None = None
) -> list[Sentence]:
    """The sentences of a file, packed or not. words, tags: their columns, counted from 0; -1 is the last one.

    The first line with a word that does not begin with # says how all are laid out: between tabs if it has one, else
    between spaces. `-DOCSTART-` divides documents. Before a sentence, a line that begins with # and has another number
    of columns is a comment. In CoNLL-U (ten columns; words=1, tags=3) the rows 3-4 and 3.1 are no words.
    broken: is told what is wrong with a sentence, which is left out where it returns. InputError names file and line.
    """
    lines = list(decoded_lines(path, encoding))
    layout = _layout(path, lines)
    _check_columns(path, layout, words, tags)
    is_divided = any(line.text.startswith(DOCSTART) for line in lines)
    found = []
    for document, group in _groups(lines):
        try:
            rows = _words(path, group, layout, words, tags)
        except InputError as wrong:
            broken(wrong)
            continue
        if rows:
            texts, labels = zip(*((values[words], values[tags]) for _, values in rows), strict=True)
            found.append(Sentence(texts, labels, f"{path}:{rows[0][0]}", document if is_divided else None))
    if found and all(_are_numbers(sentence.words) for sentence in found):
        raise InputError(f"{path}: column {words} numbers the words; say where they stand, such as --words-column 1")
    return found


def _are_numbers(words: Sequence[str]) -> bool:
    """Whether they count words, as CoNLL-U's first column does."""
    whole = [word for word in words if not fullmatch(NON_WORD_ID, word)]
    return bool(whole) and whole == [str(number) for number in range(1, len(whole) + 1)]


def _layout(path: Path, lines: Sequence[Line]) -> ColumnLayout:
    for line in lines:
        if not line.wrong and line.text.strip(COLUMN_SEPARATORS) and not line.text.startswith(("#", DOCSTART)):
            tabs = "\t" in line.text
            return ColumnLayout(line.number, tabs, len(_split(line.text, tabs)))
    for line in lines:
        if line.wrong:
            raise line.wrong
    raise InputError(f"{path}: no sentence; a CoNLL file holds a word and its tag a line")


def _split(text: str, tabs: bool) -> list[str]:
    return text.split("\t") if tabs else [value for value in text.split(" ") if value]


def _check_columns(path: Path, layout: ColumnLayout, words: int, tags: int) -> None:
    for name, column in (("words", words), ("tags", tags)):
        if column not in range(-layout.num_columns, layout.num_columns):
            raise InputError(
                f"{path}:{layout.number}: no column {column} (there are {layout.num_columns}, counted from 0); "
                f"name another with --{name}-column"
            )
    if (words - tags) % layout.num_columns == 0:
        raise InputError(
            f"{path}:{layout.number}: words and tags in one column, of {layout.num_columns}; "
            "divide them by a tab or a space, or name others with --words-column and --tags-column"
        )


def _groups(lines: Sequence[Line]) -> Iterator[tuple[int, list[Line]]]:
    """(number of the document, lines) of what stands between blank lines."""
    document, found_any = 0, False  # a sentence, since the last document began
    group: list[Line] = []
    for line in lines:
        divides = line.text.startswith(DOCSTART)
        if not divides and line.text.strip(COLUMN_SEPARATORS):
            group.append(line)
            continue
        if group:
            yield document, group
            group, found_any = [], True
        if divides and found_any:
            document, found_any = document + 1, False
    if group:
        yield document, group


def _words(
    path: Path, lines: Sequence[Line], layout: ColumnLayout, words: int, tags: int
) -> list[tuple[int, list[str]]]:
    """(line number, columns) of each word of a sentence."""
    found: list[tuple[int, list[str]]] = []
    for line in lines:
        if line.wrong:
            raise line.wrong
        values = _split(line.text, layout.tabs)
        if not _is_word(f"{path}:{line.number}", values, layout, words, is_first=not found):
            continue
        if not (values[words] and values[tags]):
            raise InputError(
                f"{path}:{line.number}: an empty column where the word or its tag should stand; fill it in"
            )
        found.append((line.number, values))
    return found


def _is_word(where: str, values: list[str], layout: ColumnLayout, words: int, *, is_first: bool) -> bool:
    """Whether a line holds a word, not a comment nor one of CoNLL-U's other rows. InputError where it is broken."""
    if len(values) == layout.num_columns:
        numbered = len(values) == CONLL_U_COLUMNS and words % CONLL_U_COLUMNS != 0
        return not (numbered and fullmatch(NON_WORD_ID, values[0]))
    if is_first and values[0].startswith("#"):
        return False
    raise InputError(
        f"{where}: {len(values)} columns where line {layout.number} has {layout.num_columns}; mend the line, "
        f"or divide the columns of all by {'tabs' if layout.tabs else 'spaces'}"
    )
