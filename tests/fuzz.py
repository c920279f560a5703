"""Thousands of broken inputs: mutations of JSON values and bytes, and a loop that allows only one-line errors.

Every case is a function of (seed, number), so that a failure can be repeated alone. `soak/` runs the same with more
cases.
"""

import copy
import json
import math
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, TypeVar

from bothways.base.errors import InputError

Case = TypeVar("Case")
LONGEST_MESSAGE = 2000  # characters
# Written in place of values that `json.dumps` cannot write.
DEEP, DIGITS = "@deep@", "@digits@"
SPELLED = {DEEP: "[" * 100_000 + "]" * 100_000, DIGITS: "9" * 5_000}
NASTY = (
    None, True, False, 0, 1, -1, 2, 3.5, -0.5, 7, 10**9, 2**31, 2**63, 10**400, -(10**18), 1e-300, 1e308, math.inf,
    -math.inf, math.nan, "", " ", "x", "8", "true", "\0", "\ud800", "a\nb", "\x1b[31m", "x" * 5_000, "../x",
    "/dev/zero", [], {}, [[]], [None], [0, 1], ["a", "a"], {"": None}, {"0": 0}, {"a": {"b": []}}, DEEP, DIGITS,
)  # fmt: skip


def mutated(value: Any, random: Random) -> Any:
    """A copy of a JSON value (or of a list of words) with one to three changes."""
    holder = [copy.deepcopy(value)]
    for _ in range(random.choice((1, 1, 2, 3))):
        _change(holder, random)
    return holder[0]


def mutated_json(value: Any, random: Random) -> bytes:
    """A JSON value, mutated, as a file's content; one in eight is no longer JSON."""
    text = json.dumps(mutated(value, random))
    for name, spelled in SPELLED.items():
        text = text.replace(f'"{name}"', spelled)
    content = text.encode()
    return mutated_bytes(content, random) if random.random() < 1 / 8 else content


def mutated_bytes(content: bytes, random: Random) -> bytes:
    """Bytes with one to three changes: cut, overwritten, doubled, or with something strange in between."""
    for _ in range(random.choice((1, 1, 2, 3))):
        start = random.randrange(len(content) + 1)
        end = min(len(content), start + random.choice((1, 2, 8, 64)))
        strange = random.choice((b"", b"\0", b"\xff\xfe", b"\n", b'"', b"{", b"]", b"-1", b"9" * 30, b"\xed\xa0\x80"))
        content = random.choice(
            (
                content[:start],
                content[:start] + content[end:],
                content[:start] + strange + content[end:],
                content[:start] + strange + content[start:],
                content[:start] + content[start:end] * 2 + content[end:],
                content[:start] + random.randbytes(end - start) + content[end:],
            )
        )
    return content


def refusals(number: int, make: Callable[[Random], Case], use: Callable[[Case], object], *, seed: int = 0) -> int:
    """How many of `number` random cases `use` refuses. AssertionError with the first one that raises something other
    than an InputError of one line."""
    refused = 0
    for index in range(number):
        case = make(Random(f"{seed}-{index}"))
        try:
            use(case)
        except InputError as error:
            refused += 1
            if "\n" in str(error) or len(str(error)) > LONGEST_MESSAGE:
                raise AssertionError(f"case {seed}-{index}: not a line: {str(error)[:300]!r}") from error
        except Exception as error:
            raise AssertionError(f"case {seed}-{index}: {error!r:.300} for {case!r:.1000}") from error
    return refused


def _change(holder: list[Any], random: Random) -> None:
    places = list(_places(holder))
    container, key = random.choice(places)
    value = container[key]
    kind = random.randrange(8)
    if kind <= 2:
        container[key] = copy.deepcopy(random.choice(NASTY))
    elif kind == 3 and container is not holder:
        del container[key]
    elif kind == 4:
        container[key] = random.choice(([value], {"a": value}, str(value)[:99]))
    elif kind == 5 and isinstance(value, int | float):
        container[key] = random.choice((value + 1, value - 1, -value, value // 2, value * 10**9, str(value)))
    elif kind == 6 and isinstance(container, dict):
        container[
            random.choice(
                ("", "x", f"{key}x", str(key).upper(), random.choice([one for one in NASTY if isinstance(one, str)]))
            )
        ] = value
    else:
        other, where = random.choice(places)
        container[key] = copy.deepcopy(other[where])


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) inside a JSON value."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield value, key
        if isinstance(inner, dict | list):
            yield from _places(inner)
