"""Questions about a text: a choice among options, yes or no, or ordered levels. Each is a few statements, and each
statement has one score, the log-odds that it holds for the text; all probabilities follow from these.

- yes or no: 1 / (1 + exp(-s))
- a choice: if one option holds at most, option i has exp(s_i) / (1 + sum of exp(s_j)), and none of them 1 / (1 + ...)
- a choice that must be made, and levels: exp(s_i) / sum of exp(s_j)
- an option with several descriptions: the sum of theirs
- a statement that is given several times: its share once, in equal parts

So probabilities keep their own laws: options that are added, left out, merged, repeated or reordered change the others
by one common factor, and nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from bothways.base.errors import InputError, format_count, shorten
from bothways.base.io import read_json_value
from bothways.tasks.decide.decoding import Decision

MOST_OPTIONS = 255
YES, NO = "yes", "no"
Scores = NDArray[np.float32]
Description: TypeAlias = str | Sequence[str]  # of an option: one, or several of which one holds
Options: TypeAlias = Iterable[str] | Mapping[str, Description]


class AskedQuestion(ABC):
    """What is asked about a text.

    statements: whose scores answer it, each a few words.
    """

    @property
    @abstractmethod
    def statements(self) -> tuple[str, ...]: ...

    @property
    def is_choice(self) -> bool:
        """Whether one of the statements holds at most, or none."""
        return False

    @abstractmethod
    def answer(self, scores_K: Scores) -> Decision:
        """The decision from the score of each statement."""


@dataclass(frozen=True, eq=False)
class OneOf(AskedQuestion):
    """Which option fits. Two are equal only if their options have the same order.

    options: what each option is called, and its descriptions.
    text: the question, which is read before each description; "": none.
    none: whether no option may fit.
    """

    options: Mapping[str, tuple[str, ...]]
    text: str = ""
    none: bool = True

    @staticmethod
    def of(options: Options, text: str = "", *, none: bool = True) -> OneOf:
        """options: names, which describe themselves; or names with one description or several.

        InputError for no options, equal names or an empty description."""
        read = read_options(options)
        return OneOf(read, text.strip(), none)

    @property
    def _key(self) -> tuple[object, ...]:
        return (*self.options.items(),), self.text, self.none

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OneOf) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def is_choice(self) -> bool:
        return True

    @property
    def statements(self) -> tuple[str, ...]:
        return tuple(
            f"{self.text} {description}".strip()
            for descriptions in self.options.values()
            for description in descriptions
        )

    def answer(self, scores_K: Scores) -> Decision:
        shares, none = shares_of(self.statements, scores_K, with_none=self.none)
        probabilities: dict[str, float] = {}
        place = 0
        for name, descriptions in self.options.items():
            probabilities[name] = float(sum(sorted(shares[place : place + len(descriptions)])))
            place += len(descriptions)
        return Decision.of(probabilities, none)


@dataclass(frozen=True)
class YesNo(AskedQuestion):
    """Whether a statement, or the answer to a question, is true."""

    text: str

    def __post_init__(self) -> None:
        """InputError for an empty text."""
        if not self.text.strip():
            raise InputError("a question of yes or no is empty; give a question or a statement")

    @property
    def statements(self) -> tuple[str, ...]:
        return (self.text.strip(),)

    def answer(self, scores_K: Scores) -> Decision:
        shares, none = shares_of(self.statements, scores_K, with_none=True)
        return Decision.of({YES: float(shares[0]), NO: none}, 0.0)


@dataclass(frozen=True)
class Levels(AskedQuestion):
    """How much, on a scale of ordered levels, the lowest first."""

    levels: tuple[str, ...]
    text: str = ""

    def __post_init__(self) -> None:
        """InputError for no levels, and for those that cannot be told apart or are empty."""
        read_options(self.levels)

    @property
    def statements(self) -> tuple[str, ...]:
        return tuple(f"{self.text} {level}".strip() for level in self.levels)

    def answer(self, scores_K: Scores) -> Decision:
        shares, _ = shares_of(self.statements, scores_K, with_none=False)
        probabilities = dict(zip(self.levels, shares.tolist(), strict=True))
        mean = float(np.dot(shares, np.arange(len(shares))))
        return Decision.of(probabilities, 0.0, level=mean)


def statements_of(questions: Iterable[AskedQuestion]) -> list[str]:
    """The statements of all these questions, one question after another."""
    return [statement for question in questions for statement in question.statements]


def answers_of(questions: Sequence[AskedQuestion], scores_K: Scores) -> list[Decision]:
    """The decision of each question, from the scores of their statements (`statements_of`)."""
    ends = np.cumsum([len(question.statements) for question in questions])[:-1]
    return [question.answer(scores_k) for question, scores_k in zip(questions, np.split(scores_K, ends), strict=True)]


def shares_of(statements: Sequence[str], scores_K: Scores, *, with_none: bool) -> tuple[NDArray[np.float64], float]:
    """The probability of each statement, and that none holds, if one holds at most.

    A statement that is given several times is one event: each of its places has an equal part of its probability, and
    the other statements have what they have without the repetition.

    The sum is in the order of the scores, so that the order of the options does not change a bit."""
    times = Counter(statements)
    times_K = np.array([times[statement] for statement in statements])

    scores = scores_K.astype(np.float64)
    largest = max(scores.max(), 0.0) if with_none else scores.max()
    powers_K = np.exp(scores - largest) / times_K
    none = float(np.exp(-largest)) if with_none else 0.0
    total = sum(sorted([*powers_K.tolist(), none]))
    return powers_K / total, none / total


def named_options(options: str) -> Options:
    """The options of a setting: names separated by commas, or the content of a .json file. InputError if that is
    neither a list of names nor an object of descriptions."""
    if not options.endswith(".json"):
        return [name.strip() for name in options.split(",")]

    content = read_json_value(Path(options))
    if not isinstance(content, list | dict):
        raise InputError(f'{options}: expected {{"NAME": "DESCRIPTION", ...}} or a list of names')
    return content


def read_options(options: Options) -> dict[str, tuple[str, ...]]:
    """Names of options with their descriptions. InputError for those that cannot be told apart or are empty."""
    if isinstance(options, str):
        raise InputError(f"options is one string, {shorten(repr(options))}; give a list of options")
    if isinstance(options, Mapping):
        named = [(name, (value,) if isinstance(value, str) else tuple(value)) for name, value in options.items()]
    else:
        named = [(name, (name,)) for name in options]

    if not 1 <= len(named) <= MOST_OPTIONS:
        raise InputError(f"{format_count(len(named), 'option')} given; a choice has 1 to {MOST_OPTIONS}")
    read: dict[str, tuple[str, ...]] = {}
    for name, descriptions in named:
        for text in (name, *descriptions):
            if not isinstance(text, str) or not text.strip():
                raise InputError(f"option {name!r:.60}: its name and descriptions must be texts that are not empty")
        if name in read:
            raise InputError(f"option {name!r:.60} is given twice; give each option once")
        if not descriptions:
            raise InputError(f"option {name!r:.60} has no description; give one, or its name alone")
        read[name] = tuple(text.strip() for text in descriptions)
    return read
