"""The output of `bothways search`: passages with their files and lines, the matching sentence marked, or JSON lines."""

import os
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from bothways.base.terminal import print_json, print_lines, print_styled
from bothways.search.commands import SearchResult, run_search
from bothways.search.matching import Span, matching_sentence, matching_words
from bothways.search.spaces import open_vectors
from bothways.search.store import Hit, hit_json
from bothways.settings.search import Search

# ANSI styles, with the colours of grep.
PATH = "35"
LINE = "32"
DIM = "2"
SENTENCE = "1"
WORD = "1;31"

NOTHING = "Nothing was found."
ONLY_WEAK = "No clear match. The nearest passages:"
Segment = tuple[str, str]  # a text and its style


def run(settings: Search) -> None:
    """Search, and print the hits. The exit status is 1 without any, as of grep."""
    is_printed = print_hits(
        run_search(settings),
        settings.query,
        json=settings.json,
        only_files=settings.files_with_matches,
    )
    if not is_printed:
        sys.exit(1)


def print_hits(result: SearchResult, query: str, *, json: bool, only_files: bool) -> bool:
    """Print hits as JSON, names of files, or text; coloured in a terminal without $NO_COLOR, and with $FORCE_COLOR.

    result: the hits.
    query: what was searched for, whose words are marked.
    json: print JSON lines.
    only_files: print the names of files with a hit that is not weak.

    Returns whether there was a hit to print.
    """
    if json:
        print_json(*(_json(result, hit, query) for hit in result.hits))
        return bool(result.hits)

    if only_files:
        names = dict.fromkeys(_name(hit.path) for hit in result.hits if not hit.weak)
        print_lines(*names)
        return bool(names)

    if not result.hits:
        print_lines(NOTHING)
        return False

    if not result.relevant:
        print_lines(ONLY_WEAK, "")
    _print_passages(result, query, color=_is_coloured())
    return True


def _json(result: SearchResult, hit: Hit, query: str) -> dict[str, Any]:
    answer = None
    for sourced in result.answers or ():
        if sourced.hit is hit:
            answer = {name: value for name, value in vars(sourced).items() if name != "hit"}
            break
    return {**hit_json(hit), "match": [*_sentence(result, hit, query)], "answer": answer}


def _name(path: Path) -> str:
    """The path, relative to the working directory if it is inside."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _is_coloured() -> bool:
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def _print_passages(result: SearchResult, query: str, *, color: bool) -> None:
    for answer in result.answers or ():
        segments = [(answer.text, SENTENCE), (f"  {answer.score:.2f}  ", DIM), *_source(answer.hit)]
        print_styled(segments, color=color)
    if result.answers:
        print_lines("")

    for number, hit in enumerate(result.hits):
        heading = f"  {hit.heading}" if hit.heading else ""
        weak = " weak" if hit.weak else ""
        head = [*_source(hit), (heading, ""), (f"  {hit.score:.3f}{weak}", DIM)]
        print_styled(head, color=color)

        before: list[Hit] = []
        after: list[Hit] = []
        if result.around:
            before, after = result.around[number]
        for neighbour in before:
            print_styled(*_plain(neighbour), color=color)
        print_styled(*_marked(result, hit, query), color=color)
        for neighbour in after:
            print_styled(*_plain(neighbour), color=color)
        print_lines("")


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


def _marked(result: SearchResult, hit: Hit, query: str) -> list[list[Segment]]:
    """The lines of a passage: its matching sentence in bold, the words of the query coloured."""
    sentence = _sentence(result, hit, query)
    words = matching_words(hit.text, query, result.store.analyzer)

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


def _sentence(result: SearchResult, hit: Hit, query: str) -> Span:
    static = open_vectors("static", result.store.database.get("static_model"))
    return matching_sentence(hit.text, query, result.store.analyzer, static)


def _style(position: int, words: Sequence[Span], sentence: Span) -> str:
    for start, end in words:
        if start <= position < end:
            return WORD
    start, end = sentence
    return SENTENCE if start <= position < end else ""
