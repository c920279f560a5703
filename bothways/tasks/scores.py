"""Scores by name, with a primary score and 95 % intervals; predictions with their gold labels."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from bothways.base.errors import RowLocation
from bothways.base.results import format_value
from bothways.measure import metrics
from bothways.measure.metrics import Intervals

PROBABILITY = "probability_"  # the columns of a table that begin with it hold the probability of a label each


def probability_column(label: str) -> str:
    return f"{PROBABILITY}{label}"


@dataclass(frozen=True, eq=False, repr=False)
class Scores(Mapping[str, Any]):
    """Scores of predictions, a mapping from name to value. The 95 % interval of a score follows it as NAME_interval;
    the number of rows and other counts come last.

    primary: the name of the score that models are compared by.
    by_name: the scores and their intervals.
    counts: of rows and others.
    secondary: another score to show with the primary one.
    maximum: the maximum of the primary score: 1, or 100 (SQuAD's scores).
    intervals: the intervals, with the bootstrap resamples that pair these scores with the scores of other predictions
    for the same rows; None if they were not computed.
    dtype: the number format in which the model computed, such as "float32"; "" if unknown.
    """

    primary: str
    by_name: dict[str, Any]
    counts: dict[str, Any] = field(default_factory=dict)
    secondary: str | None = None
    maximum: float = 1.0
    intervals: Intervals | None = None
    dtype: str = ""

    @staticmethod
    def with_intervals(primary: str, scores: Mapping[str, Any], intervals: Intervals | None, **more: Any) -> "Scores":
        return Scores(primary, metrics.with_intervals(scores, intervals or {}), intervals=intervals, **more)

    def __getitem__(self, name: str) -> Any:
        return self.counts[name] if name in self.counts else self.by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter((*self.by_name, *self.counts))

    def __len__(self) -> int:
        return len(self.by_name) + len(self.counts)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in self.items())
        return f"Scores({values}; primary: {self.primary})"

    def to_json(self) -> dict[str, Any]:
        dtype = {"dtype": self.dtype} if self.dtype else {}
        return {"metrics": dict(self), **dtype}

    def lines(self) -> Iterator[str]:
        intervals = {name: f"{name}_interval" for name in self if f"{name}_interval" in self}
        for name, value in self.items():
            if name in intervals:
                low, high = map(format_value, self[intervals[name]])
                yield f"{name:24} {format_value(value):8} (95 % interval {low} to {high})"
            elif isinstance(value, dict) and value and all(isinstance(inner, dict) for inner in value.values()):
                yield from _table_lines(name, value)
            elif name not in intervals.values() and (isinstance(value, bool | float) or value != 0):
                yield f"{name:24} {format_value(value)}"
        if self.dtype:
            yield f"{'computed in':24} {self.dtype}"

    @property
    def percentages(self) -> dict[str, float]:
        """The primary and the secondary score in percent."""
        names = [self.primary]
        if self.secondary:
            names.append(self.secondary)
        return {name: float(self.by_name[name]) * (100 / self.maximum) for name in names}


def _table_lines(name: str, rows: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A table of scores, one row per entry."""
    columns = dict.fromkeys(key for row in rows.values() for key in row)
    yield f"{name:24} {' '.join(f'{column:>10}' for column in columns)}"
    for key, row in rows.items():
        cells = [format_value(row.get(column, "")) for column in columns]
        yield f"  {key:22} {' '.join(f'{cell:>10}' for cell in cells)}"


@dataclass(frozen=True)
class Predictions:
    """Predictions and gold labels for rows that the model was not trained on. All entries are JSON values.

    where: the location of each row.
    gold: its labels.
    predicted: its predictions.
    groups: the independent unit that a row belongs to: a document or passage, a group of rows, or the first of its near
    duplicates.
    details: further values of a row, by task, such as the probabilities of its most likely classes.
    """

    where: list[str]
    gold: list[Any]
    predicted: list[Any]
    groups: list[str]
    details: list[Any]

    def to_json(self) -> dict[str, Any]:
        """The same as a file of a run has it, where the location of a row is a list of its fields."""
        where = [place.to_json() if isinstance(place, RowLocation) else place for place in self.where]
        return {**vars(self), "where": where}

    @staticmethod
    def from_json(stored: Mapping[str, Any]) -> "Predictions":
        where = [RowLocation(*place) if isinstance(place, list) else place for place in stored["where"]]
        return Predictions(**{**stored, "where": where})

    @staticmethod
    def of_rankings(scores_by_query: Mapping[str, Mapping[str, float]]) -> "Predictions":
        """The scores of the ranking of each query, which is a unit of its own.

        scores_by_query: the values of the metrics, by the location of the query.
        """
        where = [*scores_by_query]
        return Predictions(
            where=where,
            gold=[None] * len(where),
            predicted=[*scores_by_query.values()],
            groups=where,
            details=[None] * len(where),
        )

    @staticmethod
    def joined(parts: Iterable["Predictions"]) -> "Predictions":
        whole = Predictions(where=[], gold=[], predicted=[], groups=[], details=[])
        for part in parts:
            whole.where.extend(part.where)
            whole.gold.extend(part.gold)
            whole.predicted.extend(part.predicted)
            whole.groups.extend(part.groups)
            whole.details.extend(part.details)
        return whole

    def take(self, rows: Iterable[int]) -> "Predictions":
        """These rows only."""
        chosen = [*rows]
        return Predictions(
            where=[self.where[row] for row in chosen],
            gold=[self.gold[row] for row in chosen],
            predicted=[self.predicted[row] for row in chosen],
            groups=[self.groups[row] for row in chosen],
            details=[self.details[row] for row in chosen],
        )


def count_skipped(skipped: Counter[str]) -> dict[str, int]:
    """{"skipped": number of rows}, if any were skipped."""
    return {"skipped": skipped.total()} if skipped else {}
