"""Post-training int8 quantization: calibrate on half of the texts, measure on the others.

Nothing is written if the score drops too much.

`texts -calibration half-> inputs of each layer -> int8 layers -measurement half-> scores -> write, or InputError`
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from bothways.base.errors import InputError, format_count
from bothways.base.io import check_target
from bothways.base.log import logger
from bothways.base.progress import working
from bothways.evaluation.before_after import DEFAULT_MAX_DROP, MAX_ROWS, read_evaluation_rows, selected_on
from bothways.inference.load import load
from bothways.inference.predictor import Predictor
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint, check_plain
from bothways.model.checkpoint.description import METADATA_FILE
from bothways.model.int8 import replace_linears
from bothways.model.int8_training import CALIBRATION_EXAMPLES, RoundedLinear, calibrate
from bothways.settings.deploy import Quantize
from bothways.shrink.candidates import Choice, Rule, compare
from bothways.shrink.card import card_of
from bothways.shrink.measuring import Candidate, Measured, UserRows, num_bytes
from bothways.tasks.task import LabelledRows
from bothways.text.batching import spread_evenly

MIN_TEXTS = 16  # texts in each half


@working("quantize")
def run(settings: Quantize) -> Choice:
    """Quantize, measure and write. InputError if the drop is too large, or if texts or model cannot be used."""
    loaded = checkpoint.load(settings.model)
    check_plain(loaded.model)
    check_output(settings.out)

    exact = Predictor(loaded, dtype="float32", device="cpu")
    data = read_evaluation_rows(exact, settings.texts, settings)
    seen = selected_on(exact, [settings.texts])
    calibrating, measuring = (
        replace(data, rows=[data.rows[row] for row in half]) for half in halves(len(data), settings.texts)
    )

    layers = calibrate(exact.module, lambda: data.evaluator.predict(exact, calibrating.rows))
    max_drop = DEFAULT_MAX_DROP if settings.max_drop is None else settings.max_drop
    rule = Rule(max_drop, by_interval=True)
    samples = (UserRows(calibrating), UserRows(measuring))
    measured, best = compare("quantize", Quantizing(exact, layers, settings.dtype, max_drop), samples, rule)
    way_out = f"half of {settings.texts} was measured on, nothing was written; give more texts of the application"
    measured[-1].drop.check(max_drop, len(measuring), "int8", way_out)

    choice = Choice(
        directory=settings.out,
        model=settings.out,
        split="texts",
        rows=len(measuring),
        rule=rule,
        measured=measured,
        kept=len(measured) - 1,
        notes=(rows_note(measuring), layers_note(measured[-1].unchanged, len(layers)), speed_note(measured)),
    )
    record = {"from": str(settings.model), "texts": str(settings.texts), **choice.record, **seen}
    quantized = replace(best.checkpoint, metadata={**loaded.metadata, "verb": "quantize", "quantize": record})
    checkpoint.save(quantized, settings.out, card=card_of(choice, quantized, is_known=bool(seen)))
    return choice


def check_output(out: Path) -> None:
    """InputError unless a model can be written to this directory."""
    check_target(out, holds=METADATA_FILE)
    if (out / METADATA_FILE).exists():
        raise InputError(f"{out}: already contains a model or a run; name another, or delete that one")


def halves(size: int, source: Path) -> tuple[Sequence[int], Sequence[int]]:
    """Alternating rows for calibration and measurement; for long files an evenly spread sample."""
    if size < 2 * MIN_TEXTS:
        raise InputError(
            f"{source}: {format_count(size, 'text')}; calibrating and measuring need {MIN_TEXTS} each; add more"
        )
    calibrating = spread_evenly(range(0, size, 2), CALIBRATION_EXAMPLES)
    measuring = spread_evenly(range(1, size, 2), MAX_ROWS)
    return calibrating, measuring


# --- candidates -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Quantizing:
    """The plan of `quantize`.

    exact: the model in float32.
    layers: in int8.
    dtype: the number format of all other layers.
    max_drop: in points, on the calibration half.
    """

    exact: Predictor
    layers: Mapping[str, RoundedLinear]
    dtype: str
    max_drop: float


def in_int8(plan: Quantizing, measured: Sequence[Measured]) -> Iterator[Candidate]:
    """The model in float32, in the default number format if that differs, and with as many int8 layers as the allowed
    drop permits: the layers with the greatest errors stay as they are, at most about half of all."""
    loaded = plan.exact.checkpoint
    yield in_floats(loaded, as_used(loaded, "float32"))
    default = as_used(loaded, plan.dtype)
    if default.dtype != plan.exact.dtype:
        yield in_floats(loaded, default)

    # A drop is measured again for each number of layers, so the number doubles: few measurements reach half of all.
    sensitive = sorted(plan.layers, key=lambda name: -plan.layers[name].error)
    num_kept = 0
    while True:
        rounded = {name: plan.layers[name].linear for name in sensitive[num_kept:]}
        int8 = replace(loaded, model=replace_linears(loaded.model, rounded))
        logger.info(f"{len(rounded)} of {len(plan.layers)} layers in int8")

        yield Candidate(
            name=f"int8 except {format_count(num_kept, 'layer')}" if num_kept else "int8",
            checkpoint=int8,
            size=num_bytes(int8.model),
            predictor=as_used(int8, plan.dtype),
            unchanged=tuple(sorted(sensitive[:num_kept])),
        )
        if measured[-1].dev_drop.points <= plan.max_drop or 4 * num_kept > len(plan.layers):
            return
        num_kept = max(1, 2 * num_kept)


def in_floats(loaded: Checkpoint, predictor: Predictor) -> Candidate:
    size = num_bytes(loaded.model)  # in float32
    return Candidate(
        name=predictor.dtype,
        checkpoint=loaded,
        size=size if predictor.dtype == "float32" else size // 2,
        predictor=predictor,
    )


def as_used(loaded: Checkpoint, dtype: str) -> Predictor:
    """The model as a user loads it from its files: by the core where that can be, with other speeds than by torch.

    A model that cannot be loaded, since its weights are not finite, is measured as it is, and is refused then."""
    with TemporaryDirectory() as folder:
        checkpoint.save(loaded, Path(folder) / "model")
        try:
            return load(Path(folder) / "model", dtype=dtype, device="cpu")
        except InputError:
            return Predictor(loaded, dtype=dtype, device="cpu")


# --- notes ------------------------------------------------------------------------------------------------------------


def rows_note(data: LabelledRows) -> str:
    reference = "by their labels" if data.labelled else "by the results in float32, since there are no labels"
    return f"measured on {len(data):,} texts {reference}"


def layers_note(kept: Sequence[str], num_layers: int) -> str:
    """A line that counts the int8 layers and names the others."""
    unchanged = f"; unchanged: {', '.join(kept)}" if kept else ""
    return f"{num_layers - len(kept)} of {num_layers} layers are int8{unchanged}"


def speed_note(measured: Sequence[Measured]) -> str:
    """A line that names the fastest format on this processor. If that is not int8 (the last), it compares the two."""
    int8 = measured[-1]
    formats = [row for row in measured if row is int8 or "int8" not in row.name]
    fastest = max(formats, key=lambda row: row.speed)
    if fastest is int8:
        return "int8 is the fastest format on this processor"
    size = f"int8 is smaller: {int8.size / 1e6:.1f} against {fastest.size / 1e6:.1f} MB"
    speed = f"{fastest.texts_per_second:,.0f} against {int8.texts_per_second:,.0f} texts/s"
    return f"{fastest.name} is faster on this processor: {speed}; {size}"
