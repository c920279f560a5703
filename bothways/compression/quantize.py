"""Post-training int8 quantization: calibrate on half of the texts, measure on the others.

Nothing is written if the score drops too much.

`texts -calibration half-> inputs of each layer -> int8 layers -measurement half-> scores -> write, or InputError`
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from bothways.checkpoint import checkpoint
from bothways.checkpoint.checkpoint import check_target
from bothways.checkpoint.contents import Checkpoint, check_plain
from bothways.checkpoint.description import METADATA_FILE
from bothways.errors import InputError, format_count
from bothways.evaluation.before_after import (
    DEFAULT_MAX_DROP,
    MAX_ROWS,
    Drop,
    measure_drop,
    read_evaluation_rows,
    selected_on,
    spread_evenly,
)
from bothways.inference.predictor import Predictor
from bothways.log import logger, working
from bothways.model.int8 import int8_state_dict, is_int8, replace_linears
from bothways.model.int8_training import Candidate, candidates, observe
from bothways.model.model import Model
from bothways.settings.deploy import Quantize
from bothways.tasks.task import LabelledRows

MIN_TEXTS = 16  # texts in each half
MAX_CALIBRATION = 256  # texts
REPEATS = 3  # repetitions of each speed measurement


@dataclass(frozen=True)
class Form:
    """A model in one number format: bytes of its weights, texts per second, metrics in percent."""

    name: str
    size: int
    speed: float
    figures: dict[str, float]


@dataclass(frozen=True)
class Quantized:
    """The result of a quantization.

    kept: the most sensitive layers, which are not int8. layers: number of all layers. texts: number of texts that were
    measured. max_drop: the largest allowed drop, in points.
    """

    directory: Path
    forms: list[Form]
    kept: list[str]
    layers: int
    texts: int
    labelled: bool
    drop: Drop
    max_drop: float

    @property
    def speed_note(self) -> str:
        """Which format is the fastest on this processor, and what int8 saves where it is not the fastest."""
        int8, fastest = self.forms[-1], max(self.forms, key=lambda form: form.speed)
        if fastest is int8:
            return "int8 is the fastest format on this processor"
        size = f"int8 is smaller: {int8.size / 1e6:.1f} against {fastest.size / 1e6:.1f} MB"
        speed = f"{fastest.speed:,.0f} against {int8.speed:,.0f} texts/s"
        return f"{fastest.name} is faster on this processor: {speed}; {size}"

    def as_json(self) -> dict[str, Any]:
        fastest = max(self.forms, key=lambda form: form.speed)
        return {**asdict(self), "directory": str(self.directory), "fastest": fastest.name}

    def as_table(self) -> list[str]:
        names = list(self.forms[0].figures)
        lines = [f"{'':10}{'size':>10}  {'texts/s':>8}" + "".join(f"  {name:>13}" for name in names)]
        for form in self.forms:
            figures = "".join(f"  {form.figures[name]:13.2f}" for name in names)
            lines.append(f"{form.name:10}{form.size / 1e6:7.1f} MB  {form.speed:8,.0f}{figures}")
        unchanged = f"; unchanged: {', '.join(self.kept)}" if self.kept else ""
        reference = "by their labels" if self.labelled else "by the results in float32, since there are no labels"
        lines.append(f"measured on {self.texts:,} texts {reference}")
        allowed = f"a loss of {self.max_drop:g} is allowed" if self.drop.is_gain else f"{self.max_drop:g} are allowed"
        lines.append(f"int8 {self.drop}; {allowed}")
        lines.append(f"{self.layers - len(self.kept)} of {self.layers} layers are int8{unchanged}")
        return [*lines, self.speed_note, f"model in {self.directory}"]


@working("quantize")
def run(settings: Quantize) -> Quantized:
    """Quantize, measure and write. InputError if the drop is too large, or if texts or model cannot be used."""
    loaded = checkpoint.load(settings.model)
    check_plain(loaded.model)
    check_target(settings.out, holds=METADATA_FILE)
    if (settings.out / METADATA_FILE).exists():
        raise InputError(f"{settings.out}: already contains a model or a run; name another, or delete that one")
    exact = Predictor(loaded, dtype="float32", device="cpu")
    data = read_evaluation_rows(exact, settings.texts, settings)
    seen = selected_on(exact, [settings.texts])
    calibrating, measuring = (
        replace(data, rows=[data.rows[row] for row in half]) for half in halves(len(data), settings.texts)
    )
    layers = candidates(exact.module, observe(exact.module, lambda: data.evaluator.predict(exact, calibrating.rows)))
    max_drop = DEFAULT_MAX_DROP if settings.max_drop is None else settings.max_drop
    model, kept = choose(loaded, layers, calibrating, settings.dtype, max_drop)
    logger.info(f"{len(layers) - len(kept)} of {len(layers)} layers in int8, calibrated on {len(calibrating)} texts")
    int8 = replace(loaded, model=model)
    forms, results = compare(forms_of(exact, int8, settings.dtype), measuring)
    drop = measure_drop(data.evaluator, measuring.rows, results[-1], results[0])
    result = Quantized(settings.out, forms, kept, len(layers), len(measuring), data.labelled, drop, max_drop)
    check_drop(result, settings)
    record = {
        "from": str(settings.model),
        "texts": str(settings.texts),
        "kept": kept,
        "forms": [*map(asdict, forms)],
        **seen,
    }
    checkpoint.save(
        replace(int8, metadata={**loaded.metadata, "verb": "quantize", "quantize": {**record, "drop": asdict(drop)}}),
        settings.out,
    )
    return result


def halves(size: int, source: Path) -> tuple[Sequence[int], Sequence[int]]:
    """Alternating rows for calibration and measurement; for long files an evenly spread sample."""
    if size < 2 * MIN_TEXTS:
        raise InputError(
            f"{source}: {format_count(size, 'text')}; calibrating and measuring need {MIN_TEXTS} each; add more"
        )
    return spread_evenly(range(0, size, 2), MAX_CALIBRATION), spread_evenly(range(1, size, 2), MAX_ROWS)


def choose(
    loaded: Checkpoint, layers: Mapping[str, Candidate], data: LabelledRows, dtype: str, max_drop: float
) -> tuple[Model, list[str]]:
    """The model with as many int8 layers as the allowed drop on these rows permits, and the names of the other layers,
    which have the greatest errors. At least half become int8; check_drop decides whether the drop is acceptable."""
    sensitive = sorted(layers, key=lambda name: -layers[name].error)
    evaluator, rows = data.evaluator, data.rows
    exact = evaluator.predict(Predictor(loaded, dtype="float32", device="cpu"), rows)
    (metric, before), *_ = evaluator.score(rows, exact, exact).percentages.items()
    num_kept = 0
    while True:
        model = replace_linears(loaded.model, {layer: layers[layer].linear for layer in sensitive[num_kept:]})
        predictions = evaluator.predict(Predictor(replace(loaded, model=model), dtype=dtype, device="cpu"), rows)
        after = evaluator.score(rows, predictions, exact).percentages[metric]
        if before - after <= max_drop or 4 * num_kept > len(layers):
            return model, sorted(sensitive[:num_kept])
        num_kept = max(1, 2 * num_kept)


def forms_of(exact: Predictor, int8: Checkpoint, dtype: str) -> list[Predictor]:
    """The model in float32, in the default number format if that differs, and in int8."""
    other = Predictor(exact.checkpoint, dtype=dtype, device="cpu")
    return [exact, *([other] if other.dtype != exact.dtype else []), Predictor(int8, dtype=dtype, device="cpu")]


def compare(models: list[Predictor], data: LabelledRows) -> tuple[list[Form], list[list[Any]]]:
    """Measure all models on the same rows in turn, repeatedly, so that other load affects all equally. Also returns
    the results of each model."""
    seconds: list[list[float]] = [[] for _ in models]
    for _ in range(REPEATS):
        predictions = []
        for model, durations in zip(models, seconds, strict=True):
            start = time.perf_counter()
            predictions.append(data.evaluator.predict(model, data.rows))
            durations.append(time.perf_counter() - start)
    forms = [
        Form(
            format_name(model),
            num_bytes(model),
            len(data) / median(durations),
            data.evaluator.score(data.rows, results, predictions[0]).percentages,
        )
        for model, durations, results in zip(models, seconds, predictions, strict=True)
    ]
    return forms, predictions


def format_name(model: Predictor) -> str:
    return "int8" if is_int8(model.module) else str(model.dtype).removeprefix("torch.")


def num_bytes(model: Predictor) -> int:
    """Bytes of the weights on disk."""
    state = int8_state_dict(model.checkpoint.model) if is_int8(model.module) else model.module.state_dict()
    return sum(value.nbytes for value in state.values())


def check_drop(result: Quantized, settings: Quantize) -> None:
    """InputError if the drop may be too large, or is NaN."""
    way_out = f"half of {settings.texts} was measured on, nothing was written; give more texts of the application"
    result.drop.check(result.max_drop, result.texts, "int8", way_out)
