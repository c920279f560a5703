"""Benchmark results: a timing per system and workload, as a table and as JSON."""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from benchmarks.speed.workload import Workload

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
    def texts_per_second(self) -> float:
        return median(self.text_rates)

    @property
    def tokens_per_second(self) -> float:
        return median(self.token_rates)

    def milliseconds(self, percent: float) -> float:
        """A percentile of the calls' durations, with linear interpolation."""
        return float(np.percentile(self.calls, percent)) * 1e3

    def slower_than(self, other: "Timing") -> float:
        """Ratio of this system's time to another's: the median over the turns."""
        return median(theirs / ours for theirs, ours in zip(other.text_rates, self.text_rates, strict=True))


@dataclass(frozen=True)
class Measured:
    """All results. setups: configuration by system, this library first; left_out: reasons by peer or length."""

    facts: dict[str, str | int]
    setups: dict[str, str]
    left_out: dict[str, str]
    timings: list[Timing]

    @property
    def has_comparison(self) -> bool:
        """Whether several systems were measured."""
        return len(self.setups) > 1

    def rows(self) -> Iterator[tuple[Timing, float]]:
        """Each timing, and the speed-up of this library on the same workload."""
        ours = next(iter(self.setups))
        reference = {timing.work: timing for timing in self.timings if timing.side == ours}
        for timing in self.timings:
            yield timing, timing.slower_than(reference[timing.work])


def as_json(measured: Measured) -> dict[str, Any]:
    rows = [
        {
            "side": one.side,
            "texts": one.work.texts,
            "length": one.work.length,
            "texts_per_call": one.work.texts_per_call,
            "texts_per_second": one.texts_per_second,
            "tokens_per_second": one.tokens_per_second,
            **{f"p{percent}_ms": one.milliseconds(percent) for percent in PERCENTS},
            "calls": len(one.calls),
            "speed_up": faster,
        }
        for one, faster in measured.rows()
    ]
    return {**measured.facts, "sides": measured.setups, "left_out": measured.left_out, "timings": rows}


def as_table(measured: Measured) -> Iterator[str]:
    """Lines of text: what was measured, a row per timing, and the configurations."""
    yield "{model}: model.{method}; threads: {threads}; {device}, {processor}".format(**measured.facts)
    columns = f"{'texts/s':>10} {'tokens/s':>10} {'p50 ms':>9} {'p95 ms':>9} {'p99 ms':>9}"
    yield ""
    yield f"{'texts':10} {'per call':>8}  {'system':30} {columns}  speed-up of bothways"
    before = None
    for one, faster in measured.rows():
        what = f"{one.work.texts:10} {one.work.texts_per_call:8,}" if one.work is not before else " " * 19
        before = one.work
        times = " ".join(f"{one.milliseconds(percent):9.2f}" for percent in PERCENTS)
        rates = f"{one.texts_per_second:10,.1f} {one.tokens_per_second:10,.0f}"
        yield f"{what}  {one.side:30} {rates} {times}  {faster:.2f}x"
    yield ""
    for name, setup in measured.setups.items():
        yield f"{name}: {setup}"
    for name, why in measured.left_out.items():
        yield f"left out: {name} ({why})"
