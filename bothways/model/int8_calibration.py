"""int8 calibration (SmoothQuant): scales of inputs and weights from sample texts.

Input columns differ in magnitude by a factor of ten and more, and the largest would determine the quantization step of
all. Therefore each column is divided by largest_input^s / largest_weight^(1-s), and the weights are multiplied by it
(Xiao 2023, eq. 4). The strength s is the one of STRENGTHS with the least error in the layer's outputs.

Letters: T tokens, S sampled tokens, I inputs, O outputs.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bothways.errors import InputError
from bothways.model.int8 import Int8Linear, can_fuse, quantize_symmetric
from bothways.model.layer import FeedForward
from bothways.model.model import Model

STRENGTHS = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # 0: one step for all columns
ROWS_PER_BATCH = 64  # rows to sample per batch (about), for measuring errors
MAX_ROWS = 2048  # sampled rows in all; beyond this, every other row is dropped
EPSILON = 1e-30  # avoids division by 0


@dataclass
class Inputs:
    """The inputs of a layer: minimum and maximum of each column, and a sample of rows."""

    low_I: Tensor
    high_I: Tensor
    rows: list[Tensor] = field(default_factory=list)
    step: int = 1  # every step-th candidate row is sampled

    def update(self, x_TI: Tensor) -> None:
        self.low_I = torch.minimum(self.low_I, x_TI.amin(0))
        self.high_I = torch.maximum(self.high_I, x_TI.amax(0))
        self.rows.append(x_TI[:: max(1, len(x_TI) // ROWS_PER_BATCH) * self.step].clone())
        if sum(map(len, self.rows)) > MAX_ROWS:
            self.rows, self.step = [torch.cat(self.rows)[::2].clone()], 2 * self.step


class Candidate(NamedTuple):
    """A layer in int8, and its relative squared error."""

    linear: Int8Linear
    error: float


MAPS = ("attention.qkv", "attention.output", "feed_forward.inner", "feed_forward.output")  # applied to every token


def linears_of(model: Model) -> dict[str, nn.Linear]:
    """The layers to quantize, by name: those whose cost grows with the number of tokens."""
    relative = model.config.relative_positions
    through_qkv = relative is not None and relative.shared  # its inputs for positions are not observed here
    maps = [name for name in MAPS if not (through_qkv and name == "attention.qkv")]
    return {
        name: part
        for name, part in model.named_modules()
        if isinstance(part, nn.Linear) and ".layers." in name and name.endswith(tuple(maps))
    }


def observe(model: Model, read: Callable[[], object]) -> dict[str, Inputs]:
    """Collect the inputs of each of these layers while `read` runs."""
    inputs: dict[str, Inputs] = {}

    def hook(name: str, module: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        x_TI = arguments[0].detach().float()
        inputs.setdefault(name, Inputs(x_TI[0].clone(), x_TI[0].clone())).update(x_TI)

    hooks = [part.register_forward_pre_hook(partial(hook, name)) for name, part in linears_of(model).items()]
    try:
        read()
    finally:
        for handle in hooks:
            handle.remove()
    return inputs


def candidates(model: Model, inputs: dict[str, Inputs]) -> dict[str, Candidate]:
    """Each layer in the int8 form with the least error on the sampled rows. InputError if inputs overflow float32."""
    # The output of a fused product is rounded with one step for all columns.
    rounded = {
        f"{name}.output"
        for name, part in model.named_modules()
        if isinstance(part, FeedForward) and can_fuse(part, model.config)
    }
    quantized = {}
    for name, linear in linears_of(model).items():
        if not (inputs[name].low_I.isfinite().all() and inputs[name].high_I.isfinite().all()):
            raise InputError(
                f"{name} overflows float32 on these texts; the model is broken: train or download it again"
            )
        strengths = STRENGTHS[:1] if name in rounded else STRENGTHS
        attempts = [candidate(linear, inputs[name], strength) for strength in strengths]
        quantized[name] = min(attempts, key=lambda attempt: attempt.error)
    return quantized


@torch.no_grad()
def candidate(linear: nn.Linear, inputs: Inputs, strength: float) -> Candidate:
    quantized = int8_linear(linear, inputs.low_I, inputs.high_I, strength)
    x_SI = torch.cat(inputs.rows)
    exact_SO = F.linear(x_SI, linear.weight)
    error_SO = quantized(x_SI) - quantized.bias - exact_SO
    return Candidate(quantized, float(error_SO.square().sum() / exact_SO.square().sum().clamp_min(EPSILON)))


def int8_linear(linear: nn.Linear, low_I: Tensor, high_I: Tensor, strength: float = 0.0) -> Int8Linear:
    """The int8 layer for inputs between low and high. 0 is represented exactly."""
    weight_OI = linear.weight.detach().float()
    largest_I = torch.maximum(low_I.abs(), high_I.abs()).clamp_min(1e-6)
    size_I = largest_I**strength / weight_OI.abs().amax(0).clamp_min(1e-6) ** (1 - strength)
    size_I = size_I if strength else torch.ones_like(size_I)
    low, high = float((low_I / size_I).min().clamp_max(0)), float((high_I / size_I).max().clamp_min(0))
    scale = max(high - low, 1e-6) / 255
    quantized = Int8Linear(linear.in_features, linear.out_features)
    integers_OI, scale_O = quantize_symmetric(weight_OI * size_I)
    quantized.weight_int8.copy_(integers_OI)
    quantized.weight_scale.copy_(scale_O)
    if linear.bias is not None:
        quantized.bias.copy_(linear.bias.detach())
    quantized.input_factor.copy_(1 / (scale * size_I))
    quantized.input_scale.fill_(scale)
    quantized.input_zero.fill_(round(-low / scale))
    return quantized.eval()
