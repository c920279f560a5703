"""Files of word vectors: Word2Vec's text and binary formats, and GloVe's text format.

Words are looked up as the files have them: a text is split into words and punctuation, and a word that is missing is
tried in lower case.
"""

import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import IO, Any

import numpy as np

from bothways.base.errors import InputError
from bothways.model.linear.static_vectors import StaticVectors, VectorTable, read_static

HEADER = re.compile(rb"(\d{1,10}) (\d{1,6})\s*\n")
WORD = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]")
LONGEST_WORD, LONGEST_LINE = 10_000, 1_000_000  # bytes
SAMPLE = 4096  # bytes that show whether a file is binary


class WordTokenizer:
    """Splits texts into whole words; has what static vectors use of a Tokenizer."""

    def __init__(self, words: list[str]) -> None:
        self.tokens = words
        self.index_by_word = {word: index for index, word in reversed([*enumerate(words)])}

    def __len__(self) -> int:
        return len(self.tokens)

    def ids(self, text: str) -> list[int]:
        """The ids of the words that are known."""
        known = self.index_by_word
        indices = (known.get(word, known.get(word.lower(), -1)) for word in WORD.findall(text))
        return [index for index in indices if index >= 0]

    def save(self, path: Path) -> None:
        raise InputError(f"{path}: word vectors are not saved in another format; keep their file")


def open_static(path: Path) -> StaticVectors:
    """The static vectors in a directory, or in a file of word vectors."""
    return read_word_vectors(path) if path.is_file() else read_static(path)


def read_word_vectors(path: Path) -> StaticVectors:
    """The vectors of a file. InputError if it is neither Word2Vec nor GloVe, or damaged."""
    with path.open("rb") as file:
        start = len(BOM_UTF8) if file.read(len(BOM_UTF8)) == BOM_UTF8 else 0
        file.seek(start)
        head = file.read(SAMPLE)
        header = HEADER.match(head)
        file.seek(start)
        size = int(header[2]) if header else _count_numbers(file.readline(LONGEST_LINE).decode("utf-8", "replace"))
        if size < 2:
            raise InputError(f"{path}: no word vectors; expected a file of Word2Vec (.bin, .txt) or GloVe (.txt)")
        file.seek(start + (header.end() if header else 0))
        is_binary = header is not None and b"\0" in head
        rows = _binary_rows(file, int(header[1]), size) if is_binary and header else _text_rows(file, path, size)
        words: list[str] = []
        vectors: list[np.ndarray] = []
        try:
            for word, vector in rows:
                if len(vector) != size:
                    raise InputError(f"{path}: the vector of {word!r} has {len(vector)} numbers, expected {size}")
                words.append(word)
                vectors.append(vector)
        except ValueError as error:
            raise (
                error if isinstance(error, InputError) else InputError(f"{path}: damaged ({error}); copy it again")
            ) from None
    if header and len(words) != int(header[1]):
        raise InputError(
            f"{path}: has {len(words):,} word vectors, and {int(header[1]):,} by its first line; copy it again"
        )
    if not words:
        raise InputError(f"{path}: has no word vectors; copy it again")
    tokenizer: Any = WordTokenizer(words)
    return StaticVectors(tokenizer, VectorTable(np.stack(vectors)), facts={"base_model": path.name}).checked(path)


def _binary_rows(file: IO[bytes], number: int, size: int) -> Iterator[tuple[str, np.ndarray]]:
    for _ in range(number):
        word = bytearray()
        while (byte := file.read(1)) != b" ":
            if not byte or len(word) > LONGEST_WORD:
                raise ValueError("it ends within a word")
            word += byte
        content = file.read(4 * size)
        if len(content) < 4 * size:
            raise ValueError("it ends within a vector")
        yield word.decode("utf-8", "replace").lstrip("\n"), np.frombuffer(content, "<f4")


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


def _text_rows(file: IO[bytes], path: Path, size: int) -> Iterator[tuple[str, np.ndarray]]:
    for number, line in enumerate(file, 1):
        word, *values = line.decode("utf-8", "replace").rstrip().split(" ")
        if (more := len(values) - size) > 0 and not all(map(_is_number, values[:more])):
            # Some words of GloVe have spaces, such as ". . .".
            word, values = " ".join([word, *values[:more]]), values[more:]
        try:
            yield word, np.array([float(value) for value in values], np.float32)
        except ValueError:
            raise InputError(f"{path}:{number}: not a word with numbers; copy the file again") from None
