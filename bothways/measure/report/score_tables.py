"""Score tables: mean and standard deviation over seeds or folds, 95 % intervals; a chart beside simple baselines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from bothways.base.errors import format_count
from bothways.measure.metrics import Interval
from bothways.measure.report.chart import Axis, build_axis, dot, figure, label, line
from bothways.measure.report.markup import (
    Html,
    Section,
    Unit,
    data_element,
    element,
    format_number,
    isolate,
    isolate_label,
    join,
    table,
)

WIDTH = 340
ROW_HEIGHT = 34
TOP = 14
SIDE = 18.0  # beside the axis: half the width of its last label
FAR = 2.0  # a baseline is off the axis if it is more than this many times as far from the others as they are apart
LEAST_APART = 0.1  # of the largest value: equal scores do not drive a near one off the axis


@dataclass(frozen=True)
class ScoreSummary:
    """A metric on a split.

    mean, std: mean and sample standard deviation over `n` seeds or folds.
    selected: whether the model was selected on this split.
    interval: 95 % interval of the metric on other rows.
    rows: the number of rows.
    pooled: with folds, the metric of all rows together, to which the interval belongs.
    """

    metric: str
    split: str
    mean: float
    std: float
    n: int
    selected: bool = False
    unit: Unit = "share"
    interval: tuple[float, float] | None = None
    rows: int | None = None
    over: Literal["seeds", "folds"] = "seeds"
    pooled: float | None = None


def render_headline(scores: Sequence[ScoreSummary]) -> Html:
    """The first metric in large digits, for every split that has it."""
    tiles = []
    for score in scores:
        if score.metric != scores[0].metric:
            continue
        value = element("strong", data_element(score.mean, score.unit))
        tiles.append(
            element(
                "div.tile",
                element("dt", score.metric, ", ", isolate(score.split)),
                element("dd", value, _render_details(score)),
            )
        )
    return element("dl.tiles", *tiles)


def _render_details(score: ScoreSummary) -> Html:
    interval = element("span.spread", format_interval(score)) if score.interval else Html()
    return join((element("span.spread", format_std(score)), interval, selected_badge(score)))


def format_std(score: ScoreSummary) -> str:
    """'± 0.4, 3 seeds', in percentage points for fractions; 'one seed' for a single seed, without a deviation."""
    if score.n == 1:
        return "one seed" if score.over == "seeds" else ""
    return f"{_format_deviation(score)}, {score.n} {score.over}"


def _format_deviation(score: ScoreSummary) -> str:
    return f"± {format_number(score.std, score.unit).rstrip('%')}"


def format_interval(score: ScoreSummary) -> str:
    """'95 %: 88.6% to 93.1%, 431 rows'; '' without an interval."""
    # With its rows: "90.9 %" of 77 rows was read as a promise, "82 to 96 %, 77 rows" is not (docs/LOG.md).
    if score.interval is None:
        return ""

    low, high = (format_number(bound, score.unit) for bound in score.interval)
    text = f"95 %: {low} to {high}"
    if score.pooled is not None:
        text = f"all rows together {format_number(score.pooled, score.unit)}, {text}"
    if score.rows:
        text += f", {format_count(score.rows, 'row')}"
    return text


def selected_badge(score: ScoreSummary) -> Html:
    return element("span.badge", "selected on this") if score.selected else Html()


@dataclass(frozen=True)
class ScoreTable(Section):
    """All metrics by split, in the order given."""

    scores: Sequence[ScoreSummary]
    heading = "Scores"
    wide = False

    def body(self) -> Html:
        by_metric_and_split = {(score.metric, score.split): score for score in self.scores}
        splits = list(dict.fromkeys(score.split for score in self.scores))
        metrics = list(dict.fromkeys(score.metric for score in self.scores))

        rows = []
        for metric in metrics:
            cells = [_render_cell(by_metric_and_split.get((metric, split))) for split in splits]
            rows.append([isolate_label(metric), *cells])
        return table(self._caption(), ["Metric", *map(self._render_split, splits)], rows)

    def _caption(self) -> str:
        """Notes that hold for all cells."""
        parts = []
        averaged = next((score for score in self.scores if score.n > 1), None)
        if averaged is not None:
            parts.append(f"Mean ± sample standard deviation over {averaged.n} {averaged.over}.")
        if any(score.n == 1 and score.over == "seeds" for score in self.scores):
            parts.append("Scores without ± are those of the saved model." if averaged else "One seed.")
        if any(score.interval for score in self.scores):
            parts.append("Ranges: 95 % intervals of the score on other rows from the same source.")
        if any(score.pooled is not None for score in self.scores):
            parts.append("Before the range: the score of all rows together.")
        if any(score.selected for score in self.scores):
            parts.append("Scores on the split that the checkpoint was selected on are optimistic.")
        return " ".join(parts)

    def _render_split(self, split: str) -> Html:
        scores = [score for score in self.scores if score.split == split]
        num_rows = next((score.rows for score in scores if score.rows), None)

        parts = [isolate(split)]
        if num_rows:
            parts.append(element("span.spread", format_count(num_rows, "row")))
        parts += [selected_badge(score) for score in scores if score.selected][:1]
        return join(parts)


def _render_cell(score: ScoreSummary | None) -> Html:
    """The score, with its deviation and interval; the caption explains them once."""
    if score is None:
        return element("span.spread", "none")

    parts = [data_element(score.mean, score.unit)]
    if score.n != 1:
        parts.append(element("span.spread", _format_deviation(score)))
    if score.interval:
        low, high = (format_number(bound, score.unit) for bound in score.interval)
        pooled = "" if score.pooled is None else f"{format_number(score.pooled, score.unit)}, "
        parts.append(element("span.spread", f"{pooled}{low} to {high}"))
    return join(parts)


@dataclass(frozen=True)
class SeedScores:
    """A training.

    number: its seed, or the number of its fold.
    scores: its scores by split.
    failed: whether it is no better than a constant prediction.
    kept: whether its model was kept.
    """

    number: int
    scores: Mapping[str, float]
    failed: bool = False
    kept: bool = False


@dataclass(frozen=True)
class SeedTable(Section):
    """The metric of every seed."""

    metric: str
    seeds: Sequence[SeedScores]
    unit: Unit = "share"
    heading = "Seeds"
    wide = False

    def body(self) -> Html:
        splits = list(dict.fromkeys(split for seed in self.seeds for split in seed.scores))
        rows = []
        for seed in self.seeds:
            scores = [self._render_score(seed, split) for split in splits]
            rows.append([str(seed.number), _render_badges(seed), *scores])

        num_failed = sum(seed.failed for seed in self.seeds)
        caption = (
            f"{self.metric} of each training. {num_failed or 'None'} of {len(self.seeds)} failed "
            "(no better than a constant prediction)."
        )
        head = [self.heading.removesuffix("s"), "", *map(isolate, splits)]
        return table(caption, head, rows, words=2)

    def _render_score(self, seed: SeedScores, split: str) -> Html:
        if split not in seed.scores:
            return Html("none")
        return data_element(seed.scores[split], self.unit)


@dataclass(frozen=True)
class FoldTable(SeedTable):
    """The metric of every fold, from the model that was not trained on it."""

    heading = "Folds"


def _render_badges(seed: SeedScores) -> Html:
    badges = {
        "kept": seed.kept,
        "failed": seed.failed,
    }
    return join(element(f"span.badge.{name}", name) for name, is_set in badges.items() if is_set)


@dataclass(frozen=True)
class ModelScore:
    """The metric of a model. interval: 95 % interval over other rows."""

    name: str
    value: float
    interval: Interval | None


@dataclass(frozen=True)
class BaselineComparison(Section):
    """The scores of a model and of its baselines on the same rows, as a chart.

    metric: the name of the score.
    models: the fine-tuned model first, then the baselines.
    verdict: the sentence below the chart.
    """

    metric: str
    models: Sequence[ModelScore]
    verdict: str
    unit: Unit = "share"
    heading = "Baselines on the same rows"
    wide = False

    def body(self) -> Html:
        verdict = self.verdict[0].upper() + self.verdict[1:]
        return figure(self._chart(), f"{verdict}. Lines: 95 % intervals.")

    def _chart(self) -> Html:
        axis = build_axis(self.metric, self._fitting_values(), (SIDE, WIDTH - SIDE), self.unit)
        bottom = TOP + ROW_HEIGHT * len(self.models)

        parts = []
        for tick in axis.ticks():
            parts.append(line((axis.at(tick), TOP), (axis.at(tick), bottom), "grid"))
        parts.append(line((axis.start, bottom), (axis.end, bottom), "axis"))
        for tick in axis.ticks():
            parts.append(label((axis.at(tick), bottom + 15), axis.format_tick(tick), "middle"))
        parts.append(label(((axis.start + axis.end) / 2, bottom + 31), self.metric, "middle.name"))

        for index, model in enumerate(self.models):
            style = f"series{min(index, 1)}"  # all baselines look alike
            y = TOP + ROW_HEIGHT * index + 22.0
            parts.append(label((axis.start, y - 10), model.name, style))
            parts.append(label((axis.end, y - 10), format_number(model.value, self.unit), f"end.{style}"))
            parts += _render_value(model, axis, y, style)

        values_text = "; ".join(f"{model.name} {format_number(model.value, self.unit)}" for model in self.models)
        return element(
            "svg",
            element("title", self.heading),
            element("desc", f"{self.metric}: {values_text}"),
            *parts,
            attributes={"viewBox": f"0 0 {WIDTH} {bottom + 40}", "role": "img"},
        )

    def _fitting_values(self) -> list[float]:
        """The values that the axis covers.

        A baseline far away from all others, such as the most frequent of 77 classes, would press them into one spot.
        """
        trained, *baselines = self.models
        nearest_first = sorted(baselines, key=lambda model: abs(model.value - trained.value))

        fitting = _ends(trained)
        for index, model in enumerate(nearest_first):
            low = min(fitting)
            high = max(fitting)
            apart = max(high - low, LEAST_APART * abs(high))
            distance = max(low - model.value, model.value - high)
            # The nearest baseline is the one that the verdict is about.
            if index == 0 or distance <= FAR * apart:
                fitting += _ends(model)
        return fitting


def _ends(model: ModelScore) -> list[float]:
    return [model.value, *(model.interval or ())]


def _render_value(model: ModelScore, axis: Axis, y: float, style: str) -> list[Html]:
    """The dot of a model on its interval, or an arrow at the end of the axis for a value beyond it."""
    if model.value < axis.low:
        return [label((axis.start, y + 4), "← off the axis", style)]
    if model.value > axis.high:
        return [label((axis.end, y + 4), "off the axis →", f"end.{style}")]

    parts = []
    if model.interval:
        low, high = model.interval
        left = axis.at(max(low, axis.low))
        right = axis.at(min(high, axis.high))
        parts.append(line((left, y), (right, y), f"interval.{style}"))
    tooltip = f"{model.name}: {model.value:.4g}"
    parts.append(dot((axis.at(model.value), y), style, radius=4.5, tooltip=tooltip))
    return parts
