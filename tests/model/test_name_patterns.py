"""Patterns of module names in files of peft: what `re` says, in steps that grow with the lengths of both."""

import random
import re

import pytest

from bothways.model.adapters import name_patterns
from bothways.model.adapters.name_patterns import MAX_DEPTH, MAX_PATTERN, PatternError, matches_end
from tests.steps import count_lines

NAMES = ["query", "layer.1.query", "layer.11.query", "layer.1.value", "encoder.layer.1.query", "query_2", ""]


@pytest.mark.parametrize(
    "pattern",
    ["query", "layer.1.query", r"layer\.1\..*", r"layer\.(0|1)\.(query|value)", "^layer.*", "que", r".*\.(query|q_lin)",
     r"layer\.\d+\.(?:key|query)", "[^l]*y", "quer[xy]$", "", "q?u+e*ry", "(encoder|layer)?.*y", r"layer\.1|query"],
)  # fmt: skip
def test_names_match_as_in_peft(pattern):
    # The way in which peft asks (its get_pattern_key).
    expected = [name for name in NAMES if re.match(rf"(.*\.)?({pattern})$", name)]
    assert [name for name in NAMES if matches_end(pattern, name)] == expected


@pytest.mark.parametrize("seed", range(4))
def test_random_patterns_match_as_re_says(seed):
    draw = random.Random(seed)
    parts = ["a", "b", ".", r"\.", "a*", "b+", "a?", ".*", "(a|b)", "(ab)*", "(a|b*.)?", "|", "[^a]", r"\w", "(?:b|)+"]
    compared = 0
    while compared < 200:
        pattern = "".join(draw.choice(parts) for _ in range(draw.randint(1, 5)))
        name = "".join(draw.choice("ab.") for _ in range(draw.randint(0, 6)))
        assert matches_end(pattern, name) == bool(re.fullmatch(rf"(.*\.)?({pattern})", name)), (pattern, name)
        compared += 1


@pytest.mark.parametrize(
    "pattern",
    ["(", "(a", "a)", "[a", "a{2}", "(?=a)", "(?P<n>a)", r"\1", r"\b", "a\\", "a**", "*a", "a$b", "[z-a]",
     "(" * (MAX_DEPTH + 1) + "a" + ")" * (MAX_DEPTH + 1), "a" * (MAX_PATTERN + 1)],
)  # fmt: skip
def test_what_is_not_read_is_an_error(pattern):
    with pytest.raises(PatternError):
        matches_end(pattern, "a")


def steps_of(pattern, name):
    assert not matches_end(pattern, name)
    return count_lines(name_patterns, lambda: matches_end(pattern, name))


@pytest.mark.parametrize("part", [".*", ".?", "a*", "(.|.)", "(a|a)", "(.*.)*", "(a*)+", ".*a.*a"])
def test_steps_grow_with_the_lengths_alone(part):
    small, large = (steps_of(part * n + "!", "a." * 4 * n) for n in (5, 20))
    assert 0 < large <= 24 * small  # four times the pattern, four times the name, and what is built once
