"""Fake int8 layers: what Int8Linear computes, in floating point and with gradients, for training (Jacob 2018, 3.1).

Rounding has the gradient of the identity; inputs beyond the range that was calibrated have none.

Calibration (SmoothQuant) chooses scales of inputs and weights from sample texts. Input columns differ in magnitude by a
factor of ten and more, and the largest would determine the quantization step of all. Therefore each column is divided
by largest_input^s / largest_weight^(1-s), and the weights are multiplied by it (Xiao 2023, eq. 4). The strength s is
the one of STRENGTHS with the least error in the layer's outputs. Letters: T tokens, S sampled tokens, I inputs, O
outputs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bothways.base.errors import InputError
from bothways.model.int8 import (
    MAX_INTEGER,
    ExactBuffers,
    Int8Linear,
    can_fuse,
    quantize_symmetric,
    set_linears,
)
from bothways.model.layer import FeedForward
from bothways.model.model import Model
from bothways.model.parameters import retype, set_module
from bothways.text.batch import Batch
from bothways.text.batching import token_batches

MAX_INPUT = 255
STRENGTHS = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # 0: one step for all columns
ROWS_PER_BATCH = 64  # rows to sample per batch (about), for measuring errors
MAX_ROWS = 2048  # sampled rows in all; beyond this, every other row is dropped
EPSILON = 1e-30  # avoids division by 0
CALIBRATION_EXAMPLES = 256  # texts to read
CALIBRATION_TOKENS = 1024  # of a batch of them


class FakeInt8Linear(ExactBuffers, nn.Linear):
    """A linear layer with inputs and weights rounded as by Int8Linear, once it is on.

    Its parameters keep the names that they had in the layer that it replaces.
    """

    input_factor: Tensor
    input_scale: Tensor
    input_zero: Tensor
    is_on: Tensor

    @staticmethod
    def of(linear: nn.Linear) -> "FakeInt8Linear":
        """A fake int8 layer with the parameters of a linear layer; it is off."""
        module = retype(linear, FakeInt8Linear)
        module.register_buffer("input_factor", torch.ones(linear.in_features))
        module.register_buffer("input_scale", torch.ones(()))
        module.register_buffer("input_zero", torch.zeros((), dtype=torch.int64))
        module.register_buffer("is_on", torch.zeros((), dtype=torch.bool))
        return module

    def turn_on(self, calibrated: Int8Linear) -> None:
        """Round from now on, with the quantization of the inputs of an int8 layer."""
        self.input_factor.copy_(calibrated.input_factor)
        self.input_scale.copy_(calibrated.input_scale)
        self.input_zero.copy_(calibrated.input_zero)
        self.is_on.fill_(True)

    @property
    def smoothing(self) -> Tensor:
        """SmoothQuant scale of each input column: divides the inputs and multiplies the weights (Xiao 2023, eq. 3)."""
        return 1 / (self.input_factor * self.input_scale)

    def forward(self, x_TI: Tensor) -> Tensor:
        """[T, I] -> [T, O]"""
        if not self.is_on:
            return super().forward(x_TI)

        rounded_TI = _round(torch.addcmul(self.input_zero.float(), x_TI.float(), self.input_factor))
        integers_TI = rounded_TI.clamp(0, MAX_INPUT) - self.input_zero

        # The scales of weights follow the weights; the scales of inputs stay as they were calibrated.
        weight_OI = self.weight.float() * self.smoothing
        largest_O = weight_OI.detach().abs().amax(1).clamp_min(torch.finfo(torch.float32).tiny * MAX_INTEGER)
        scale_O = largest_O / MAX_INTEGER
        integers_OI = _round(weight_OI / scale_O[:, None])

        # Integers up to 256 are exact in bf16 too, and sums are in float32.
        sums_TO = F.linear(integers_TI.to(x_TI.dtype), integers_OI.to(x_TI.dtype)).float()
        y_TO = sums_TO * (scale_O * self.input_scale)
        if self.bias is not None:
            y_TO = y_TO + self.bias.float()
        return y_TO.to(x_TI.dtype)

    @torch.no_grad()
    def deployed(self) -> Int8Linear:
        """The int8 layer that computes the same."""
        quantized = Int8Linear(self.in_features, self.out_features)
        integers_OI, scale_O = quantize_symmetric(self.weight.detach().float() * self.smoothing)
        quantized.weight_int8.copy_(integers_OI)
        quantized.weight_scale.copy_(scale_O)
        if self.bias is not None:
            quantized.bias.copy_(self.bias)
        quantized.input_factor.copy_(self.input_factor)
        quantized.input_scale.copy_(self.input_scale)
        quantized.input_zero.copy_(self.input_zero)
        return quantized.eval()


def _round(x: Tensor) -> Tensor:
    """round(x), with the gradient of x."""
    return x + (x.round() - x).detach()


def install_fake_int8(model: Model) -> None:
    """Replace the layers that become int8, in place; they compute as before until they are calibrated."""
    for name, linear in linears_of(model).items():
        set_module(model, name, FakeInt8Linear.of(linear))


def calibrate_fake_int8(model: Model, read: Callable[[], object]) -> None:
    """Turn on the rounding, with scales from the inputs that occur while `read` runs."""
    calibrated = calibrate(model, read)
    layers = fake_layers(model)
    for name, rounded in calibrated.items():
        layers[name].turn_on(rounded.linear)


def fake_layers(model: Model) -> Mapping[str, FakeInt8Linear]:
    """The fake int8 layers by name."""
    return {name: part for name, part in model.named_modules() if isinstance(part, FakeInt8Linear)}


def deploy_fake_int8(model: Model) -> None:
    """Replace fake int8 layers by int8 layers, in place."""
    set_linears(model, {name: layer.deployed() for name, layer in fake_layers(model).items()})


# --- calibration ------------------------------------------------------------------------------------------------------


@dataclass
class Inputs:
    """The inputs of a layer: minimum and maximum of each column, and a sample of rows."""

    low_I: Tensor
    high_I: Tensor
    rows: list[Tensor] = field(default_factory=list)
    step: int = 1  # every step-th candidate row is sampled

    def update(self, x_TI: Tensor) -> None:
        """Take another batch into account."""
        self.low_I = torch.minimum(self.low_I, x_TI.amin(0))
        self.high_I = torch.maximum(self.high_I, x_TI.amax(0))

        step = max(1, len(x_TI) // ROWS_PER_BATCH) * self.step
        self.rows.append(x_TI[::step].clone())
        if sum(map(len, self.rows)) > MAX_ROWS:
            self.rows = [torch.cat(self.rows)[::2].clone()]
            self.step *= 2


class RoundedLinear(NamedTuple):
    """A layer in int8, and its relative squared error."""

    linear: Int8Linear
    error: float


TOKEN_LAYERS: tuple[str, ...] = (  # applied to every token
    "attention.qkv",
    "attention.output",
    "feed_forward.inner",
    "feed_forward.output",
)


def linears_of(model: Model) -> dict[str, nn.Linear]:
    """The layers to quantize, by name: all whose cost grows with the number of tokens."""
    endings = TOKEN_LAYERS
    relative = model.config.relative_positions
    if relative is not None and relative.shared:
        # DeBERTa projects distances by `qkv` too, and those inputs are not observed here.
        endings = tuple(name for name in TOKEN_LAYERS if name != "attention.qkv")

    linears = {}
    for name, part in model.named_modules():
        if isinstance(part, nn.Linear) and ".layers." in name and name.endswith(endings):
            linears[name] = part
    return linears


class Readable(Protocol):
    """Examples of known sizes in tokens."""

    @property
    def sizes(self) -> Sequence[int]: ...

    def batch(self, rows: Sequence[int]) -> Batch: ...


def read_examples(
    model: Model, forward: Callable[[Model, Batch], object], examples: Readable, rows: Sequence[int]
) -> None:
    """Compute some examples, on the device of the model, in batches of about CALIBRATION_TOKENS tokens.

    model: whose layers are observed.
    forward: computes the model for a batch.
    examples: the texts.
    rows: the numbers of those to read.
    """
    device = next(model.parameters()).device
    with torch.inference_mode():
        for part in token_batches(rows, examples.sizes, CALIBRATION_TOKENS):
            forward(model, examples.batch(part).to(device))


def calibrate(model: Model, read: Callable[[], object]) -> dict[str, RoundedLinear]:
    """Each layer in int8, for the inputs that occur while `read` runs. InputError if inputs overflow float32."""
    return candidates(model, observe(model, read))


def observe(model: Model, read: Callable[[], object]) -> dict[str, Inputs]:
    """Collect the inputs of each of these layers while `read` runs."""
    inputs: dict[str, Inputs] = {}

    def hook(name: str, module: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        x_TI = arguments[0].detach().float()
        if name not in inputs:
            inputs[name] = Inputs(low_I=x_TI[0].clone(), high_I=x_TI[0].clone())
        inputs[name].update(x_TI)

    hooks = [part.register_forward_pre_hook(partial(hook, name)) for name, part in linears_of(model).items()]
    try:
        read()
    finally:
        for handle in hooks:
            handle.remove()
    return inputs


def candidates(model: Model, inputs: dict[str, Inputs]) -> dict[str, RoundedLinear]:
    """Each layer in the int8 form with the least error on the sampled rows. InputError if inputs overflow float32."""
    # The output of a fused product is rounded with one step for all columns.
    rounded = {
        f"{name}.output"
        for name, part in model.named_modules()
        if isinstance(part, FeedForward) and can_fuse(part, model.config)
    }

    quantized = {}
    for name, linear in linears_of(model).items():
        observed = inputs[name]
        if not (observed.low_I.isfinite().all() and observed.high_I.isfinite().all()):
            raise InputError(
                f"{name} overflows float32 on these texts; the model is broken: train or download it again"
            )

        strengths = STRENGTHS[:1] if name in rounded else STRENGTHS
        attempts = [candidate(linear, observed, strength) for strength in strengths]
        quantized[name] = min(attempts, key=lambda attempt: attempt.error)
    return quantized


@torch.no_grad()
def candidate(linear: nn.Linear, inputs: Inputs, strength: float) -> RoundedLinear:
    """A layer in int8 with this strength of smoothing.

    linear: the float layer.
    inputs: observed ones, for the scales and for the error.
    strength: how much of the difference between input columns goes into the weights, from 0 to 1.
    """
    quantized = int8_linear(linear, inputs.low_I, inputs.high_I, strength)

    x_SI = torch.cat(inputs.rows)
    exact_SO = F.linear(x_SI, linear.weight)
    error_SO = quantized(x_SI) - quantized.bias - exact_SO
    relative_error = error_SO.square().sum() / exact_SO.square().sum().clamp_min(EPSILON)
    return RoundedLinear(linear=quantized, error=float(relative_error))


def int8_linear(linear: nn.Linear, low_I: Tensor, high_I: Tensor, strength: float = 0.0) -> Int8Linear:
    """The int8 layer for inputs between low and high. 0 is represented exactly.

    linear: the float layer.
    low_I, high_I: the least and the greatest input of each column.
    strength: of smoothing; 0: none.
    """
    weight_OI = linear.weight.detach().float()
    size_I = _column_sizes(weight_OI, low_I, high_I, strength)

    # Zero must lie inside the range, so that it is one of the integers.
    low = float((low_I / size_I).min().clamp_max(0))
    high = float((high_I / size_I).max().clamp_min(0))
    scale = max(high - low, 1e-6) / MAX_INPUT
    integers_OI, scale_O = quantize_symmetric(weight_OI * size_I)

    quantized = Int8Linear(linear.in_features, linear.out_features)
    quantized.weight_int8.copy_(integers_OI)
    quantized.weight_scale.copy_(scale_O)
    if linear.bias is not None:
        quantized.bias.copy_(linear.bias.detach())
    quantized.input_factor.copy_(1 / (scale * size_I))
    quantized.input_scale.fill_(scale)
    quantized.input_zero.fill_(round(-low / scale))
    return quantized.eval()


def _column_sizes(weight_OI: Tensor, low_I: Tensor, high_I: Tensor, strength: float) -> Tensor:
    """By how much each input column is divided (Xiao 2023, eq. 4), [I]."""
    if strength == 0:
        return torch.ones_like(low_I)
    largest_I = torch.maximum(low_I.abs(), high_I.abs()).clamp_min(1e-6)
    largest_weight_I = weight_OI.abs().amax(0).clamp_min(1e-6)
    return largest_I**strength / largest_weight_I ** (1 - strength)
