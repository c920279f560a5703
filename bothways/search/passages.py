"""Passages: a document cut at headings, paragraphs, sentences and words, each an exact slice within a token budget."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sentencex import get_sentence_boundaries

Span = tuple[int, int]
CountTokens = Callable[[str], int]

HEADING = re.compile(r"[ ]{0,3}(#{1,6})[ \t]+(\S.*)")
FENCE = re.compile(r"[ ]{0,3}(```|~~~)")
WORDS = re.compile(r"\S+\s*")
LONGEST_SENTENCE = 20_000  # characters given to the sentence splitter at once
PIECE_CHARACTERS = 400  # of a word that is longer than a passage


@dataclass(frozen=True, slots=True)
class Passage:
    """A slice of a document: text == document[start:end]. line: of its first character, from 1. heading: the nearest
    one above, "" if there is none. page: in a document with pages, from 1."""

    text: str
    start: int
    end: int
    line: int = 1
    heading: str = ""
    page: int | None = None


def split_passages(
    text: str, count_tokens: CountTokens, *, max_tokens: int = 200, language: str = "en", is_markdown: bool = False
) -> list[Passage]:
    """Passages of at most max_tokens tokens, in order. They do not overlap, and every character that is no white space
    is in one of them. A heading of Markdown begins a passage."""
    passages = []
    line, counted = 1, 0  # the line of the character at `counted`
    for heading, start, end in _sections(text, is_markdown):
        for first, last in _fill(_blocks(text, start, end, count_tokens, max_tokens, language), max_tokens):
            piece = text[first:last]
            first, last = first + len(piece) - len(piece.lstrip()), first + len(piece.rstrip())
            if first < last:
                line += text.count("\n", counted, first)
                counted = first
                passages.append(Passage(text[first:last], first, last, line, heading))
    return passages


def _sections(text: str, is_markdown: bool) -> Iterator[tuple[str, int, int]]:
    """(heading, start, end) of the parts of a document that begin with a heading; the first may have none."""
    heading, start, position, fence = "", 0, 0, ""
    for line in text.splitlines(keepends=True) if is_markdown else ():
        if match := FENCE.match(line):
            fence = "" if fence == match[1] else fence or match[1]
        elif not fence and (match := HEADING.match(line)):
            if text[start:position].strip():
                yield heading, start, position
            heading, start = match[2].strip().rstrip("#").strip(), position
        position += len(line)
    yield heading, start, len(text)


def _fill(blocks: Iterator[tuple[int, int, int]], max_tokens: int) -> Iterator[Span]:
    """Neighbouring blocks (start, end, tokens) joined while they fit."""
    first, last, total = 0, 0, 0
    for start, end, tokens in blocks:
        if total and total + tokens > max_tokens:
            yield first, last
            total = 0
        first = start if not total else first
        last, total = end, total + tokens
    if total:
        yield first, last


def _blocks(
    text: str, start: int, end: int, count: CountTokens, most: int, language: str
) -> Iterator[tuple[int, int, int]]:
    """(start, end, tokens) of paragraphs; of sentences where a paragraph is too long, and of words where a sentence
    is. Counts are those of the parts, which for all tokenizers but a few are those of the whole."""
    for first, last in _paragraphs(text, start, end):
        tokens = count(text[first:last])
        if tokens <= most:
            yield first, last, max(1, tokens)
            continue
        for begin, finish in _sentences(text, first, last, language):
            tokens = count(text[begin:finish])
            if tokens <= most:
                yield begin, finish, max(1, tokens)
            else:
                yield from _pieces(text, begin, finish, count, most)


def _paragraphs(text: str, start: int, end: int) -> Iterator[Span]:
    first = start
    for match in re.compile(r"\n[^\S\n]*\n\s*").finditer(text, start, end):
        if text[first : match.start()].strip():
            yield first, match.start()
        first = match.end()
    if text[first:end].strip():
        yield first, end


def _sentences(text: str, start: int, end: int, language: str) -> Iterator[Span]:
    for first in range(start, end, LONGEST_SENTENCE):
        part = text[first : min(first + LONGEST_SENTENCE, end)]
        part = part.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if _has_surrogate(part) else part
        for sentence in get_sentence_boundaries(language, part):
            begin, finish = first + sentence["start_index"], first + sentence["end_index"]
            if text[begin:finish].strip():
                yield begin, finish


def _has_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _pieces(text: str, start: int, end: int, count: CountTokens, most: int) -> Iterator[tuple[int, int, int]]:
    """Words; a word that is longer than a passage, such as base64, is cut."""
    for match in WORDS.finditer(text, start, end):
        first, last = match.span()
        tokens = count(match[0]) if last - first <= PIECE_CHARACTERS else most + 1
        if tokens <= most:
            yield first, last, max(1, tokens)
            continue
        size = max(1, min(PIECE_CHARACTERS, most))
        for begin in range(first, last, size):
            yield begin, min(begin + size, last), max(1, count(text[begin : min(begin + size, last)]))
