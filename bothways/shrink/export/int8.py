"""int8 quantization of an exported ONNX file, kept if the drop on the user's texts is small.

Weights are int8 with a scale per channel; activations are quantized dynamically (ONNX Runtime). Mean cosine to float32
on MiniLM-L6 and 200 lines of Wikipedia (docs/LOG.md): 0.955 with a scale per tensor; 0.993 per channel; 0.996 with
each layer's second feed-forward product, whose inputs have outliers, in float32. Statically calibrated activations give
0.927, and 0.991 without those products.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from bothways.base.errors import InputError
from bothways.base.io import fsync, read_json, write_atomic
from bothways.evaluation.before_after import DEFAULT_MAX_DROP, MAX_ROWS, read_evaluation_rows, selected_on
from bothways.inference.backends.encoder import EncoderBackend
from bothways.inference.predictor import Predictor
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.checkpoint.description import METADATA_FILE
from bothways.model.model import Model
from bothways.settings.base import TextColumns
from bothways.shrink.candidates import Choice, Rule, compare
from bothways.shrink.export.graph import quiet
from bothways.shrink.export.parity import padded, session
from bothways.shrink.measuring import Candidate, Measured, UserRows
from bothways.text.batch import Batch
from bothways.text.batching import spread_evenly

if TYPE_CHECKING:
    from onnx import ModelProto

NAME = "model-int8.onnx"
# Products that stay float32; the first attempt that passes is kept.
ATTEMPTS: tuple[tuple[str, ...], ...] = (
    (),
    ("feed_forward.output.weight",),
)


def write(loaded: Checkpoint, file: Path, texts: Path, columns: TextColumns, max_drop: float | None) -> Choice:
    """Write NAME next to the file: the first attempt whose loss on texts is within max_drop points.

    loaded: the exported model.
    file: the float32 ONNX file.
    texts: a file of texts, with labels or without.
    columns: of this file.
    max_drop: points; None: DEFAULT_MAX_DROP.

    InputError if every attempt loses more; then only the float32 file is kept.
    """
    if file.with_name(f"{file.name}.data").exists():
        raise InputError(f"{file}: larger than 2 GB, which cannot be quantized; {file.name} is kept")
    rule = Rule(DEFAULT_MAX_DROP if max_drop is None else max_drop, by_interval=True)

    original = file_predictor(file, loaded)
    data = read_evaluation_rows(original, texts, columns)
    selected_on(original, [texts])
    rows = spread_evenly(range(len(data)), MAX_ROWS)
    sample = UserRows(replace(data, rows=[data.rows[row] for row in rows]))

    temporary = file.with_name(f".{NAME}.partial")
    try:
        measured, _ = compare("export", Exported(loaded, file, temporary, rule), (sample, sample), rule)
        way_out = f"{NAME} was not written, {file} is kept; give more texts"
        measured[-1].drop.check(rule.max_drop, len(sample.data), "int8", way_out)
        fsync(temporary)
        temporary.replace(file.with_name(NAME))
    finally:
        temporary.unlink(missing_ok=True)

    choice = Choice(
        directory=file.parent,
        model=file.with_name(NAME),
        split="texts",
        rows=len(sample.data),
        rule=rule,
        measured=measured,
        kept=len(measured) - 1,
    )
    add_metadata(file.with_name(METADATA_FILE), {**choice.record, "with": str(texts)})
    return choice


def add_metadata(file: Path, int8: Mapping[str, Any]) -> None:
    """Add the int8 file to bothways.json."""
    metadata = read_json(file)
    metadata["onnx"]["int8"] = int8
    write_atomic(file, json.dumps(metadata, indent=2, ensure_ascii=False) + "\n")


# --- candidates -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Exported:
    """The plan of `export --int8`.

    loaded: the exported model.
    file: the float32 ONNX file.
    temporary: path of the int8 file.
    rule: by which an attempt is kept.
    """

    loaded: Checkpoint
    file: Path
    temporary: Path
    rule: Rule


def in_int8(plan: Exported, measured: Sequence[Measured]) -> Iterator[Candidate]:
    """The float32 file, and attempts in int8 until the loss of one is allowed."""
    yield file_candidate("float32", plan.file, plan.loaded)
    for kept in ATTEMPTS:
        quantize(plan.file, plan.temporary, kept)
        yield replace(file_candidate("int8", plan.temporary, plan.loaded), unchanged=kept)
        if plan.rule.allows(measured[-1]):
            return


def quantize(file: Path, to: Path, kept: tuple[str, ...]) -> None:
    """Quantize embedding tables and matrix products to int8.

    file: the float32 ONNX file.
    to: the int8 file to write.
    kept: weights whose names end in one of these stay float32.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model = onnx.load(file)
    # The quantizer transposes weights of products, which invalidates recorded shapes and other uses of the weight.
    del model.graph.value_info[:]
    untie(model)

    excluded = [node.name for node in model.graph.node if any(name.endswith(kept) for name in node.input)]
    with quiet(None):
        quantize_dynamic(
            model,
            to,
            per_channel=True,
            weight_type=QuantType.QInt8,
            op_types_to_quantize=["MatMul", "Gather"],
            nodes_to_exclude=[*excluded, *(f"{name}_MatMul" for name in excluded)],  # nodes of a split Gemm
        )


