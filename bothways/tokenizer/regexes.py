"""Regular expressions of a tokenizer.json, which comes from strangers: only those that are known to end soon are run.

The library backtracks, so that `(a+)+$` takes twice as long with each letter of a text. Instead of waiting for a clock,
what a pattern costs is bounded before it runs: its branches are characters that repeat a few times, and at most the
last one of a branch repeats without end. Nothing follows it that could fail, so nothing is tried again.
"""

import math
import re
from collections.abc import Iterator
from itertools import chain
from reprlib import repr as shortened
from typing import Any

from bothways.errors import InputError

MOST_STEPS = 4096  # a character of text
LONGEST = 1000  # characters of a pattern
MOST_GROWTH = 100  # characters that one character may become
_ESCAPE = r"\\(?:[dDwWsShHnrtfv]|[^\w\s]|[pP]\{\^?\w+\}|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2})"
_CHARACTER = rf"{_ESCAPE}|\[\^?(?:{_ESCAPE}|[^\\\[\]])+\]|[^\\\[\](){{}}|*+?^$]"
_REPEATED = re.compile(rf"({_CHARACTER})([*+?]|\{{[0-9]{{1,4}}(?:,[0-9]{{0,4}})?\}})?")
_BRANCH = re.compile(rf"(?:{_REPEATED.pattern})+")
# Of published tokenizers: GPT-2's, then those of Llama 3 and Qwen 2. What follows a + in them takes back one character
# at most.
_WORDS = r"|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
KNOWN_PATTERNS = (
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)" + _WORDS % r"\p{N}{1,3}",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)" + _WORDS % r"\p{N}",
)


def check_patterns(*parts: Any) -> None:
    """InputError if a part of a tokenizer.json has a pattern that may take long on some text, or makes texts too long.

    parts: its normalizer, pre_tokenizer and decoder. What is not as the library writes it is left to the library.
    """
    growth = 1.0
    for step in chain.from_iterable(map(_steps, parts)):
        pattern = step.get("pattern")
        known = pattern if isinstance(pattern, dict) else {}
        shortest = len(known["String"]) if isinstance(known.get("String"), str) else 1
        if isinstance(regex := known.get("Regex"), str) and regex not in KNOWN_PATTERNS:
            steps, shortest = _bounds(regex)
            if not steps <= MOST_STEPS:
                raise InputError(
                    f"its regular expression {shortened(regex)} may take very long on some texts and is not supported; "
                    "characters that repeat without end must come last in it"
                )
        if step.get("type") == "Replace" and isinstance(content := step.get("content"), str):
            growth *= max(1, len(content) / shortest if shortest else len(content) + 1)
    if growth > MOST_GROWTH:
        raise InputError(f"its replacements make texts up to {growth:.3g} times as long, and {MOST_GROWTH} is the most")


def _steps(part: Any) -> Iterator[dict[str, Any]]:
    """All objects inside a part of a tokenizer.json."""
    inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    if isinstance(part, dict):
        yield part
    for one in inner:
        yield from _steps(one)


def _bounds(regex: str) -> tuple[float, int]:
    """Steps at each character of a text, at most (infinite if they are not bounded), and characters taken, at least."""
    cost, shortest, start = 0, LONGEST, 0
    while len(regex) <= LONGEST and (branch := _BRANCH.match(regex, start)):
        repeats = [_repeats(count) for _, count in _REPEATED.findall(branch[0])]
        bounded = [(least, least if most is None else most) for least, most in repeats]
        if None in [most for _, most in repeats[:-1]] or any(least > most for least, most in bounded):
            break
        cost += math.prod(most - least + 1 for least, most in bounded) * (1 + sum(most for _, most in bounded))
        shortest = min(shortest, sum(least for least, _ in bounded))
        if branch.end() == len(regex):
            return cost, shortest
        if regex[branch.end()] != "|":
            break
        start = branch.end() + 1
    return math.inf, 0


def _repeats(count: str) -> tuple[int, int | None]:
    """How often a character repeats, at least and at most; None: without end."""
    signs: dict[str, tuple[int, int | None]] = {"": (1, 1), "?": (0, 1), "*": (0, None), "+": (1, None)}
    if count in signs:
        return signs[count]
    least, comma, most = count[1:-1].partition(",")
    return int(least), (int(most) if most else None) if comma else int(least)
