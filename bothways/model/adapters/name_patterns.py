"""Patterns of module names in files of peft, matched without backtracking.

peft writes regular expressions such as `layers\\.(0|1)\\..*(query|value)`. They come from strangers, and Python's `re`
tries a name again for each choice. Here all states that a name may have reached are followed at once (Thompson 1968),
so the steps are at most the length of a pattern times the length of a name. Characters, `.`, sets in brackets, groups,
`|`, `*`, `+` and `?` are read, and an anchor at either end.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

Test = Callable[[str], bool]
CLASSES = {
    "d": r"\d",
    "D": r"\D",
    "w": r"\w",
    "W": r"\W",
    "s": r"\s",
    "S": r"\S",
}
MAX_PATTERN = 1000  # characters
MAX_DEPTH = 20  # groups within each other


class PatternError(ValueError):
    """A pattern that is not read."""


@dataclass
class Automaton:
    """States by number.

    moves: the test of a state's character, and the state after it.
    jumps: of each state, the states that are reached without a character.
    start: of the pattern.
    end: of the pattern.
    """

    moves: dict[int, tuple[Test, int]] = field(default_factory=dict)
    jumps: list[list[int]] = field(default_factory=list)
    start: int = 0
    end: int = 0

    def state(self) -> int:
        self.jumps.append([])
        return len(self.jumps) - 1

    def reach(self, states: Iterable[int]) -> set[int]:
        """The states, and those that are reached from them without a character."""
        reached: set[int] = set()
        waiting = [*states]
        while waiting:
            state = waiting.pop()
            if state not in reached:
                reached.add(state)
                waiting += self.jumps[state]
        return reached

    def matches(self, name: str) -> bool:
        """Whether the whole name is matched."""
        states = self.reach([self.start])
        for character in name:
            moves = (self.moves[state] for state in states if state in self.moves)
            states = self.reach(after for test, after in moves if test(character))
            if not states:
                return False
        return self.end in states


def matches_end(pattern: str, name: str) -> bool:
    """Whether a pattern matches a module's name or its end after a dot, as in peft. PatternError if it is not read."""
    if len(pattern) > MAX_PATTERN:
        raise PatternError(f"a pattern of {len(pattern):,} characters, of {MAX_PATTERN:,} at most")

    body = pattern.removeprefix("^")
    if body.endswith("$") and not body.endswith("\\$"):
        body = body[:-1]

    reader = _PatternReader(body)
    automaton = reader.automaton
    automaton.start, automaton.end = reader.choices()
    if reader.index < len(body):
        raise PatternError("unbalanced parenthesis")
    if not pattern.startswith("^"):
        _let_anything_precede(automaton)
    return automaton.matches(name)


def _let_anything_precede(automaton: Automaton) -> None:
    """Let a name begin with anything that ends with a dot."""
    before = automaton.state()
    loop = automaton.state()
    dot = automaton.state()
    automaton.jumps[before] += [automaton.start, loop]
    automaton.jumps[loop].append(dot)
    automaton.moves[loop] = (_is_any, loop)
    automaton.moves[dot] = (lambda character: character == ".", automaton.start)
    automaton.start = before


def _is_any(character: str) -> bool:
    return character != "\n"


class _PatternReader:
    """Reads a pattern from left to right. Each part is a pair of states: before it and after it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.index = 0
        self.depth = 0
        self.automaton = Automaton()

    def next(self) -> str:
        """The next character; "" at the end."""
        return self.text[self.index : self.index + 1]

    def choices(self) -> tuple[int, int]:
        start = self.automaton.state()
        end = self.automaton.state()
        while True:
            first, last = self.row()
            self.automaton.jumps[start].append(first)
            self.automaton.jumps[last].append(end)
            if self.next() != "|":
                return start, end
            self.index += 1

    def row(self) -> tuple[int, int]:
        start = end = self.automaton.state()
        while self.next() not in ("", "|", ")"):
            first, last = self.repeated()
            self.automaton.jumps[end].append(first)
            end = last
        return start, end

    def repeated(self) -> tuple[int, int]:
        first, last = self.part()
        sign = self.next()
        if sign in ("*", "+", "?"):
            self.index += 1
            start = self.automaton.state()
            end = self.automaton.state()
            self.automaton.jumps[start].append(first)
            self.automaton.jumps[last].append(end)
            if sign != "+":
                self.automaton.jumps[start].append(end)
            if sign != "?":
                self.automaton.jumps[last].append(first)
            first = start
            last = end

        after = self.next()
        if after in ("*", "+", "?", "{"):
            raise PatternError(f"{after!r} at character {self.index} is not read")
        return first, last

    def part(self) -> tuple[int, int]:
        if self.next() == "(":
            return self.group()
        test = self.character()
        first = self.automaton.state()
        last = self.automaton.state()
        self.automaton.moves[first] = (test, last)
        return first, last

    def group(self) -> tuple[int, int]:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise PatternError(f"more than {MAX_DEPTH} groups within each other")
        self.index += 3 if self.text.startswith("(?:", self.index) else 1
        first, last = self.choices()
        if self.next() != ")":
            raise PatternError("a group that is not closed")
        self.index += 1
        self.depth -= 1
        return first, last

    def character(self) -> Test:
        sign = self.next()
        if sign in ("*", "+", "?", "{", "}", "^", "$", "]"):
            raise PatternError(f"{sign!r} at character {self.index} is not read")
        self.index += 1
        if sign == ".":
            return _is_any
        if sign == "[":
            return self.characters()
        if sign != "\\":
            return lambda character: character == sign

        escaped = self.next()
        self.index += 1
        if escaped in CLASSES:
            return _one_of(CLASSES[escaped])
        if not escaped or escaped.isalnum():
            raise PatternError(f"\\{escaped} is not read")
        return lambda character: character == escaped

    def characters(self) -> Test:
        """The characters in brackets, the first of which may be a bracket that belongs to the set."""
        start = self.index - 1
        first = self.index + (1 if self.next() == "^" else 0)
        end = self.text.find("]", first + 1)
        if end < 0:
            raise PatternError("a set that is not closed")
        self.index = end + 1
        return _one_of(self.text[start : self.index])


def _one_of(written: str) -> Test:
    """The test of a set of characters as `re` writes it; of one character, so there is nothing to try again."""
    try:
        compiled = re.compile(written)
    except re.error as error:
        raise PatternError(str(error)) from None
    return lambda character: compiled.fullmatch(character) is not None
