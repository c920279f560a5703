"""Two fine-tuning runs side by side, paired on the rows that both predict."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bothways.base.errors import format_count
from bothways.measure.report.result_tables import read_columns
from bothways.tasks import TASKS
from bothways.tasks.scores import Scores
from bothways.tasks.text_rows import TextModelTask
from bothways.text.data.near_duplicates import first_locations, text_key
from bothways.training.finetuning.ground.score import Score
from bothways.training.results import PREDICTIONS, RunComparison, RunResult, numbers_of, side_by_side

if TYPE_CHECKING:
    from bothways.training.finetuning.deliver import FineTuneResult

RowKey = tuple[tuple[str, ...], str, int]  # texts, gold label, and the number of earlier rows that are equal
Predicted = Mapping[RowKey, Any]


def compare_runs(first: "FineTuneResult", second: RunResult) -> RunComparison:
    """The scores of both runs: on the rows that both predict, with 95 % intervals of the differences if there are any,
    else the scores that each run reports."""
    runs = (str(first.directory), str(second.directory))
    theirs = getattr(second, "metric", None)

    if getattr(second, "task", None) != first.task or theirs != first.metric:
        scores = side_by_side(first.reported, second.reported, comparable=False)
        return RunComparison(runs, scores, "the tasks or metrics differ: no differences")

    by_row = predicted(first)
    other = predicted(second)
    common = [row for row in by_row if row in other]

    if not common:
        reason = "the runs predict other rows" if by_row and other else f"no pairs of rows for {first.task}"
        scores = side_by_side(first.reported, second.reported, comparable=False)
        return RunComparison(runs, scores, f"{reason}: no differences")

    left = score(first, common, [by_row[row] for row in common])
    right = score(first, common, [other[row] for row in common])
    scores = side_by_side(numbers_of(left.by_name), numbers_of(right.by_name), comparable=True)
    for one in scores:
        one |= _interval(one["metric"], left, right)

    left_out = ", ".join(
        f"{len(rows) - len(common):,} of {run}" for rows, run in zip((by_row, other), runs, strict=True)
    )
    is_same = len(common) == len(by_row) == len(other)
    note = f"on the same {format_count(len(common), 'row')}" + ("" if is_same else f"; left out: {left_out}")
    return RunComparison(runs, scores, note)


def predicted(run: RunResult) -> Predicted:
    """The predictions of a run. Nothing for tasks whose rows have no label or number."""
    file = run.directory / PREDICTIONS
    task = TASKS[getattr(run, "task", "embed")].load()
    if not isinstance(task, TextModelTask) or not file.exists():
        return {}
    columns = read_columns(file)
    texts = zip(*(columns[name] for name in ("text", "pair") if name in columns), strict=True)
    rows = [*zip(texts, map(str, columns["gold"]), strict=True)]
    numbers = list[int]()
    seen = Counter[Any]()
    for row in rows:
        numbers.append(seen[row])
        seen[row] += 1
    keys = [(*row, number) for row, number in zip(rows, numbers, strict=True)]
    return dict(zip(keys, columns["predicted"], strict=True))


def score(run: "FineTuneResult", rows: Sequence[RowKey], predictions: Sequence[Any]) -> Scores:
    """The scores of some rows' predictions, with resamples that depend on the rows only."""
    keys = [tuple(map(text_key, texts)) for texts, *_ in rows]
    units = first_locations(keys, [str(row) for row in range(len(rows))])
    task = TASKS[run.task].load()
    gold = [label for _, label, _ in rows]
    assert isinstance(task, TextModelTask)
    read = label_reader(run)
    return task.evaluator(run.model, None).compare([*map(read, gold)], [*map(read, predictions)], units)


def label_reader(run: "FineTuneResult") -> Callable[[str], Any]:
    """How a label of predictions.csv is read: a list of labels, a number or a text."""
    if run.model.description.multi_label:
        return lambda value: frozenset(json.loads(value))
    return str if run.model.labels else float


def _interval(metric: str, first: Scores, second: Scores) -> dict[str, float]:
    """The 95 % interval of the difference of a metric, if it has resamples."""
    if first.intervals is None or second.intervals is None or metric not in first.intervals.resamples:
        return {}
    low, high = Score.of_scores("second", second, metric).difference(Score.of_scores("first", first, metric))
    return {"low": low, "high": high}
