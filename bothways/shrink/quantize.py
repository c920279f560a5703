"""Post-training int8 quantization: calibrate on half of the texts, measure on the others.

Nothing is written if the score drops too much.

`texts -calibration half-> inputs of each layer -> int8 layers -measurement half-> scores -> write, or InputError`
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bothways.base.errors import InputError, format_count
from bothways.base.io import check_target
from bothways.base.log import logger, working
from bothways.evaluation.before_after import DEFAULT_MAX_DROP, MAX_ROWS, read_evaluation_rows, selected_on
from bothways.inference.predictor import Predictor
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import check_plain
from bothways.model.checkpoint.description import METADATA_FILE
from bothways.model.int8 import replace_linears
from bothways.model.int8_training import CALIBRATION_EXAMPLES, RoundedLinear, calibrate
from bothways.settings.deploy import Quantize
from bothways.shrink.candidates import Candidate, Choice, Measured, Rule, UserRows, compare, num_bytes
from bothways.text.batching import spread_evenly

MIN_TEXTS = 16  # texts in each half


@dataclass(frozen=True)
class Quantizing:
    """Arguments of the source of `quantize`. exact: the model in float32. layers: in int8. dtype: the number format of
    all other layers. max_drop: in points, on the calibration half."""

    exact: Predictor
    layers: Mapping[str, RoundedLinear]
    dtype: str
    max_drop: float


def in_int8(plan: Quantizing, measured: Sequence[Measured]) -> Iterator[Candidate]:
    """The model in float32, in the default number format if that differs, and with as many int8 layers as the allowed
    drop permits: the layers with the greatest errors stay as they are, at most about half of all."""
    exact, loaded = plan.exact, plan.exact.checkpoint
    for form in (exact, Predictor(loaded, dtype=plan.dtype, device="cpu")):
        if form is exact or form.dtype != exact.dtype:
            yield Candidate(str(form.dtype).removeprefix("torch."), loaded, num_bytes(form.module), form)
    layers, sensitive = plan.layers, sorted(plan.layers, key=lambda name: -plan.layers[name].error)
    num_kept = 0
    while True:
        model = replace_linears(loaded.model, {name: layers[name].linear for name in sensitive[num_kept:]})
        int8, kept = replace(loaded, model=model), tuple(sorted(sensitive[:num_kept]))
        logger.info(f"{len(layers) - num_kept} of {len(layers)} layers in int8")
        name = f"int8 except {format_count(num_kept, 'layer')}" if kept else "int8"
        yield Candidate(name, int8, num_bytes(model), Predictor(int8, dtype=plan.dtype, device="cpu"), kept)
        if measured[-1].dev_drop.points <= plan.max_drop or 4 * num_kept > len(layers):
            return
        num_kept = max(1, 2 * num_kept)


@working("quantize")
def run(settings: Quantize) -> Choice:
    """Quantize, measure and write. InputError if the drop is too large, or if texts or model cannot be used."""
    source, texts, out = settings.model, settings.texts, settings.out
    loaded = checkpoint.load(source)
    check_plain(loaded.model)
    check_target(out, holds=METADATA_FILE)
    if (out / METADATA_FILE).exists():
        raise InputError(f"{out}: already contains a model or a run; name another, or delete that one")
    exact = Predictor(loaded, dtype="float32", device="cpu")
    data = read_evaluation_rows(exact, texts, settings)
    seen = selected_on(exact, [texts])
    calibrating, measuring = (replace(data, rows=[data.rows[row] for row in half]) for half in halves(len(data), texts))
    layers = calibrate(exact.module, lambda: data.evaluator.predict(exact, calibrating.rows))
    max_drop = DEFAULT_MAX_DROP if settings.max_drop is None else settings.max_drop
    rule, samples = Rule(max_drop, by_interval=True), (UserRows(calibrating), UserRows(measuring))
    measured, best = compare("quantize", Quantizing(exact, layers, settings.dtype, max_drop), samples, rule)
    way_out = f"half of {texts} was measured on, nothing was written; give more texts of the application"
    measured[-1].drop.check(max_drop, len(measuring), "int8", way_out)
    kept = measured[-1].unchanged
    unchanged = f"; unchanged: {', '.join(kept)}" if kept else ""
    reference = "by their labels" if data.labelled else "by the results in float32, since there are no labels"
    notes = (
        f"measured on {len(measuring):,} texts {reference}",
        f"{len(layers) - len(kept)} of {len(layers)} layers are int8{unchanged}",
        speed_note(measured),
    )
    choice = Choice(out, out, "texts", len(measuring), rule, measured, len(measured) - 1, notes)
    record = {"from": str(source), "texts": str(texts), **choice.record, **seen}
    metadata = {**loaded.metadata, "verb": "quantize", "quantize": record}
    checkpoint.save(replace(best.checkpoint, metadata=metadata), out)
    return choice


def speed_note(measured: Sequence[Measured]) -> str:
    """A line that names the fastest format on this processor. If that is not int8 (the last), it compares the two."""
    int8 = measured[-1]
    fastest = max((one for one in measured if one is int8 or "int8" not in one.name), key=lambda one: one.speed)
    if fastest is int8:
        return "int8 is the fastest format on this processor"
    size = f"int8 is smaller: {int8.size / 1e6:.1f} against {fastest.size / 1e6:.1f} MB"
    speed = f"{fastest.texts_per_second:,.0f} against {int8.texts_per_second:,.0f} texts/s"
    return f"{fastest.name} is faster on this processor: {speed}; {size}"


def halves(size: int, source: Path) -> tuple[Sequence[int], Sequence[int]]:
    """Alternating rows for calibration and measurement; for long files an evenly spread sample."""
    if size < 2 * MIN_TEXTS:
        raise InputError(
            f"{source}: {format_count(size, 'text')}; calibrating and measuring need {MIN_TEXTS} each; add more"
        )
    return spread_evenly(range(0, size, 2), CALIBRATION_EXAMPLES), spread_evenly(range(1, size, 2), MAX_ROWS)
