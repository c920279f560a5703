"""Settings of `quantize`, `export` and `bench`."""

from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import arg

from bothways.settings.base import (
    Checked,
    Compute,
    Encoded,
    Model,
    OptionalOutput,
    Output,
    Printed,
    TextColumns,
    settings,
)

Texts = Annotated[Path, arg(name="with")]
OptionalTexts = Annotated[Path | None, arg(name="with")]


@settings
class Quantize(TextColumns, Checked, Compute, Printed):
    """Quantize a model to int8: smaller, and faster on processors. The loss is measured before anything is written."""

    model: Model
    """Checkpoint or run."""
    texts: Texts
    """At least 32 of your own texts: some calibrate, the others measure the loss, by their labels, tags or answers if
    the file has any, else by how much the predictions change."""
    out: Output
    """Output directory."""
    max_drop: float | None = None
    """Largest loss allowed, in points (hundredths). [0.5; for vectors a mean cosine of 0.995]"""


@settings
class Export(TextColumns, Checked, Printed):
    """Export a model to ONNX. Its scores are compared with ours before the file gets its name."""

    model: Model
    """Checkpoint or run."""
    out: Output
    """Output directory: model.onnx, the tokenizer's files, and how it was made."""
    to: Literal["onnx"] = "onnx"
    """Format."""
    tolerance: float = 1e-4
    """Largest difference of a score from ours."""
    int8: bool = False
    """Write model-int8.onnx too; its loss is measured on --with."""
    texts: OptionalTexts = None
    """Your own texts, with or without labels, to measure int8 on."""
    max_drop: float | None = None
    """Largest loss allowed for int8, in points (hundredths). [0.5; for vectors a mean cosine of 0.995]"""


@settings
class Bench(Encoded, Checked, Compute, Printed):
    """Benchmark a model on this machine: texts and tokens per second, and latency, over batch sizes and lengths, beside
    every installed peer."""

    model: Model
    """Checkpoint or run."""
    out: OptionalOutput = None
    """Picture to write (.png)."""
    texts: OptionalTexts = None
    """Your own texts, for their distribution of lengths. [random words in the lengths below]"""
    lengths: tuple[int, ...] = (16, 64, 128, 256, 512)
    """Tokens per text."""
    window: int | None = None
    """Maximum tokens per window, special tokens included. [as in fine-tuning, else 512]"""
    batches: tuple[int, ...] = (1, 8, 64)
    """Texts per call."""
    repeats: int = 5
    """Repetitions; the median counts."""
    peers: bool = True
    """Also measure installed peers: sentence-transformers, ONNX Runtime, OpenVINO."""
