"""Benchmark results: a timing per system and workload, as a table and as JSON."""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from bothways.bench.workload import Workload

PERCENTS = (50, 95, 99)


@dataclass(frozen=True)
class Timing:
    """Timing of one system on one workload.

    text_rates, token_rates: texts and tokens per second, one per measurement. calls: seconds of each call.
    """

    side: str
    work: Workload
    text_rates: tuple[float, ...]
    token_rates: tuple[float, ...]
    calls: tuple[float, ...]

    @property
    def texts_a_second(self) -> float:
        return median(self.text_rates)

    @property
    def tokens_a_second(self) -> float:
        return median(self.token_rates)

    def milliseconds(self, percent: float) -> float:
        """A percentile of the calls' durations, with linear interpolation."""
        return float(np.percentile(self.calls, percent)) * 1e3

    def slower_than(self, other: "Timing") -> float:
        """Ratio of this system's time to another's: the median over the turns."""
        return median(theirs / own for theirs, own in zip(other.text_rates, self.text_rates, strict=True))


@dataclass(frozen=True)
class Measured:
    """All results. setups: configuration by system, this library first; left_out: reasons by peer or length."""

    facts: dict[str, str | int]
    setups: dict[str, str]
    left_out: dict[str, str]
    timings: list[Timing]

    def rows(self) -> Iterator[tuple[Timing, float]]:
        """Each timing, and the speed-up of this library on the same workload."""
        ours = next(iter(self.setups))
        own = {one.work: one for one in self.timings if one.side == ours}
        for one in self.timings:
            yield one, one.slower_than(own[one.work])


def as_json(measured: Measured) -> dict[str, Any]:
    rows = [
        {
            "side": one.side, "texts": one.work.texts, "length": one.work.length, "texts_a_call": one.work.texts_a_call,
            "texts_a_second": one.texts_a_second, "tokens_a_second": one.tokens_a_second,
            **{f"p{percent}_ms": one.milliseconds(percent) for percent in PERCENTS},
            "calls": len(one.calls), "ours_is_faster_by": faster,
        }
        for one, faster in measured.rows()
    ]  # fmt: skip
    return {**measured.facts, "sides": measured.setups, "left_out": measured.left_out, "timings": rows}


def as_table(measured: Measured) -> Iterator[str]:
    """Lines of text: what was measured, a row per timing, and the configurations."""
    yield "{model}: model.{method}; threads: {threads}; {device}, {processor}".format(**measured.facts)
    columns = f"{'texts/s':>10} {'tokens/s':>10} {'p50 ms':>9} {'p95 ms':>9} {'p99 ms':>9}"
    yield f"\n{'texts':12} {'a call':>6}  {'side':30} {columns}  ours is faster by"
    before = None
    for one, faster in measured.rows():
        what = f"{one.work.texts:12} {one.work.texts_a_call:6,}" if one.work is not before else " " * 19
        before = one.work
        times = " ".join(f"{one.milliseconds(percent):9.2f}" for percent in PERCENTS)
        yield f"{what}  {one.side:30} {one.texts_a_second:10,.1f} {one.tokens_a_second:10,.0f} {times}  {faster:.2f}x"
    yield ""
    for name, setup in measured.setups.items():
        yield f"{name}: {setup}"
    for name, why in measured.left_out.items():
        yield f"left out: {name} ({why})"
