"""What `bothways search` prints: passages with their files and lines, the matching sentence marked, or JSON lines."""

import os
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from bothways.base.log import print_json, print_lines, print_styled
from bothways.search.commands import SearchResult
from bothways.search.matching import Span, matching_sentence, matching_words
from bothways.search.spaces import open_vectors
from bothways.search.store import Hit, hit_json

# ANSI styles, with the colours of grep.
PATH, LINE, DIM, SENTENCE, WORD = "35", "32", "2", "1", "1;31"
NOTHING = "Nothing was found."
ONLY_WEAK = "No clear match. The nearest passages:"
Segment = tuple[str, str]  # a text and its style


def print_hits(result: SearchResult, query: str, *, json: bool, only_files: bool) -> bool:
    """Print hits as JSON, names of files, or text; coloured in a terminal without $NO_COLOR, and with $FORCE_COLOR.
    Returns whether there was one to print."""
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
    colors = bool(os.environ.get("FORCE_COLOR") or (sys.stdout.isatty() and not os.environ.get("NO_COLOR")))
    for answer in result.answers or ():
        print_styled([(answer.text, SENTENCE), (f"  {answer.score:.2f}  ", DIM), *_place(answer.hit)], color=colors)
    if result.answers:
        print_lines("")
    for number, hit in enumerate(result.hits):
        before, after = result.around[number] if result.around else ([], [])
        heading = f"  {hit.heading}" if hit.heading else ""
        score = f"  {hit.score:.3f}{' weak' if hit.weak else ''}"
        print_styled([*_place(hit), (heading, ""), (score, DIM)], color=colors)
        for lines in (*map(_plain, before), _marked(result, hit, query), *map(_plain, after)):
            print_styled(*lines, color=colors)
        print_lines("")
    return True


def _json(result: SearchResult, hit: Hit, query: str) -> dict[str, Any]:
    answers = [vars(answer) for answer in result.answers or () if answer.hit is hit]
    answer = {key: value for key, value in answers[0].items() if key != "hit"} if answers else None
    return hit_json(hit) | {"match": [*_sentence(result, hit, query)], "answer": answer}


def _name(path: Path) -> str:
    """The path, relative to the working directory if it is inside."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _place(hit: Hit) -> list[Segment]:
    page = [(":", ""), (f"page {hit.page}", LINE)] if hit.page is not None else []
    line = [(":", ""), (str(hit.line), LINE)] if hit.line is not None else []
    return [(_name(hit.path), PATH), *page, *line]


def _sentence(result: SearchResult, hit: Hit, query: str) -> Span:
    static = open_vectors("static", result.store.database.get("static_model"))
    return matching_sentence(hit.text, query, result.store.analyzer, static)


def _plain(hit: Hit) -> list[list[Segment]]:
    return [[(f"  {line}", DIM)] for line in hit.text.split("\n")]


def _marked(result: SearchResult, hit: Hit, query: str) -> list[list[Segment]]:
    """The lines of a passage: its matching sentence in bold, the words of the query coloured."""
    start, end = _sentence(result, hit, query)
    words = matching_words(hit.text, query, result.store.analyzer)
    bounds = sorted({0, start, end, len(hit.text), *(bound for span in words for bound in span)})
    lines: list[list[Segment]] = [[("  ", "")]]
    for first, last in pairwise(bounds):
        style = _style(first, words, (start, end))
        for number, piece in enumerate(hit.text[first:last].split("\n")):
            if number:
                lines.append([("  ", "")])
            lines[-1].append((piece, style))
    return lines


def _style(position: int, words: Sequence[Span], sentence: Span) -> str:
    if any(start <= position < end for start, end in words):
        return WORD
    return SENTENCE if sentence[0] <= position < sentence[1] else ""
