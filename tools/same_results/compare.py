"""The differences of two results, as lines."""

from collections.abc import Iterator, Mapping
from typing import Any

from tools.same_results.plan import TOLERANT

LINES = 20  # of differences that are printed of a section


def differences(before: Any, after: Any, tolerance: float = 0.0, path: str = "") -> Iterator[str]:
    """A line for each key or item of the results that differs, with both values."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in [*before, *(key for key in after if key not in before)]:
            where = f"{path}/{key}"
            if key not in after:
                yield f"{where}: only before: {shown(before[key])}"
            elif key not in before:
                yield f"{where}: only after: {shown(after[key])}"
            else:
                yield from differences(before[key], after[key], tolerance, where)
        if before.keys() == after.keys() and [*before] != [*after]:
            yield f"{path}: order of keys: before {shown([*before])}, after {shown([*after])}"
    elif isinstance(before, list) and isinstance(after, list):
        if len(before) != len(after):
            yield f"{path}: before {len(before)} items, after {len(after)}"
        for index, (one, other) in enumerate(zip(before, after, strict=False)):
            yield from differences(one, other, tolerance, f"{path}[{index}]")
    elif not equal(before, after, tolerance):
        yield f"{path}: before {shown(before)}, after {shown(after)}"


def equal(before: Any, after: Any, tolerance: float) -> bool:
    if type(before) is not type(after):
        return False
    if isinstance(before, float):
        return repr(before) == repr(after) or 0.0 < tolerance >= abs(before - after)
    return bool(before == after)


def shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def report(before: Mapping[str, Any], after: Mapping[str, Any], tolerance: float = 0.0) -> tuple[list[str], bool]:
    """Lines about each section, and whether all are the same."""
    lines = []
    all_same = True
    for section in before:
        found = [*differences(before[section], after[section], tolerance if section in TOLERANT else 0.0)]
        number_found = f"{len(found)} difference{'s' * (len(found) > 1)}"
        lines.append(f"{section}: {number_found if found else 'same'}")
        lines += [f"  {line}" for line in found[: LINES - 1]]
        all_same &= not found
    return lines, all_same
