"""Shrinking: the fastest or smallest form of a fine-tuned model within a stated loss, of all that are measured.

`model -cut and trained, layer by layer-> each in float and in int8 -> the best within the loss`

A picture shows score against speed.
"""

import math
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from bothways.batching import token_batches
from bothways.checkpoint import checkpoint
from bothways.checkpoint.contents import Checkpoint
from bothways.compression.prune import POINTS, Pruner, Structure, measure_speed, prepare
from bothways.device import choose_device
from bothways.evaluation.before_after import spread_evenly
from bothways.log import logger, working
from bothways.model.int8 import int8_state_dict, is_int8, replace_linears
from bothways.model.int8_training import candidates, observe
from bothways.settings.compress import Shrink
from bothways.tasks.training_task import TrainingTask
from bothways.training.run import Run

CALIBRATION_EXAMPLES, CALIBRATION_TOKENS = 256, 1024
PICTURE = "shrink.png"
DPI = 130
FLOAT, INT8, KEPT = "#0b5fa5", "#e8843b", "#c8102e"
LARGEST = 900  # area of the largest point, in square points of 1/72 inch


@dataclass(frozen=True)
class ShrinkPoint:
    """One form of the model: bytes of its weights, texts per second relative to the model as it was, its score, and how
    many points it loses on dev, by which the choice is made, and on the split that is reported."""

    name: str
    size: int
    speed: float
    score: float
    drop: float
    dev_drop: float


@dataclass(frozen=True)
class Shrunk:
    """The result: all points, the first of which is the model as it was, and the index of the one in `model`."""

    directory: Path
    model: Path
    metric: str
    split: str
    max_drop: float
    points: list[ShrinkPoint]
    kept: int
    picture: Path | None

    def as_json(self) -> dict[str, Any]:
        places = {name: str(getattr(self, name)) for name in ("directory", "model", "picture")}
        return {**asdict(self), **places}

    def as_table(self) -> list[str]:
        """The points, one a line."""
        lines = [f"{'':40} {'MB':>7} {'speed':>6} {self.metric:>9} {'lost':>6}   ({self.split})"]
        for index, point in enumerate(self.points):
            mark = "  <- kept" if index == self.kept else ""
            lines.append(
                f"{point.name:40} {point.size / 1e6:7.1f} {point.speed:6.2f} {100 * point.score:9.2f} "
                f"{point.drop:6.2f}{mark}"
            )
        lines.append(f"chosen on dev, where at most {self.max_drop:g} points may be lost")
        return [*lines, *([f"picture in {self.picture}"] if self.picture else []), f"model in {self.directory}"]


@dataclass(frozen=True)
class Shrinker:
    """A shrinking in progress. task: around the model as it was; scores: its own, by split."""

    settings: Shrink
    pruner: Pruner
    task: TrainingTask
    scores: dict[str, float]

    @property
    def split(self) -> str:
        return "test" if "test" in self.task.data else "dev"

    def point(self, name: str, model: Checkpoint) -> ShrinkPoint:
        """Measure a model on dev and on the split that is reported."""
        logger.info(f"measuring: {name}")
        scores = {split: self.score(model, split) for split in {"dev", self.split}}
        return ShrinkPoint(
            name,
            size=num_bytes(model),
            speed=measure_speed(self.pruner.original.model, model.model, self.task.data["dev"], self.pruner.settings),
            score=scores[self.split],
            drop=100 * (self.scores[self.split] - scores[self.split]),
            dev_drop=100 * (self.scores["dev"] - scores["dev"]),
        )

    def score(self, model: Checkpoint, split: str) -> float:
        copy = self.task.inference_copy(model.model)
        return float(self.task.scoring.evaluate(copy, split)[self.task.metric])

    def in_int8(self, source: Checkpoint) -> Checkpoint:
        """All layers in int8, calibrated on training texts."""
        examples, objective = self.task.data["train"], self.task.objective
        model = source.model.float().eval()
        rows = spread_evenly(range(len(examples.sizes)), CALIBRATION_EXAMPLES)

        def read() -> None:
            with torch.inference_mode():
                for part in token_batches(rows, examples.sizes, CALIBRATION_TOKENS):
                    objective.forward(model, examples.batch(part))

        layers = candidates(model, observe(model, read))
        return replace(source, model=replace_linears(model, {name: one.linear for name, one in layers.items()}))

    def best(self, points: Sequence[ShrinkPoint]) -> int:
        """The index of the fastest or smallest point that loses no more than is allowed."""
        allowed = [index for index, point in enumerate(points) if point.dev_drop <= self.settings.max_drop]
        if self.settings.best == "size":
            return min(allowed, key=lambda index: (points[index].size, -points[index].speed), default=0)
        return max(allowed, key=lambda index: (points[index].speed, -points[index].size), default=0)

    def forms(self, structures: Sequence[Structure]) -> Iterator[tuple[ShrinkPoint, Checkpoint]]:
        """The points with their models: the model as it was, then smaller ones, each in float and in int8, until one
        loses too much; last, the smallest that does not, trained for int8, if int8 alone loses too much."""
        source = self.pruner.original
        whole = Structure.of(source.model.config)
        yield self.point("as it was", source), source
        last_good: tuple[str, Checkpoint] | None = None
        for number in range(len(structures) + 1):
            before, name = source, "all layers"
            if number:
                name = structures[number - 1].name(whole)
                logger.info(f"cut {number} of at most {len(structures)}: {name}")
                _, source = self.pruner.train(number, self.pruner.cut(before, structures[number - 1]), is_last=True)
                point = self.point(name, source)
                yield point, source
                if point.dev_drop > self.settings.max_drop:
                    break
            rounded = self.in_int8(source)
            point = self.point(f"{name}, int8", rounded)
            yield point, rounded
            last_good = (name, source) if point.dev_drop > self.settings.max_drop else None
        if last_good:
            name, source = last_good
            settings = replace(self.pruner.task_settings, quantize="int8")
            _, trained = replace(self.pruner, task_settings=settings).train(len(structures) + 1, source, is_last=True)
            yield self.point(f"{name}, trained for int8", trained), trained


