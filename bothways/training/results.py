"""A run that is done, as an object: the model, tables for the next line of code, the report, and the comparison with
another run.
"""

import webbrowser
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bothways.base.errors import MissingFile, must_be
from bothways.measure.report.result_tables import as_table
from bothways.settings.fields import AnyPath

if TYPE_CHECKING:
    from bothways.inference.predictor import Predictor

# Files of a run.
PREDICTIONS = "predictions.csv"
LABEL_ERRORS = "label_errors.csv"
REPORT = "report.html"


@dataclass(frozen=True)
class RunResult(ABC):
    """A run that is done.

    directory: of the run.
    model_directory: of the model that the run delivers.
    """

    directory: Path
    model_directory: Path

    @cached_property
    def model(self) -> "Predictor":
        """The model that the run delivers, loaded once."""
        # Imported by name: the package `bothways` itself stands above training.
        loaded: Predictor = import_module("bothways").load(self.model_directory)
        return loaded

    @property
    @abstractmethod
    def reported(self) -> dict[str, float]:
        """The scores that the run reports, by name."""

    @property
    @abstractmethod
    def metrics(self) -> Any:
        """The scores as a table."""

    @abstractmethod
    def compare(self, other: "RunResult | AnyPath") -> "RunComparison":
        """This run beside another run, which may be given by its directory."""

    def report(self, *, open_page: bool = True) -> Path:
        """Open the report of the run in a browser, and return its path. MissingFile if the run has no report."""
        file = self.directory / REPORT
        if not file.exists():
            raise MissingFile(f"{file}: this run has no report; `plot()` draws its curves")
        if open_page:
            webbrowser.open(file.resolve().as_uri())
        return file


def opened(run: RunResult | AnyPath) -> RunResult:
    """The run, which may be given by its directory. InputError for anything else."""
    if isinstance(run, RunResult):
        return run
    if not isinstance(run, str | PathLike) or not str(run):
        # The callers are methods whose argument is called `other`.
        raise must_be("other", run, "a run, such as bothways.open_run(DIRECTORY), or its directory")

    result: RunResult = import_module("bothways").open_run(run)
    return result


@dataclass(frozen=True)
class RunComparison:
    """Two runs side by side.

    runs: names of the first and of the second run.
    scores: a row for each metric: its name as `metric`, and as `first` and `second` the score of each run that has it.
        If both were measured on the same rows, also `difference` (second minus first), with its 95 % interval as `low`
        and `high` if the rows are known.
    note: which rows or texts the scores are of.
    """

    runs: tuple[str, str]
    scores: Sequence[Mapping[str, Any]]
    note: str

    @property
    def table(self) -> Any:
        """The scores as a table."""
        names = ("metric", "first", "second", "difference", "low", "high")
        columns = {name: [score.get(name) for score in self.scores] for name in names}
        return as_table(columns)

    def to_json(self) -> dict[str, Any]:
        """The comparison as `--json` prints it."""
        return {
            "runs": list(self.runs),
            "scores": [dict(score) for score in self.scores],
            "note": self.note,
        }

    def lines(self) -> list[str]:
        """The comparison for people: the runs, a line for each metric, and the note."""
        width = max((len(score["metric"]) for score in self.scores), default=0)
        rows = [f"{score['metric']:{width}}  {_values_line(score)}" for score in self.scores]
        return [
            f"first:  {self.runs[0]}",
            f"second: {self.runs[1]}",
            *rows,
            self.note,
        ]

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>"


def _values_line(score: Mapping[str, Any]) -> str:
    """The scores of both runs in columns, with a blank for a score that is missing, and their difference if any."""
    first = f"{score['first']:9.4f}" if "first" in score else " " * 9
    second = f"{score['second']:9.4f}" if "second" in score else " " * 9
    if "difference" not in score:
        return f"{first} {second}"

    interval = f" (95 % interval {score['low']:+.4f} to {score['high']:+.4f})" if "low" in score else ""
    return f"{first} {second}  difference {score['difference']:+.4f}{interval}"


def side_by_side(first: Mapping[str, Any], second: Mapping[str, Any], *, comparable: bool) -> list[dict[str, Any]]:
    """The numbers of two runs as the `scores` of a RunComparison, without intervals.

    first: the numbers of the first run, by metric.
    second: the numbers of the second run, by metric.
    comparable: whether the difference of two numbers means anything, as on the same rows.

    >>> side_by_side({"loss": 2.5}, {"loss": 2.0, "accuracy": 0.5}, comparable=True)
    [{'metric': 'loss', 'first': 2.5, 'second': 2.0, 'difference': -0.5}, {'metric': 'accuracy', 'second': 0.5}]
    """
    # All metrics of both runs, once each, in the order of the runs.
    metrics = dict.fromkeys([*first, *second])

    scores = []
    for metric in metrics:
        score: dict[str, Any] = {"metric": metric}
        if metric in first:
            score["first"] = first[metric]
        if metric in second:
            score["second"] = second[metric]
        if comparable and metric in first and metric in second:
            score["difference"] = second[metric] - first[metric]

        scores.append(score)
    return scores


def numbers_of(figures: Mapping[str, Any]) -> dict[str, float]:
    """The figures that are numbers."""
    numbers = {}
    for name, value in figures.items():
        # In Python a bool is an int.
        if isinstance(value, int | float) and not isinstance(value, bool):
            numbers[name] = value
    return numbers
