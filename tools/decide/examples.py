"""A text and statements about it, each with whether it holds."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

TOPIC_FORMS = (
    *["{}"] * 6,
    "What is this about? {}",
    "What is the text about? {}",
    "This is about {}.",
    "This text is about {}.",
    "The topic is {}.",
    "Which topic fits? {}",
    "It is about {}.",
    "Subject: {}",
    "{}.",
)
YES_NO_FORMS = ("Is this about {}?", "Does the text deal with {}?", "The text mentions {}.", "Is {} the topic?")


@dataclass(frozen=True)
class Example:
    """A text and statements about it.

    kind: the rule.
    holds: of each statement, whether it holds.
    is_choice: whether one of them holds at most.
    opposites: numbers of two statements of which exactly one holds.
    """

    kind: str
    text: str
    statements: tuple[str, ...]
    holds: tuple[bool, ...]
    is_choice: bool
    opposites: tuple[tuple[int, int], ...] = ()


def in_a_form(
    kind: str,
    text: str,
    right: str,
    others: Sequence[str],
    rng: random.Random,
    forms: Sequence[str] | None = None,
) -> Example:
    """A text with the right name among others, or sometimes without it, all of them in one form.

    forms: those to choose from (default: those of topics)."""
    if forms is None:
        forms = TOPIC_FORMS if rng.random() < 0.85 else YES_NO_FORMS
    form = rng.choice(forms)
    wrong = [form.format(name) for name in others if name.lower() != right.lower()]
    has_right = rng.random() < 0.88
    return Example(
        kind=kind,
        text=text,
        statements=(form.format(right), *wrong) if has_right else tuple(wrong),
        holds=(True,) * has_right + (False,) * len(wrong),
        is_choice=True,
    )
