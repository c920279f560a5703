"""Settings of `quantize`, `export` and `bench`."""

from pathlib import Path
from typing import Annotated, Literal

from bothways.pretrained import DEFAULT
from bothways.settings.accepted import Several, default
from bothways.settings.base import (
    Checked,
    Compute,
    DefaultModel,
    Encoded,
    Model,
    NumberFormat,
    OptionalDirectory,
    OptionalOutput,
    Output,
    Printed,
    TextColumns,
    settings,
)
from bothways.settings.location import Location, OptionalLocation
from bothways.settings.marks import arg

Texts = Annotated[Location, arg(name="with")]
OptionalTexts = Annotated[OptionalLocation, arg(name="with")]


@settings
class Quantize(TextColumns, Checked, NumberFormat, Printed):
    """Quantize a model to int8: smaller, often faster on CPUs. Nothing is written if its scores may drop too much."""

    model: Model
    """Checkpoint, run, or name of a model on the hub."""
    texts: Texts
    """At least 32 of your texts, labelled or not: half for calibration, half to measure the drop in quality."""
    out: Output
    """Output directory."""
    max_drop: float | None = None
    """Largest allowed upper end of the drop's 95 % interval, in points; a mean cosine counts times 100. [0.5]"""


@settings
class Pack(Printed):
    """Pack a model: its word table and layers in few bits, for shipping. It is unpacked when it is loaded."""

    model: Model
    """Checkpoint, run, or name of a model on the hub."""
    out: Output
    """Output directory."""
    word_bits: Literal[4, 5, 6, 8] = 4
    """Bits of a number in the word table."""
    layer_bits: Literal[4, 5, 6, 8] = 6
    """Bits of a number in the other matrices."""


@settings
class Unpack(Printed):
    """Unpack a model into float32 weights in the Hugging Face layout, which transformers and sentence-transformers
    read."""

    model: Model
    """A packed model, such as bothways-en, or any other checkpoint or run."""
    out: Output
    """Output directory."""


@settings
class Merge(Printed):
    """Merge an adapter (LoRA, or biases) into the model that it belongs to, as plain weights which every library
    reads."""

    adapter: Model
    """Directory of an adapter, or run that trained one."""
    out: Output
    """Output directory."""
    base: OptionalDirectory = default(None)
    """The model that it belongs to: a checkpoint, a run, or a name on the hub. [the one that the adapter names]"""


@settings
class Export(TextColumns, Checked, Printed):
    """Export a model to ONNX. Nothing is written if its scores under ONNX Runtime differ from the original's by more
    than --tolerance."""

    model: Model
    """Checkpoint, run, or name of a model on the hub."""
    out: Output
    """Output directory, for model.onnx, the tokenizer files and metadata."""
    to: Literal["onnx"] = "onnx"
    """Output format."""
    tolerance: float = 1e-4
    """Largest allowed difference between a score and the original."""
    int8: bool = False
    """Also write model-int8.onnx; its drop in quality is measured on the texts of --with."""
    texts: OptionalTexts = default(None)
    """With --int8: your own texts, with or without labels, on which its drop in quality is measured."""
    max_drop: float | None = None
    """Largest allowed upper end of the int8 drop's 95 % interval, in points; a mean cosine counts times 100. [0.5]"""


@settings
class Bench(Encoded, Checked, Compute, Printed):
    """Benchmark a model on this machine: throughput and latency by batch size and text length, compared with
    other installed libraries."""

    model: DefaultModel = default(Path(DEFAULT))
    """Checkpoint, run, or name of a model on the hub."""
    out: OptionalOutput = default(None)
    """Chart to write (.png), if other systems are measured too."""
    texts: OptionalTexts = default(None)
    """Also measure these texts of yours, with their own lengths. [only random words, in the lengths of --lengths]"""
    text_column: str | None = None
    """Column of --with with the texts, or several separated by commas. [as in fine-tuning, else text, sentence, ...]"""
    lengths: Several[int] = default((16, 64, 128, 256, 512))
    """Tokens per text."""
    window: int | None = None
    """Maximum tokens per window, special tokens included. [as in fine-tuning, else 512]"""
    batches: Several[int] = default((1, 8, 64))
    """Texts per call."""
    repeats: int = 5
    """Repetitions; the median is reported."""
    peers: bool = True
    """Also measure other libraries, if installed: sentence-transformers, transformers, ONNX Runtime, OpenVINO. If they
    cannot read the model, they run its encoder in their own number formats."""
