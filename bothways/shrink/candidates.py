"""Candidates: models that may take the place of another, measured alike, and the best of them within the stated loss.

`model -sources-> candidates -measure-> size, speed, score, loss -choose-> the one that is kept`

`SOURCES` names all sources. `prune`, `quantize`, `shrink` and `export --int8` are presets: each has its sources, its
rows and its rule.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np
import torch

from bothways.base.errors import format_count
from bothways.base.log import logger
from bothways.base.registry import load_name
from bothways.evaluation.before_after import Drop, measure_drop
from bothways.inference.predictor import Predictor
from bothways.measure.report.chart import Point, build_axis, dot, draw_picture, label, legend, line, plot
from bothways.measure.report.markup import Html
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.int8 import int8_state_dict, is_int8
from bothways.model.model import Model
from bothways.model.prepacked import prepack
from bothways.shrink.cutting import encoder_weights
from bothways.tasks.task import LabelledRows
from bothways.tasks.training_task import TrainingTask
from bothways.text.batching import spread_evenly

SPEED_ROWS, SPEED_TEXTS, REPEATS = 512, 64, 5  # rows of a split, and of a file
LARGEST = 17.0  # radius of the largest dot
COLOURS = {"floating point": "series0", "int8": "series1"}


@dataclass(frozen=True)
class Candidate:
    """A model that may be delivered. size: bytes of its weights on disk. predictor: the model as it predicts the user's
    rows, for UserRows. unchanged: in an int8 model, the layers or products that are not int8."""

    name: str
    checkpoint: Checkpoint
    size: int
    predictor: Predictor | None = None
    unchanged: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measured:
    """A measured candidate, compared with the first one.

    size: bytes. share: weights of the layers, relative to the first's. speed: texts per second, relative to the
    first's. figures: scores in percent by metric, the metric of the choice first, of which `interval` is the 95 %
    interval. drop, dev_drop: the loss on the rows that are reported, and on those that candidates are chosen on.
    """

    name: str
    size: int
    share: float
    speed: float
    texts_per_second: float
    figures: dict[str, float]
    interval: tuple[float, float]
    drop: Drop
    dev_drop: Drop
    unchanged: tuple[str, ...] = ()

    @property
    def score(self) -> float:
        return next(iter(self.figures.values()))

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.score:.2f} {self.drop.metric} ({self.drop.points:+.2f} lost), {self.share:.0%} of the "
            f"weights, {self.size / 1e6:.1f} MB, {self.speed:.2f} times as fast"
        )


# --- sources ----------------------------------------------------------------------------------------------------------


# Of each verb, "module:name" of functions from its plan, and the list of all that has been measured, to candidates: the
# first yields the unchanged model first. A candidate is measured before the next is asked for.
SOURCES: dict[str, tuple[str, ...]] = {
    "prune": ("bothways.shrink.prune:cuts",),
    "shrink": ("bothways.shrink.prune:cuts_and_int8",),
    "quantize": ("bothways.shrink.quantize:in_int8",),
    "export": ("bothways.shrink.export.int8:in_int8",),
}


# --- measuring --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Evaluated:
    """Scores of a candidate in percent by metric, the 95 % interval of the first of them, and its drop. outputs: of the
    model; the drops of other candidates are computed from them."""

    figures: dict[str, float]
    interval: tuple[float, float]
    drop: Drop
    outputs: Any


@dataclass(frozen=True)
class UserRows:
    """Rows of a file, with labels or without, as `predict` reads them."""

    data: LabelledRows

    def predict(self, candidate: Candidate, rows: Sequence[Any]) -> list[Any]:
        assert candidate.predictor is not None
        return self.data.evaluator.predict(candidate.predictor, rows)

    def evaluate(self, candidate: Candidate, first: Evaluated | None) -> Evaluated:
        """The scores, and the drop from those of the first candidate; None: this is the first."""
        evaluator, rows = self.data.evaluator, self.data.rows
        outputs = self.predict(candidate, rows)
        reference = first.outputs if first else outputs
        scores = evaluator.score(rows, outputs, reference, intervals=self.data.labelled)
        drop = measure_drop(evaluator, rows, outputs, reference) if first else Drop(scores.primary, 0.0, 0.0)
        figures = scores.percentages
        low, high = (figures[scores.primary] + 1.96 * sign * drop.standard_error for sign in (-1, 1))
        if (name := f"{scores.primary}_interval") in scores:
            low, high = (100 / scores.maximum * end for end in scores[name])
        return Evaluated(figures, (low, high), drop, outputs)

    def workload(self, candidate: Candidate) -> tuple[Callable[[], object], int]:
        """A function whose time is measured, and the number of texts that it computes."""
        rows = [self.data.rows[row] for row in spread_evenly(range(len(self.data)), SPEED_TEXTS)]
        return partial(self.predict, candidate, rows), len(rows)


@dataclass(frozen=True)
class TaskSplit:
    """A split of a fine-tuning task, evaluated as in fine-tuning. read: the task around a model with another
    vocabulary."""

    task: TrainingTask
    split: str
    read: Callable[[Checkpoint], TrainingTask]

    def reader(self, checkpoint: Checkpoint) -> tuple[TrainingTask, Model]:
        """The task as a model reads it, and a copy of the model for inference."""
        known = self.task.pretrained.need_tokenizer().vocab
        task = self.task if checkpoint.need_tokenizer().vocab == known else self.read(checkpoint)
        model = checkpoint.model if task is self.task else task.pretrained.model
        return task, task.inference_copy(model)

    def evaluate(self, candidate: Candidate, first: Evaluated | None) -> Evaluated:
        task, model = self.reader(candidate.checkpoint)
        outputs, metric = task.scoring.outputs(model, self.split), task.metric
        value = float(task.scoring.compute_metrics(self.split, outputs)[metric])
        intervals = task.scoring.score_predictions(task.scoring.predictions(self.split, outputs)).intervals
        assert intervals is not None
        low, high = intervals[metric]
        now, drop = (value, intervals.resamples[metric]), Drop(metric, 0.0, 0.0)
        if first:
            before, resamples_B = first.outputs
            error = 100 * float(np.std(resamples_B - now[1])) or 100 / intervals.num_units
            drop = Drop(metric, 100 * (before - value), error)
        return Evaluated({metric: 100 * value}, (100 * low, 100 * high), drop, now)

    def workload(self, candidate: Candidate) -> tuple[Callable[[], object], int]:
        """Hidden states of texts in batches of similar length."""
        task, model = self.reader(candidate.checkpoint)
        examples, encode = task.data[self.split], prepack(model)
        order = sorted(spread_evenly(range(len(examples.sizes)), SPEED_ROWS), key=examples.sizes.__getitem__)
        device = next(model.parameters()).device
        batches = [examples.batch(order[start : start + 32]).to(device) for start in range(0, len(order), 32)]
        return torch.inference_mode()(lambda: [encode(batch) for batch in batches]), len(order)


Sample = UserRows | TaskSplit  # rows that candidates are measured on


def num_bytes(model: Model) -> int:
    """Bytes of the weights on disk."""
    state = int8_state_dict(model) if is_int8(model) else model.state_dict()
    return sum(value.nbytes for value in state.values())


def seconds_in_turn(calls: Sequence[Callable[[], object]]) -> list[float]:
    """The median time of each call; they are made in turn, so that other load affects all equally."""
    seconds: list[list[float]] = [[] for _ in calls]
    for _ in range(REPEATS):
        for call, times in zip(calls, seconds, strict=True):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
    return [*map(median, seconds)]


def relative_speed(sample: Sample, first: Candidate, other: Candidate) -> float:
    """Texts per second of a candidate, relative to another."""
    before, after = seconds_in_turn([sample.workload(one)[0] for one in (first, other)])
    return before / after


class Scale:
    """Measures candidates on the rows for the choice and on the rows for the report, and compares them with the first
    candidate."""

    def __init__(self, dev: Sample, reported: Sample, first: Candidate) -> None:
        self.samples, self.first = (dev, reported), first
        self.before = self._evaluate(first, (None, None))
        workload, texts = reported.workload(first)
        self.texts_per_second = texts / seconds_in_turn([workload])[0]

    def _evaluate(self, candidate: Candidate, before: Sequence[Evaluated | None]) -> list[Evaluated]:
        dev, reported = self.samples
        on_dev = dev.evaluate(candidate, before[0])
        return [on_dev, on_dev if reported is dev else reported.evaluate(candidate, before[1])]

    def measure(self, candidate: Candidate) -> Measured:
        """All measures of a candidate, which is timed in turn with the first one."""
        is_first = candidate is self.first
        on_dev, reported = self.before if is_first else self._evaluate(candidate, self.before)
        speed = 1.0 if is_first else relative_speed(self.samples[1], self.first, candidate)
        whole, config = self.first.checkpoint.model.config, candidate.checkpoint.model.config
        share = encoder_weights(config) / encoder_weights(whole)
        sizes = candidate.name, candidate.size, share, speed, speed * self.texts_per_second
        return Measured(*sizes, reported.figures, reported.interval, reported.drop, on_dev.drop, candidate.unchanged)


# --- choosing ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rule:
    """Which candidate is kept: of those that lose at most max_drop points (inf: of all), the fastest, the smallest or
    the last. by_interval: the upper end of the 95 % interval of the loss on the reported rows counts, instead of the
    loss on dev."""

    max_drop: float
    best: Literal["speed", "size", "last"] = "last"
    by_interval: bool = False

    @property
    def is_limited(self) -> bool:
        return not math.isinf(self.max_drop)

    def allows(self, one: Measured) -> bool:
        if self.by_interval:
            return one.drop.is_within(self.max_drop)
        return one.dev_drop.points <= self.max_drop or not self.is_limited


def choose(measured: Sequence[Measured], rule: Rule) -> int:
    """The index of the best candidate that the rule allows; without any, 0: the unchanged model."""
    orders: dict[str, Callable[[int], tuple[float, ...]]] = {
        "speed": lambda index: (measured[index].speed, -measured[index].size),
        "size": lambda index: (-measured[index].size, measured[index].speed),
        "last": lambda index: (index,),
    }
    allowed = [index for index, one in enumerate(measured) if rule.allows(one)]
    return max(allowed, key=orders[rule.best], default=0)


def compare(verb: str, plan: Any, samples: tuple[Sample, Sample], rule: Rule) -> tuple[list[Measured], Candidate]:
    """Measure the candidates of all sources of a verb, one after the other, and return the best with the measures.

    samples: rows that candidates are chosen on, and rows that are reported.
    """
    measured, scale, best = list[Measured](), None, None
    for source in SOURCES[verb]:
        for candidate in load_name(source)(plan, measured):
            logger.info(f"measuring: {candidate.name}")
            scale = scale or Scale(*samples, candidate)
            measured.append(scale.measure(candidate))
            logger.info(str(measured[-1]))
            if best is None or choose(measured, rule) == len(measured) - 1:
                best = candidate  # the others need not stay in memory
    assert best is not None
    return measured, best


@dataclass(frozen=True)
class Choice:
    """The result: all candidates, the first of which is the unchanged model, and the index of the one in `model`.

    split: of the reported rows, and rows: their number. rule: by which `kept` was chosen. notes: further lines for the
    user. picture: of score against speed, if one was drawn.
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
        return max(self.measured, key=lambda one: one.speed)

    @property
    def record(self) -> dict[str, Any]:
        """For the metadata of the model."""
        return {"measured": [*map(asdict, self.measured)], "kept": self.kept}

    def as_json(self) -> dict[str, Any]:
        limit = self.rule.max_drop if self.rule.is_limited else None
        places = {name: value and str(value) for name, value in vars(self).items() if isinstance(value, Path | None)}
        more = {"metric": self.metric, "fastest": self.fastest.name, "max_drop": limit}
        return {name: value for name, value in (asdict(self) | places | more).items() if name != "rule"}

    def as_table(self) -> list[str]:
        """The candidates, one a line, and notes."""
        width, names = max(20, *(len(one.name) for one in self.measured)), [*self.measured[0].figures]
        heads = "".join(f"  {name:>12}" for name in names)
        lines = [f"{'':{width}} {'MB':>7} {'weights':>7} {'texts/s':>8} {'speed':>6}{heads} {'lost':>6}  95 % interval"]
        for index, one in enumerate(self.measured):
            figures = "".join(f"  {one.figures[name]:12.2f}" for name in names)
            low, high = one.drop.interval
            lost = f" {one.drop.points:z6.2f}  {low:z.2f} to {high:z.2f}" if index else ""
            lines.append(
                f"{one.name:{width}} {one.size / 1e6:7.1f} {one.share:7.0%} {one.texts_per_second:8,.0f} "
                f"{one.speed:6.2f}{figures}{lost}{'  <- kept' if index == self.kept else ''}"
            )
        lines.append(f"scores: {self.metric} on {self.split} ({format_count(self.rows, 'row')})")
        limit = f"{self.rule.max_drop:g}"
        if self.rule.by_interval:
            allowed = f"a loss of {limit} is allowed" if self.best.drop.is_gain else f"{limit} are allowed"
            lines.append(f"{self.best.name} {self.best.drop}; {allowed}")
        elif self.rule.is_limited:
            lines.append(f"chosen on dev, where at most {limit} points may be lost")
        picture = [f"picture in {self.picture}"] if self.picture else []
        return [*lines, *self.notes, *picture, f"model in {self.directory}"]

    def draw(self, file: Path) -> Path:
        """Write a picture (SVG) of score (%) against speed, relative to the unchanged model. The area of a dot is the
        size of the weights; int8 has another colour, and the one that is kept a ring."""
        drawn = {index: one for index, one in enumerate(self.measured) if math.isfinite(one.score)}
        limits = [self.measured[0].score - self.rule.max_drop] if 0 in drawn and self.rule.is_limited else []
        x_values, y_values = [one.speed for one in drawn.values()], [*(one.score for one in drawn.values()), *limits]
        x = build_axis("speed, relative to the model as it was", widen(x_values, 0.26), (50, 540))
        y = build_axis(f"{self.metric} on {self.split} (%)", widen(y_values, 0.22), (316, 26))
        shapes = [line((x.start, y.at(limit)), (x.end, y.at(limit)), "even") for limit in limits]
        largest = max(one.size for one in self.measured)
        for index, one in drawn.items():
            radius = LARGEST * math.sqrt(one.size / largest)
            shapes += draw_form(one, (x.at(one.speed), y.at(one.score)), radius, is_kept=index == self.kept)
        samples = [(name, dot((12, 0), f"{style}.form", radius=5)) for name, style in COLOURS.items()]
        samples += [("largest loss allowed", line((0, 0), (20, 0), "even"))] * len(limits)
        title, description = f"{self.metric} against speed", "; ".join(map(str, self.measured))
        shapes.append(legend((50, 372), samples))
        chart = plot(title, description, x, y, *shapes, size=(640, 390), corner=(12, 30))
        draw_picture(title, chart, size=(640, 420)).write(file)
        return file


def widen(values: Sequence[float], share: float) -> tuple[float, float]:
    """The lowest and highest value, with a margin at both ends: this share of the range, or 1 if all are equal."""
    low, high = min(values, default=0.0), max(values, default=0.0)
    margin = share * (high - low) or 1.0
    return low - margin, high + margin


def draw_form(form: Measured, center: Point, radius: float, *, is_kept: bool) -> list[Html]:
    """A dot with name and size: above it, or to the right of int8."""
    (left, top), is_int8 = center, "int8" in form.name
    left, top, anchor = (left + radius + 5, top - 2, "start") if is_int8 else (left, top - radius - 18, "middle")
    style = COLOURS["int8" if is_int8 else "floating point"]
    return [
        dot(center, f"{style}.form{'.kept' * is_kept}", radius=radius, tooltip=str(form)),
        label((left, top), form.name.removesuffix(", int8"), anchor),
        label((left, top + 13), f"{form.size / 1e6:.0f} MB{', kept' * is_kept}", anchor),
    ]
