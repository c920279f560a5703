"""Candidates: models that may take the place of another, measured alike, and the best of them within the stated loss.

`model -sources-> candidates -measure-> size, speed, score, loss -choose-> the one that is kept`

`SOURCES` names all sources. `prune`, `quantize`, `shrink` and `export --int8` are presets: each has its sources, its
rows and its rule. Candidates are measured in measuring.py and drawn in picture.py.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from bothways.base.errors import format_count
from bothways.base.log import logger
from bothways.base.registry import load_name
from bothways.shrink import picture
from bothways.shrink.measuring import Candidate, Measured, Sample, Scale

# --- sources ----------------------------------------------------------------------------------------------------------


# Of each verb, "module:name" of functions from its plan, and the list of all that has been measured, to candidates: the
# first yields the unchanged model first. A candidate is measured before the next is asked for.
SOURCES: dict[str, tuple[str, ...]] = {
    "prune": ("bothways.shrink.prune:cuts",),
    "shrink": ("bothways.shrink.prune:cuts_and_int8",),
    "quantize": ("bothways.shrink.quantize:in_int8",),
    "export": ("bothways.shrink.export.int8:in_int8",),
}


# --- choosing ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rule:
    """Which candidate is kept.

    max_drop: points that a candidate may lose; inf: any number.
    best: of the candidates that lose no more, the fastest, the smallest or the last is kept.
    by_interval: the upper end of the 95 % interval of the loss on the reported rows counts, instead of the loss on dev.
    """

    max_drop: float
    best: Literal["speed", "size", "last"] = "last"
    by_interval: bool = False

    @property
    def is_limited(self) -> bool:
        return not math.isinf(self.max_drop)

    @property
    def limit(self) -> float | None:
        """max_drop; None: there is no limit."""
        return self.max_drop if self.is_limited else None

    def allows(self, measured: Measured) -> bool:
        if self.by_interval:
            return measured.drop.is_within(self.max_drop)
        return measured.dev_drop.points <= self.max_drop or not self.is_limited


def compare(verb: str, plan: Any, samples: tuple[Sample, Sample], rule: Rule) -> tuple[list[Measured], Candidate]:
    """Measure the candidates of all sources of a verb, one after the other, and return the best with the measures.

    verb: a key of SOURCES.
    plan: the argument of these sources.
    samples: rows that candidates are chosen on, and rows that are reported.
    rule: for the choice of the best.
    """
    measured = list[Measured]()
    scale = None
    best = None
    for source in SOURCES[verb]:
        for candidate in load_name(source)(plan, measured):
            logger.info(f"measuring: {candidate.name}")
            if scale is None:
                scale = Scale(*samples, candidate)
            measured.append(scale.measure(candidate))
            logger.info(str(measured[-1]))

            if best is None or choose(measured, rule) == len(measured) - 1:
                best = candidate  # the others need not stay in memory
    assert best is not None
    return measured, best


def choose(measured: Sequence[Measured], rule: Rule) -> int:
    """The index of the best candidate that the rule allows; without any, 0: the unchanged model."""
    orders: dict[str, Callable[[int], tuple[float, ...]]] = {
        "speed": lambda index: (measured[index].speed, -measured[index].size),
        "size": lambda index: (-measured[index].size, measured[index].speed),
        "last": lambda index: (index,),
    }
    allowed = [index for index, row in enumerate(measured) if rule.allows(row)]
    return max(allowed, key=orders[rule.best], default=0)


# --- the result -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Choice:
    """The result: all candidates, the first of which is the unchanged model, and the one that is kept.

    directory: of the result.
    model: directory or file of the model that is kept.
    split: of the reported rows.
    rows: number of the reported rows.
    rule: by which the candidate was chosen.
    kept: index of the candidate in `model`.
    notes: further lines for the user.
    picture: of score against speed, if one was drawn.
    """

    directory: Path
    model: Path
    split: str
    rows: int
    rule: Rule
    measured: list[Measured]
    kept: int
    notes: tuple[str, ...] = ()
    picture: Path | None = None

    @property
    def metric(self) -> str:
        return self.measured[0].drop.metric

    @property
    def best(self) -> Measured:
        return self.measured[self.kept]

    @property
    def fastest(self) -> Measured:
        return max(self.measured, key=lambda row: row.speed)

    @property
    def record(self) -> dict[str, Any]:
        """For the metadata of the model."""
        return {"measured": [*map(asdict, self.measured)], "kept": self.kept}

    def draw(self, file: Path) -> Path:
        """Write a picture (SVG) of score (%) against speed; see picture.py."""
        return picture.draw(
            self.measured,
            file,
            kept=self.kept,
            max_drop=self.rule.limit,
            metric=self.metric,
            split=self.split,
        )

    def to_json(self) -> dict[str, Any]:
        values = asdict(self)
        del values["rule"]
        return values | {
            "directory": str(self.directory),
            "model": str(self.model),
            "picture": str(self.picture) if self.picture else None,
            "metric": self.metric,
            "fastest": self.fastest.name,
            "max_drop": self.rule.limit,
        }

    def lines(self) -> list[str]:
        """The candidates, one a line, and notes."""
        name_width = max(20, *(len(row.name) for row in self.measured))
        lines = [self._table_head(name_width)]
        lines += [self._table_row(index, name_width) for index in range(len(self.measured))]

        lines.append(f"scores: {self.metric} on {self.split} ({format_count(self.rows, 'row')})")
        limit = f"{self.rule.max_drop:g}"
        if self.rule.by_interval:
            allowed = f"a loss of {limit} is allowed" if self.best.drop.is_gain else f"{limit} are allowed"
            lines.append(f"{self.best.name} {self.best.drop}; {allowed}")
        elif self.rule.is_limited:
            lines.append(f"chosen on dev, where at most {limit} points may be lost")

        lines += self.notes
        if self.picture:
            lines.append(f"picture in {self.picture}")
        lines.append(f"model in {self.directory}")
        return lines

    def _table_head(self, name_width: int) -> str:
        metrics = "".join(f"  {name:>12}" for name in self.measured[0].figures)
        sizes = f"{'MB':>7} {'weights':>7} {'texts/s':>8} {'speed':>6}"
        return f"{'':{name_width}} {sizes}{metrics} {'lost':>6}  95 % interval"

    def _table_row(self, index: int, name_width: int) -> str:
        row = self.measured[index]
        figures = "".join(f"  {row.figures[name]:12.2f}" for name in self.measured[0].figures)

        lost = ""
        if index > 0:  # the first has nothing to lose against
            low, high = row.drop.interval
            lost = f" {row.drop.points:z6.2f}  {low:z.2f} to {high:z.2f}"

        mark = "  <- kept" if index == self.kept else ""
        return (
            f"{row.name:{name_width}} {row.size / 1e6:7.1f} {row.share:7.0%} {row.texts_per_second:8,.0f} "
            f"{row.speed:6.2f}{figures}{lost}{mark}"
        )
