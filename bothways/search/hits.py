"""The result of a search: passages with their files and lines, the matching sentence marked, and answers in them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from bothways.base.results import JsonValues
from bothways.base.terminal import Line, Segment
from bothways.search.matching import Span, matching_sentence, matching_words
from bothways.search.spaces import open_vectors
from bothways.search.store import Hit, Store

# ANSI styles, with the colours of grep.
PATH = "35"
LINE = "32"
DIM = "2"
SENTENCE = "1"
WORD = "1;31"

NOTHING = "Nothing was found."
ONLY_WEAK = "No clear match. The nearest passages:"


@dataclass(frozen=True)
class SourcedAnswer:
    """An exact answer in a passage: hit.text[start:end] == text.

    score: of the hit (its part in 0..1) times the probability of the model.
    """

    text: str
    start: int
    end: int
    score: float
    hit: Hit

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "hit"}


@dataclass(frozen=True)
class SearchResult:
    """The result of a search.

    store: in which was searched.
    query: what was searched for, whose words are marked.
    hits: passages, best first.
    around: the passages before and after each hit; [] if none were asked for.
    answers: best first; None if no model was named for them.
    only_files: the lines are the names of the files with a hit that is not weak.
    """

    store: Store
    query: str
    hits: list[Hit]
    around: list[tuple[list[Hit], list[Hit]]] = field(default_factory=list)
    answers: list[SourcedAnswer] | None = None
    only_files: bool = False

    @property
    def relevant(self) -> bool:
        """Whether a passage is not weak."""
        return not all(hit.weak for hit in self.hits)

    @property
    def exit_status(self) -> int:
        """1 if there is nothing to print, as of grep."""
        is_found = self.relevant if self.only_files else bool(self.hits)
        return 0 if is_found else 1

    def to_json(self) -> JsonValues:
        """An object for each hit."""
        return JsonValues(
            {
                **hit.to_json(),
                "match": [*_sentence(self, hit)],
                "answer": next((answer.to_json() for answer in self.answers or () if answer.hit is hit), None),
            }
            for hit in self.hits
        )

    def lines(self) -> Iterator[Line]:
        """The names of files, or the answers and the passages."""
        if self.only_files:
            yield from dict.fromkeys(_name(hit.path) for hit in self.hits if not hit.weak)
            return

        if not self.hits:
            yield NOTHING
            return

        if not self.relevant:
            yield ONLY_WEAK
            yield ""
        yield from self._answer_lines()
        for number, hit in enumerate(self.hits):
            yield from self._passage_lines(number, hit)
            yield ""

    def _answer_lines(self) -> Iterator[Line]:
        for answer in self.answers or ():
            yield [(answer.text, SENTENCE), (f"  {answer.score:.2f}  ", DIM), *_source(answer.hit)]
        if self.answers:
            yield ""

    def _passage_lines(self, number: int, hit: Hit) -> Iterator[Line]:
        heading = f"  {hit.heading}" if hit.heading else ""
        weak = " weak" if hit.weak else ""
        yield [*_source(hit), (heading, ""), (f"  {hit.score:.3f}{weak}", DIM)]

        before: list[Hit] = []
        after: list[Hit] = []
        if self.around:
            before, after = self.around[number]
        for neighbour in before:
            yield from _plain(neighbour)
        yield from _marked(self, hit)
        for neighbour in after:
            yield from _plain(neighbour)


def _name(path: Path) -> str:
    """The path, relative to the working directory if it is inside."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _source(hit: Hit) -> list[Segment]:
    """The file of a passage, with its page and line, if it has them."""
    segments = [(_name(hit.path), PATH)]
    if hit.page is not None:
        segments += [(":", ""), (f"page {hit.page}", LINE)]
    if hit.line is not None:
        segments += [(":", ""), (str(hit.line), LINE)]
    return segments


def _plain(hit: Hit) -> list[list[Segment]]:
    return [[(f"  {line}", DIM)] for line in hit.text.split("\n")]


def _marked(result: SearchResult, hit: Hit) -> list[list[Segment]]:
    """The lines of a passage: its matching sentence in bold, the words of the query coloured."""
    sentence = _sentence(result, hit)
    words = matching_words(hit.text, result.query, result.store.analyzer)

    # The style can only change where a sentence or a word starts or ends.
    bounds = {0, len(hit.text), *sentence}
    for word in words:
        bounds.update(word)

    lines: list[list[Segment]] = [[("  ", "")]]
    for first, last in pairwise(sorted(bounds)):
        style = _style(first, words, sentence)
        for number, piece in enumerate(hit.text[first:last].split("\n")):
            if number:
                lines.append([("  ", "")])
            lines[-1].append((piece, style))
    return lines


def _sentence(result: SearchResult, hit: Hit) -> Span:
    static = open_vectors("static", result.store.database.get("static_model"))
    return matching_sentence(hit.text, result.query, result.store.analyzer, static)


def _style(position: int, words: Sequence[Span], sentence: Span) -> str:
    for start, end in words:
        if start <= position < end:
            return WORD
    start, end = sentence
    return SENTENCE if start <= position < end else ""