@working("shrink")
def run(settings: Shrink) -> Shrunk:
    """Measure the forms of a model, and write the best and a picture."""
    pruning = settings.pruning
    loaded, task_settings, task, structures = prepare(pruning)
    whole = task.read_by(loaded).pretrained
    with Run(settings.out, "shrink", settings, resume=settings.resume, device=choose_device(settings.device)) as opened:
        pruner = Pruner(pruning, whole, task_settings, opened)
        splits = {"dev", "test"} & task.data.keys()
        shrinker = Shrinker(settings, pruner, task, {})
        shrinker = replace(shrinker, scores={split: shrinker.score(whole, split) for split in splits})
        points, kept = list[ShrinkPoint](), whole
        for point, model in shrinker.forms(structures):
            points.append(point)
            if shrinker.best(points) == len(points) - 1:
                kept = model  # the others need not stay in memory
        result = save(shrinker, points, kept)
        opened.update_metadata(result=result.as_json())
    return result


def save(shrinker: Shrinker, points: list[ShrinkPoint], model: Checkpoint) -> Shrunk:
    """Write the best model and the picture of all points."""
    settings, kept = shrinker.settings, shrinker.best(points)
    record = {"from": str(settings.model), "points": [*map(asdict, points)], "kept": kept}
    metadata = {**model.metadata, "verb": "shrink", "shrink": record}
    checkpoint.save(replace(model, metadata=metadata), settings.out / "model")
    shutil.rmtree(settings.out / POINTS, ignore_errors=True)
    metric, split = shrinker.task.metric, shrinker.split
    drawn = draw_points(points, kept, f"{metric} on {split}", settings.max_drop, settings.out / PICTURE)
    picture = settings.out / PICTURE if drawn else None
    return Shrunk(settings.out, settings.out / "model", metric, split, settings.max_drop, points, kept, picture)


def num_bytes(model: Checkpoint) -> int:
    """Bytes of the weights on disk."""
    state = int8_state_dict(model.model) if is_int8(model.model) else model.model.state_dict()
    return sum(value.nbytes for value in state.values())


def draw_points(points: Sequence[ShrinkPoint], kept: int, metric: str, max_drop: float, file: Path) -> bool:
    """Write a PNG; False, with a message, if matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        logger.info("no picture: pip install matplotlib")
        return False
    figure = Figure(figsize=(7.6, 4.8), layout="constrained")
    axis = figure.subplots()
    largest = max(point.size for point in points)
    for index, point in enumerate(points):
        colour = INT8 if "int8" in point.name else FLOAT
        axis.scatter(
            point.speed,
            100 * point.score,
            s=LARGEST * point.size / largest,
            color=colour,
            alpha=0.85,
            edgecolor=KEPT if index == kept else "white",
            linewidth=2.5 if index == kept else 1,
        )
        above, radius = colour == FLOAT, math.sqrt(LARGEST * point.size / largest) / 2
        label = f"{point.name.removesuffix(', int8')}\n{point.size / 1e6:.0f} MB" + (", kept" if index == kept else "")
        axis.annotate(
            label,
            (point.speed, 100 * point.score),
            xytext=(0, radius + 2) if above else (radius + 3, 0),
            textcoords="offset points",
            ha="center" if above else "left",
            va="bottom" if above else "center",
            fontsize=7.5,
        )
    for name, colour in (("floating point", FLOAT), ("int8", INT8)):
        axis.scatter([], [], s=60, color=colour, label=name)
    axis.axhline(
        100 * points[0].score - max_drop, color="0.6", linewidth=1, linestyle="--", label="largest loss allowed"
    )
    axis.set_xlabel("speed, relative to the model as it was")
    axis.set_ylabel(metric)
    axis.margins(0.26, 0.22)
    axis.grid(alpha=0.3)
    axis.legend(loc="lower left", fontsize=8, frameon=False)
    figure.savefig(file, dpi=DPI)
    return True