def untie(model: "ModelProto") -> None:
    """Copy weights that are used both as an embedding table and in a product (vocabulary scores)."""
    tables = {node.input[0] for node in model.graph.node if node.op_type == "Gather"}
    weights = {weight.name: weight for weight in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Gemm" and node.input[1] in tables:
            copy = model.graph.initializer.add()
            copy.CopyFrom(weights[node.input[1]])
            copy.name = f"{copy.name}.read_backwards"
            node.input[1] = copy.name


# --- predictions with a file ------------------------------------------------------------------------------------------


def file_candidate(name: str, file: Path, loaded: Checkpoint) -> Candidate:
    return Candidate(name, loaded, size=file.stat().st_size, predictor=file_predictor(file, loaded))


def file_predictor(file: Path, loaded: Checkpoint) -> Predictor:
    """A Predictor that computes with an ONNX file."""
    return Predictor(EncoderBackend(loaded, module=FileModel(file, loaded.model), dtype="float32", device="cpu"))


class FileModel:
    """A TokenModel (inference/runner.py) that runs an ONNX file, whose outputs are already scores: its hidden states
    are these scores, and its heads return them unchanged.

    For a text in several windows the scores are averaged, whereas our model averages the [CLS] vectors.
    """

    def __init__(self, file: Path, model: Model) -> None:
        self.config = model.config
        self.num_outputs = model.num_outputs
        self.run = session(file)

    def __call__(self, batch: Batch) -> Tensor:
        """[T, C], or [T, H] for a model without a head; scores of a text are in the row of its first token."""
        inputs, real_NS = padded(batch, int(batch.lengths.max()), "right")
        outputs = self.run(inputs)
        if "spans" in self.num_outputs:
            spans_NS2 = np.stack([outputs["start_logits"], outputs["end_logits"]], -1)
            return torch.from_numpy(spans_NS2[real_NS])
        if "classes" not in self.num_outputs:
            first_output = next(iter(outputs.values()))
            return torch.from_numpy(first_output[real_NS])

        scores_NC = torch.from_numpy(outputs["logits"])
        rows_TC = torch.zeros(batch.num_tokens, scores_NC.shape[1])
        rows_TC[batch.first_tokens] = scores_NC
        return rows_TC

    def word_scores(self, x_MH: Tensor) -> Tensor:
        return x_MH

    def text_states(self, hidden_TH: Tensor, batch: Batch) -> Tensor:
        return hidden_TH[batch.first_tokens]

    def text_scores(self, name: str, first_NH: Tensor) -> Tensor:
        return first_NH

    def token_scores(self, name: str, x_TH: Tensor) -> Tensor:
        return x_TH
