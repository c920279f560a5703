"""Files of word vectors: Word2Vec's text and binary formats, and GloVe's text format.

Words are looked up as the files have them: a text is split into words and punctuation, and a word that is missing is
tried in lower case.
"""

import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from bothways.base.errors import InputError
from bothways.model.linear.static_vectors import StaticVectors, VectorTable, read_static

HEADER = re.compile(rb"(\d{1,10}) (\d{1,6})\s*\n")
WORD = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]")
LONGEST_WORD = 10_000  # bytes
LONGEST_LINE = 1_000_000
SAMPLE = 4096  # bytes that show whether a file is binary


def open_static(path: Path) -> StaticVectors:
    """The static vectors in a directory, or in a file of word vectors."""
    if path.is_file():
        return read_word_vectors(path)
    return read_static(path)


def read_word_vectors(path: Path) -> StaticVectors:
    """The vectors of a file. InputError if it is neither Word2Vec nor GloVe, or damaged."""
    words: list[str] = []
    vectors: list[np.ndarray] = []
    with path.open("rb") as file:
        form = _read_form(file)
        if form.size < 2:
            raise InputError(f"{path}: no word vectors; expected a file of Word2Vec (.bin, .txt) or GloVe (.txt)")

        if form.is_binary and form.number is not None:
            rows = _binary_rows(file, form.number, form.size)
        else:
            rows = _text_rows(file, path, form.size)

        try:
            for word, vector in rows:
                if len(vector) != form.size:
                    raise InputError(f"{path}: the vector of {word!r} has {len(vector)} numbers, expected {form.size}")
                words.append(word)
                vectors.append(vector)
        except InputError:
            raise
        except ValueError as error:
            raise InputError(f"{path}: damaged ({error}); copy it again") from None

    if form.number is not None and len(words) != form.number:
        raise InputError(
            f"{path}: has {len(words):,} word vectors, and {form.number:,} by its first line; copy it again"
        )
    if not words:
        raise InputError(f"{path}: has no word vectors; copy it again")

    tokenizer: Any = WordTokenizer(words)
    table = VectorTable(np.stack(vectors))
    return StaticVectors(tokenizer, table, facts={"base_model": path.name}).checked(path)


class _Form(NamedTuple):
    """Numbers of a vector, of words if the first line has it (Word2Vec), and whether they are bytes."""

    size: int
    number: int | None
    is_binary: bool


def _read_form(file: IO[bytes]) -> _Form:
    """The form of a file, which is then at its first word."""
    start = len(BOM_UTF8) if file.read(len(BOM_UTF8)) == BOM_UTF8 else 0
    file.seek(start)
    head = file.read(SAMPLE)

    header = HEADER.match(head)
    if header:
        file.seek(start + header.end())
        return _Form(size=int(header[2]), number=int(header[1]), is_binary=b"\0" in head)

    # GloVe has no header: the first word has as many numbers as all others.
    file.seek(start)
    line = file.readline(LONGEST_LINE).decode("utf-8", "replace")
    file.seek(start)
    return _Form(size=_count_numbers(line), number=None, is_binary=False)


def _binary_rows(file: IO[bytes], number: int, size: int) -> Iterator[tuple[str, np.ndarray]]:
    for _ in range(number):
        word = bytearray()
        byte = file.read(1)
        while byte != b" ":
            if not byte or len(word) > LONGEST_WORD:
                raise ValueError("it ends within a word")
            word += byte
            byte = file.read(1)

        content = file.read(4 * size)
        if len(content) < 4 * size:
            raise ValueError("it ends within a vector")
        yield word.decode("utf-8", "replace").lstrip("\n"), np.frombuffer(content, "<f4")


def _text_rows(file: IO[bytes], path: Path, size: int) -> Iterator[tuple[str, np.ndarray]]:
    for number, line in enumerate(file, 1):
        word, *values = line.decode("utf-8", "replace").rstrip().split(" ")
        # Some words of GloVe have spaces, such as ". . .".
        more = len(values) - size
        if more > 0 and not all(map(_is_number, values[:more])):
            word = " ".join([word, *values[:more]])
            values = values[more:]

        try:
            yield word, np.array([float(value) for value in values], np.float32)
        except ValueError:
            raise InputError(f"{path}:{number}: not a word with numbers; copy the file again") from None


def _count_numbers(line: str) -> int:
    """How many numbers are at the end of a line, behind a word."""
    values = line.rstrip().split(" ")[1:]
    return len([*takewhile(_is_number, reversed(values))])


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


class WordTokenizer:
    """Splits texts into whole words; has what static vectors use of a Tokenizer."""

    def __init__(self, words: list[str]) -> None:
        self.tokens = words
        # Of a word that occurs twice, the first counts.
        self.index_by_word = {word: index for index, word in reversed([*enumerate(words)])}

    def __len__(self) -> int:
        return len(self.tokens)

    def ids(self, text: str) -> list[int]:
        """The ids of the words that are known."""
        ids = []
        for word in WORD.findall(text):
            index = self.index_by_word.get(word)
            if index is None:
                index = self.index_by_word.get(word.lower())
            if index is not None:
                ids.append(index)
        return ids

    def save(self, path: Path) -> None:
        raise InputError(f"{path}: word vectors are not saved in another format; keep their file")
