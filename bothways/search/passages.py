"""Passages: a document split at headings, then paragraphs, then sentences, up to a budget of tokens."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from bothways.base.errors import InputError
from bothways.base.io import SURROGATES

MAX_TOKEN_CHARACTERS = 16  # so long a text counts as a token at least: a word of 1 MB may be one [UNK]
SENTENCE_WINDOW = 4000  # characters given to sentencex at once: its time is quadratic for some texts
WORD = re.compile(r"\S+")

CountTokens = Callable[[str], int]
Span = tuple[int, int]  # start and end of a slice


@dataclass(frozen=True, slots=True)
class Passage:
    """A slice of a document: text == document[start:end].

    line: of the start, from 1.
    heading: the nearest one above, or within the passage if it starts with one; "" if there is none.
    page: from 1, for documents with pages.
    """

    text: str
    start: int
    end: int
    line: int
    heading: str = ""
    page: int | None = None


def split_passages(
    text: str,
    count_tokens: CountTokens,
    *,
    max_tokens: int = 200,
    language: str = "en",
    is_markdown: bool = False,
    first_line: int = 1,
    page: int | None = None,
) -> list[Passage]:
    """Split a document into passages that do not overlap and hold every character that is not white space.

    A heading (`#` of Markdown) starts a passage, with the text that follows it. Paragraphs are joined up to
    `max_tokens`; a longer one is split into sentences, then words, then characters. Only a single character may have
    more tokens.

    text: of the document.
    count_tokens: the number of tokens of a text.
    max_tokens: of a passage.
    language: of sentencex, for the ends of sentences.
    is_markdown: whether `#` makes a heading.
    first_line: the line of the file at which the text starts.
    page: of the file, that passages are marked with.
    """
    if max_tokens < 1:
        raise InputError(f"max_tokens ({max_tokens}) must be at least 1")

    packer = _Packer(text, count_tokens, max_tokens, language=language)
    for start, end, heading in _blocks(text, is_markdown):
        if heading is None:
            packer.add_text(start, end)
        else:
            packer.add_heading(start, end, heading)
    packer.close()

    passages = []
    line = first_line
    position = 0
    for start, end, heading in packer.spans:
        line += text.count("\n", position, start)  # from the passage before on, so that no line is counted twice
        position = start
        passages.append(
            Passage(
                text=text[start:end],
                start=start,
                end=end,
                line=line,
                heading=heading,
                page=page,
            )
        )
    return passages


# --- paragraphs and headings ------------------------------------------------------------------------------------------


def _blocks(text: str, is_markdown: bool) -> Iterator[tuple[int, int, str | None]]:
    """(start, end, heading or None) of every paragraph and heading, stripped."""
    start = last = -1  # of the paragraph: its first character, and the end of its last line
    position = 0  # of the line
    fence = ""

    for line in text.split("\n"):
        content = line.strip()
        heading = None
        if is_markdown and content and content[0] in "#`~":
            fence, heading = _markdown_state(line, content, fence)

        if start >= 0 and (not content or heading is not None):
            yield start, last, None
            start = -1

        if content:
            first = position + line.find(content[0])
            last = first + len(content)
            if heading is not None:
                yield first, last, heading
            elif start < 0:
                start = first
        position += len(line) + 1

    if start >= 0:
        yield start, last, None


def _markdown_state(line: str, content: str, fence: str) -> tuple[str, str | None]:
    """The code fence that is open after this line, "" if none; and the heading in it, if it is one."""
    character = content[0]
    size = len(content) - len(content.lstrip(character))
    rest = content[size:]
    if line.startswith("    "):  # an indented line is code
        return fence, None

    if fence:
        closes = character == fence[0] and size >= len(fence) and not rest
        return "" if closes else fence, None

    if character == "#":
        is_heading = size <= 6 and (not rest or rest[0] in " \t")
        return "", _heading_text(rest) if is_heading else None

    # Backticks on both sides of a text are code within a line.
    opens = size >= 3 and not (character == "`" and "`" in rest)
    return character * size if opens else "", None


def _heading_text(rest: str) -> str:
    """The text of a heading without the `#` that may close it."""
    text = rest.strip()
    opened = text.rstrip("#")
    return opened.rstrip() if not opened or opened[-1] in " \t" else text


# --- packing up to the budget -----------------------------------------------------------------------------------------


class _Packer:
    """Joins consecutive pieces of a document while their tokens fit into the budget."""

    def __init__(self, text: str, count_tokens: CountTokens, budget: int, *, language: str) -> None:
        self.text = text
        self.count_tokens = count_tokens
        self.budget = budget
        self.language = language
        self.spans: list[tuple[int, int, str]] = []  # finished passages: start, end, heading
        self.heading = ""
        self.start = self.end = -1  # of the current passage; -1: it is empty
        self.num_tokens = 0
        self.holds_text = False  # besides headings

    def add_heading(self, start: int, end: int, heading: str) -> None:
        num_tokens = self._count(start, end)
        # A passage that is half full of headings has no room for the text below them.
        if self.holds_text or (self.num_tokens + num_tokens) * 2 > self.budget:
            self.close()
        self.heading = heading

        if num_tokens * 2 > self.budget:
            self.add_text(start, end)
        else:
            self._join(start, end, num_tokens)

    def add_text(self, start: int, end: int, level: int = 0) -> None:
        """Add a piece, split as far as needed. level: 0 for a paragraph, 1 a sentence, 2 a word."""
        num_tokens = self._count(start, end)
        if self.holds_text and self.num_tokens + num_tokens > self.budget:
            self.close()

        if self.num_tokens + num_tokens <= self.budget:
            self._join(start, end, num_tokens)
            self.holds_text = True
        elif level == 2:
            self._add_characters(start, end)
        else:
            for piece_start, piece_end in self._pieces(start, end, level):
                self.add_text(piece_start, piece_end, level + 1)

    def close(self) -> None:
        if self.start >= 0:
            self.spans.append((self.start, self.end, self.heading))
        self.start = -1
        self.num_tokens = 0
        self.holds_text = False

    def _join(self, start: int, end: int, num_tokens: int) -> None:
        if self.start < 0:
            self.start = start
        self.end = end
        self.num_tokens += num_tokens

    def _count(self, start: int, end: int) -> int:
        by_size = -((start - end) // MAX_TOKEN_CHARACTERS)  # rounded up
        if by_size > self.budget:  # too long in any case, so the tokenizer does not read it
            return by_size
        return max(by_size, self.count_tokens(self.text[start:end]))

    def _pieces(self, start: int, end: int, level: int) -> Iterator[Span]:
        """The sentences of a paragraph (level 0), or the words of a sentence."""
        if level == 0:
            return _sentences(self.text, start, end, self.language)
        return (match.span() for match in WORD.finditer(self.text, start, end))

    def _add_characters(self, start: int, end: int) -> None:
        """Add a word in pieces, each as long as fits when its size is doubled or halved."""
        size = end - start
        while start < end:
            size = min(size, end - start)
            room = self.budget - self.num_tokens
            num_tokens = self._count(start, start + size)
            while num_tokens > room and size > 1:
                size = (size + 1) // 2
                num_tokens = self._count(start, start + size)

            if num_tokens > room and self.start >= 0:
                self.close()  # not even a character fits below the heading, or after the piece before
                continue

            self._join(start, start + size, num_tokens)
            self.holds_text = True
            start += size
            size *= 2


def _sentences(text: str, start: int, end: int, language: str) -> Iterator[Span]:
    """The sentences of a paragraph, stripped; also cut where none ends within SENTENCE_WINDOW characters."""
    from sentencex import segment

    while start < end:
        window = text[start : min(end, start + SENTENCE_WINDOW)]
        try:
            starts = _sentence_starts(window, segment(language, window))
        except UnicodeEncodeError:
            window = SURROGATES.sub("\ufffd", window)
            starts = _sentence_starts(window, segment(language, window))

        if start + len(window) == end:
            starts.append(len(window))
        elif len(starts) == 1:
            starts.append(_last_word(window))

        for first, last in pairwise(starts):
            sentence = window[first:last].rstrip()
            yield start + first, start + first + len(sentence)
        start += starts[-1]  # where the last sentence starts, which may go on after the window


def _sentence_starts(window: str, sentences: Sequence[str]) -> list[int]:
    """Where each sentence starts. They are searched for, as sentencex leaves out some white space between them."""
    starts = [0]
    position = 0
    for sentence in map(str.strip, sentences):
        start = window.find(sentence, position)
        if not sentence or start < 0:
            continue
        if start:
            starts.append(start)
        position = start + len(sentence)
    return starts


def _last_word(window: str) -> int:
    """Where the last word starts, so that it is not cut; the end of the window if there is one word only."""
    stripped = window.rstrip()
    words = stripped.rsplit(None, 1)
    if len(words) < 2:
        return len(window)
    return len(stripped) - len(words[1])
