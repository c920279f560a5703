"""Parity check of an ONNX file: its scores against the model's, over lengths and padding.

The model's scores are computed in float32 on ragged batches, without the padded layout that was exported: `Bucketed`.
Letters: N texts of S tokens or fewer, T tokens of all.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from bothways.base.errors import InputError
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.config import EncoderConfig, RandomBlocksConfig
from bothways.model.layout import Bucketed
from bothways.shrink.export.graph import Output, Vectors, outputs
from bothways.tasks.pooling import pool_rows, pool_windows
from bothways.text.batch import Batch

Side = Literal["none", "left", "right"]
Run = Callable[[Mapping[str, NDArray[Any]]], dict[str, NDArray[Any]]]
SIDES: tuple[Side, ...] = get_args(Side)
LENGTHS = (1, 2, 3, 7, 16, 33, 64, 127, 256, 512)  # tokens of the longest text of a batch; 1: only [CLS]
BATCHES = (1, 3, 16, 64)
MOST_TOKENS = 2048  # of a padded batch
MOST_VALUES = 2**25  # of one output of a padded batch


@dataclass(frozen=True)
class Cell:
    """The greatest difference of each output, at real tokens, in one batch."""

    length: int
    batch: int
    side: Side
    differences: Mapping[str, float]

    @property
    def output(self) -> str:
        """The output that differs most."""
        return max(self.differences, key=lambda name: self.differences[name])

    @property
    def difference(self) -> float:
        return self.differences[self.output]


@dataclass(frozen=True)
class Report:
    """All cells, and the tolerance."""

    cells: tuple[Cell, ...]
    tolerance: float

    @property
    def worst(self) -> Cell:
        return max(self.cells, key=lambda cell: cell.difference)

    @property
    def by_output(self) -> dict[str, float]:
        """The greatest difference of each output."""
        return {name: max(cell.differences[name] for cell in self.cells) for name in self.cells[0].differences}

    def check(self, what: object) -> None:
        """InputError naming the worst cell if it exceeds the tolerance."""
        cell = self.worst
        if cell.difference > self.tolerance:
            padding = "without padding" if cell.side == "none" else f"padded on the {cell.side}"
            raise InputError(
                f"{what}: {cell.output} differs from the original by {cell.difference:.3g} (tolerance "
                f"{self.tolerance:g}) at length {cell.length}, batch {cell.batch}, {padding}; nothing was written"
            )

    def to_json(self) -> dict[str, Any]:
        return {
            "tolerance": self.tolerance,
            "greatest": self.by_output,
            "cells": [asdict(cell) for cell in self.cells],
        }

    def lines(self) -> list[str]:
        """A line per length, a column per padding side: the greatest difference over batch sizes and outputs. Then a
        line per output."""
        batches = ", ".join(map(str, sorted({cell.batch for cell in self.cells})))
        sides = ["no padding" if side == "none" else side for side in SIDES]
        lines = [
            f"greatest difference from the original, batches of {batches} (tolerance {self.tolerance:g})",
            f"{'tokens':>6} " + " ".join(f"{side:>10}" for side in sides),
        ]

        for length in sorted({cell.length for cell in self.cells}):
            cells = [cell for cell in self.cells if cell.length == length]
            greatest = [max(cell.difference for cell in cells if cell.side == side) for side in SIDES]
            lines.append(f"{length:6} " + " ".join(f"{difference:10.1e}" for difference in greatest))

        for name, difference in self.by_output.items():
            lines.append(f"output {name}: largest difference of {difference:.1e}")
        return lines


def session(file: Path) -> Run:
    """ONNX Runtime on the CPU with all optimizations: a function from inputs to outputs, both by name."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # only errors
    opened = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    input_names = [node.name for node in opened.get_inputs()]
    output_names = [node.name for node in opened.get_outputs()]

    def run(inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        results = opened.run(output_names, {name: inputs[name] for name in input_names})
        return dict(zip(output_names, results, strict=True))

    return run


def compare(
    run: Run,
    loaded: Checkpoint,
    vectors: Vectors | None,
    *,
    tolerance: float,
    lengths: Sequence[int] = (),
    batches: Sequence[int] = BATCHES,
    most_tokens: int = MOST_TOKENS,
) -> Report:
    """Compare every length with every batch size and padding side.

    run: computes with the ONNX file; see `session`.
    loaded: the original model.
    vectors: how the texts' vectors are computed, if they are an output.
    tolerance: the greatest difference that is allowed.
    lengths: tokens of the longest text; by default `lengths_for` the config, up to the longest input.
    batches: numbers of texts.
    most_tokens: of a padded batch; larger batches are left out.
    """
    config = loaded.model.config
    lengths = lengths or lengths_for(config)
    longest = min(max(lengths), config.max_position_embeddings)
    if "masked_words" in loaded.model.num_outputs:
        most_tokens = min(most_tokens, MOST_VALUES // config.vocab_size)

    cells = []
    compared_lengths = sorted({longest, *(length for length in lengths if length < longest)})
    for length, size in product(compared_lengths, batches):
        if length * size > max(most_tokens, longest):
            continue
        equal = texts(loaded, length, size, mixed=False)
        mixed = texts(loaded, length, size, mixed=True)
        expected_equal = reference(loaded, vectors, equal)
        expected_mixed = reference(loaded, vectors, mixed)

        for side in SIDES:
            # Only texts of equal length need no padding.
            batch, expected = (equal, expected_equal) if side == "none" else (mixed, expected_mixed)
            inputs, real_NS = padded(batch, length, side, config.vocab_size)
            differences = greatest_differences(run(inputs), expected, real_NS)
            cells.append(Cell(length, size, side, differences=differences))
    return Report(tuple(cells), tolerance)


def lengths_for(config: EncoderConfig) -> tuple[int, ...]:
    """LENGTHS, and a length at which most tokens no longer attend to the whole text."""
    if isinstance(config.sparse_attention, RandomBlocksConfig):
        return (*LENGTHS, config.sparse_attention.max_full_length + 2)
    return (*LENGTHS, 2 * config.attention_window + 2)


def texts(loaded: Checkpoint, length: int, size: int, *, mixed: bool) -> Batch:
    """Texts of random words between [CLS] and [SEP], the second half of each in segment 1.

    loaded: the model, with its vocabulary.
    length: tokens of the first text.
    size: number of texts.
    mixed: the others have any number of tokens up to `length`, instead of `length` tokens.
    """
    draw = np.random.default_rng([length, size])
    lengths_N = draw.integers(1, length + 1, size) if mixed else np.full(size, length)
    lengths_N[0] = length
    ends_N = lengths_N.cumsum()
    starts_N = ends_N - lengths_N

    ids_T = draw.integers(0, loaded.model.config.vocab_size, ends_N[-1])
    if loaded.tokenizer:
        # A text of one token is [CLS] alone, so [CLS] is written last.
        ids_T[ends_N - 1] = loaded.tokenizer.sep_id
        ids_T[starts_N] = loaded.tokenizer.cls_id

    positions_T = np.arange(ends_N[-1]) - np.repeat(starts_N, lengths_N)
    has_segments = loaded.model.config.type_vocab_size > 1
    segments_T = 2 * positions_T // np.repeat(lengths_N, lengths_N) * has_segments
    return Batch.from_arrays(ids_T, segments_T, lengths_N)


def reference(loaded: Checkpoint, vectors: Vectors | None, batch: Batch) -> list[Output]:
    """The model's outputs for a ragged batch.

    loaded: the original model.
    vectors: how the texts' vectors are computed, if they are an output.
    batch: of texts.
    """
    model = loaded.model
    with torch.inference_mode():
        context = model.encoder.build_context(batch, Bucketed(batch.lengths, torch.device("cpu")))
        hidden_TH = model(batch, context)
        text_states_NH = model.text_states(hidden_TH, batch)
        results = outputs(model, hidden_TH, text_states_NH, has_states=vectors is not None)

        if vectors is not None:
            bounds_N2 = torch.stack([torch.zeros_like(batch.lengths), batch.lengths], dim=1)
            rows = pool_rows(vectors.pooling)(hidden_TH, batch, bounds_N2)
            text_of_row = torch.arange(len(batch))
            pooled_NH = pool_windows(vectors.pooling, rows, text_of_row, len(batch), batch.lengths)
            unit_NH = torch.nn.functional.normalize(pooled_NH) if vectors.normalize else pooled_NH
            results.append(Output("sentence_embedding", by_token=False, values=unit_NH))
    return results


def padded(
    batch: Batch, size: int, side: Side, vocab_size: int = 1
) -> tuple[dict[str, NDArray[np.int64]], NDArray[np.bool_]]:
    """The inputs [N, S], and which tokens are real.

    batch: of ragged texts.
    size: S.
    side: where the padding is.
    vocab_size: padding is random words of these, so that only the mask can hide it.
    """
    lengths_N1 = batch.lengths.numpy()[:, None]
    positions_S = np.arange(size)
    real_NS = positions_S >= size - lengths_N1 if side == "left" else positions_S < lengths_N1

    ids_NS = np.random.default_rng(size).integers(0, vocab_size, real_NS.shape)
    ids_NS[real_NS] = batch.input_ids.numpy()
    segments_NS = np.zeros_like(ids_NS)
    segments_NS[real_NS] = batch.segment_ids.numpy()

    inputs = {
        "input_ids": ids_NS,
        "attention_mask": real_NS.astype(np.int64),
        "token_type_ids": segments_NS,
    }
    return inputs, real_NS


def greatest_differences(
    results: Mapping[str, NDArray[Any]], expected: Sequence[Output], real_NS: NDArray[np.bool_]
) -> dict[str, float]:
    """The greatest difference of each output; infinity if it contains NaN.

    results: of the ONNX file, by name.
    expected: the model's outputs.
    real_NS: which tokens are real.
    """
    differences = {}
    for output in expected:
        values = results[output.name][real_NS] if output.by_token else results[output.name]
        assert values.shape == tuple(output.values.shape), (output.name, values.shape, output.values.shape)
        difference = float(np.abs(values - output.values.numpy()).max())
        differences[output.name] = difference if np.isfinite(difference) else float("inf")
    return differences
