"""Fake int8 layers: what Int8Linear computes, in floating point and with gradients, for training (Jacob 2018, 3.1).

Rounding has the gradient of the identity; inputs beyond the range that was calibrated have none. Letters: T tokens, I
inputs, O outputs.
"""

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bothways.model.int8 import MAX_INTEGER, ExactBuffers, Int8Linear, quantize_symmetric, set_linears
from bothways.model.int8_calibration import candidates, linears_of, observe
from bothways.model.model import Model
from bothways.model.parameters import retype, set_module

MAX_INPUT = 255


class FakeInt8Linear(ExactBuffers, nn.Linear):
    """A linear layer with inputs and weights rounded as by Int8Linear, once it is on. Its parameters have the names of
    those of the layer that it replaces."""

    input_factor: Tensor
    input_scale: Tensor
    input_zero: Tensor
    is_on: Tensor

    @staticmethod
    def of(linear: nn.Linear) -> "FakeInt8Linear":
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
        """What the columns of the inputs are divided by, and those of the weight multiplied (Xiao 2023, eq. 3)."""
        return 1 / (self.input_factor * self.input_scale)

    def forward(self, x_TI: Tensor) -> Tensor:
        if not self.is_on:
            return super().forward(x_TI)
        rounded_TI = _round(torch.addcmul(self.input_zero.float(), x_TI.float(), self.input_factor))
        integers_TI = rounded_TI.clamp(0, MAX_INPUT) - self.input_zero
        weight_OI = self.weight.float() * self.smoothing
        largest_O = weight_OI.detach().abs().amax(1).clamp_min(torch.finfo(torch.float32).tiny * MAX_INTEGER)
        scale_O = largest_O / MAX_INTEGER
        integers_OI = _round(weight_OI / scale_O[:, None])
        # Integers up to 256 are exact in bf16 too, and sums are in float32.
        y_TO = F.linear(integers_TI.to(x_TI.dtype), integers_OI.to(x_TI.dtype)).float() * (scale_O * self.input_scale)
        return (y_TO if self.bias is None else y_TO + self.bias.float()).to(x_TI.dtype)

    @torch.no_grad()
    def deployed(self) -> Int8Linear:
        """The int8 layer that computes the same."""
        quantized = Int8Linear(self.in_features, self.out_features)
        integers_OI, scale_O = quantize_symmetric(self.weight.detach().float() * self.smoothing)
        quantized.weight_int8.copy_(integers_OI)
        quantized.weight_scale.copy_(scale_O)
        if self.bias is not None:
            quantized.bias.copy_(self.bias)
        for name in ("input_factor", "input_scale", "input_zero"):
            getattr(quantized, name).copy_(getattr(self, name))
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
    for name, candidate in candidates(model, observe(model, read)).items():
        fake_layers(model)[name].turn_on(candidate.linear)


def fake_layers(model: Model) -> Mapping[str, FakeInt8Linear]:
    return {name: part for name, part in model.named_modules() if isinstance(part, FakeInt8Linear)}


def deploy_fake_int8(model: Model) -> None:
    """Replace fake int8 layers by int8 layers, in place."""
    set_linears(model, {name: layer.deployed() for name, layer in fake_layers(model).items()})
