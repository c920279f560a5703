"""Security check of regular expressions in a tokenizer.json (backtracking).

The `tokenizers` library backtracks, so `(a+)+$` doubles its time with each letter of a text. The cost of a pattern is
bounded before it runs: its branches are characters with bounded repetition, and only the last one of a branch may
repeat without bound. Nothing follows that could fail, so nothing is tried again.
"""

import math
import re
from collections.abc import Iterator
from itertools import chain
from reprlib import repr as short_repr
from typing import Any

from bothways.base.errors import InputError

MAX_STEPS = 4096  # per character of text
MAX_PATTERN_LENGTH = 1000
MAX_GROWTH = 100  # characters that replace one character
_ESCAPE = r"\\(?:[dDwWsShHnrtfv]|[^\w\s]|[pP]\{\^?\w+\}|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2})"
_CHARACTER = rf"{_ESCAPE}|\[\^?(?:{_ESCAPE}|[^\\\[\]])+\]|[^\\\[\](){{}}|*+?^$]"
_REPEATED = re.compile(rf"({_CHARACTER})([*+?]|\{{[0-9]{{1,4}}(?:,[0-9]{{0,4}})?\}})?")
_BRANCH = re.compile(rf"(?:{_REPEATED.pattern})+")
# Patterns of published tokenizers: GPT-2, Llama 3, Qwen 2. After a + they backtrack by one character at most.
_WORDS = r"|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
KNOWN_PATTERNS = (
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)" + _WORDS % r"\p{N}{1,3}",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)" + _WORDS % r"\p{N}",
)


def check_patterns(*parts: Any) -> None:
    """InputError if a pattern may be slow on some text, or if replacements make texts too long.

    parts: the normalizer, pre_tokenizer and decoder of a tokenizer.json. Invalid parts are ignored here; the library
    rejects them.
    """
    growth = 1.0
    for step in chain.from_iterable(map(_steps, parts)):
        min_length = _check_pattern(step.get("pattern"))

        content = step.get("content")
        if step.get("type") == "Replace" and isinstance(content, str):
            if min_length:
                growth *= max(1, len(content) / min_length)
            else:  # an empty match before each character
                growth *= len(content) + 1

    if growth > MAX_GROWTH:
        raise InputError(f"the replacements make texts up to {growth:.3g} times as long; the maximum is {MAX_GROWTH}")


def _steps(part: Any) -> Iterator[dict[str, Any]]:
    """All objects inside a part of a tokenizer.json."""
    if isinstance(part, dict):
        yield part
        for value in part.values():
            yield from _steps(value)
    elif isinstance(part, list):
        for value in part:
            yield from _steps(value)


def _check_pattern(pattern: Any) -> int:
    """The minimum number of characters that a pattern matches. InputError if it may be slow on some text."""
    fields = pattern if isinstance(pattern, dict) else {}
    string = fields.get("String")
    min_length = len(string) if isinstance(string, str) else 1

    regex = fields.get("Regex")
    if isinstance(regex, str) and regex not in KNOWN_PATTERNS:
        steps, min_length = _bounds(regex)
        if steps > MAX_STEPS:
            raise InputError(
                f"the regular expression {short_repr(regex)} may be very slow on some texts and is not supported; "
                "unbounded repetition must come last"
            )
    return min_length


def _bounds(regex: str) -> tuple[float, int]:
    """The maximum number of steps per character of text (infinite if unbounded), and the minimum match length."""
    cost = 0
    min_length = MAX_PATTERN_LENGTH
    start = 0
    while len(regex) <= MAX_PATTERN_LENGTH and (branch := _BRANCH.match(regex, start)):
        repeats = [_repeats(count) for _, count in _REPEATED.findall(branch[0])]
        is_unbounded_inside = any(maximum is None for _, maximum in repeats[:-1])
        # The last one may repeat without bound: nothing follows that could make it give characters back.
        bounded = [(minimum, minimum if maximum is None else maximum) for minimum, maximum in repeats]
        if is_unbounded_inside or any(minimum > maximum for minimum, maximum in bounded):
            break

        choices = math.prod(maximum - minimum + 1 for minimum, maximum in bounded)
        cost += choices * (1 + sum(maximum for _, maximum in bounded))
        min_length = min(min_length, sum(minimum for minimum, _ in bounded))

        if branch.end() == len(regex):
            return cost, min_length
        if regex[branch.end()] != "|":
            break
        start = branch.end() + 1

    return math.inf, 0


def _repeats(count: str) -> tuple[int, int | None]:
    """The minimum and maximum number of repetitions; None: unbounded."""
    signs: dict[str, tuple[int, int | None]] = {
        "": (1, 1),
        "?": (0, 1),
        "*": (0, None),
        "+": (1, None),
    }
    if count in signs:
        return signs[count]

    minimum, comma, maximum = count[1:-1].partition(",")
    if not comma:
        return int(minimum), int(minimum)
    return int(minimum), int(maximum) if maximum else None
