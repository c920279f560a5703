"""Int8 quantization: linear layers with 8-bit integers (Jacob 2018), and models with such layers.

About twice as fast as bf16 on CPUs with int8 instructions. A weight is weight_scale[o] * integer[o, i], an input
(integer - input_zero) / input_factor[i], both rounded once; sums are exact (Jacob 2018, section 2). Scales are fixed in
advance (model/int8_training.py), so the result for a token does not depend on the rest of the batch. Inputs have a
factor per column, which balances columns of very different magnitudes (Xiao 2023, eq. 3); the weights contain its
inverse.

Models are quantized from float ones, and stored and loaded as tensors by name. The token table is stored as int8 too,
with a scale per row, and loaded as float: it is half of a small model. Letters: T tokens, I inputs, O outputs, H
hidden, V vocabulary, E embedding size.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import cache
from typing import Any, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bothways.base.errors import InputError
from bothways.model.config import NUM_OUTPUTS, EncoderConfig
from bothways.model.int8_tensors import TABLE, TABLE_INT8, TABLE_SCALE, WEIGHT, int8_layers
from bothways.model.layer import ACTIVATIONS, FeedForward
from bothways.model.model import Model
from bothways.model.parameters import no_init, set_module

MAX_INTEGER = 127  # absolute value of a weight's integer
ROWS = 256  # quantized at once, so that intermediate results stay in the CPU's cache
# Activations that oneDNN fuses into a product: name, algorithm.
POST_OPERATIONS = {
    "gelu": ("gelu", "none"),
    "gelu_tanh": ("gelu", "tanh"),
    "relu": ("relu", "none"),
    "silu": ("swish", "none"),
}
INT8_INSTRUCTIONS = (
    "avx512_vnni",
    "avx_vnni",
    "amx_int8",
)


class Quantization(NamedTuple):
    """Quantization of numbers as integers 0..255: value = scale * (integer - zero_point)."""

    scale: float
    zero_point: int


UNUSED = Quantization(1.0, 0)


class ExactBuffers(nn.Module):
    """A module whose buffers keep their number format when the model's changes: scales stay float32."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        buffers = dict(self._buffers)
        super()._apply(fn, recurse)
        for name, value in buffers.items():
            moved = self._buffers[name]
            assert value is not None and moved is not None
            self._buffers[name] = value.to(moved.device)
        return self


class Int8Linear(ExactBuffers):
    """x W^T + b with int8 weights, and x quantized to 8 bits. For inference only."""

    def __init__(self, num_inputs: int, num_outputs: int) -> None:
        super().__init__()
        self.register_buffer("weight_int8", torch.zeros(num_outputs, num_inputs, dtype=torch.int8))
        self.register_buffer("weight_scale", torch.ones(num_outputs))
        self.register_buffer("bias", torch.zeros(num_outputs))
        self.register_buffer("input_factor", torch.ones(num_inputs))
        self.register_buffer("input_scale", torch.ones(()))
        self.register_buffer("input_zero", torch.zeros((), dtype=torch.int64))
        self._packed: tuple[Tensor, Tensor] | None = None  # prepacked weights and their zero points

    weight_int8: Tensor
    weight_scale: Tensor
    bias: Tensor
    input_factor: Tensor
    input_scale: Tensor
    input_zero: Tensor

    @property
    def quantization(self) -> Quantization:
        """The quantization of the inputs, after they are multiplied by input_factor * input_scale."""
        return Quantization(self.input_scale.item(), int(self.input_zero))

    def forward(self, x_TI: Tensor) -> Tensor:
        """[T, I] -> [T, O]"""
        return self.product(self.quantize(x_TI), x_TI.dtype)

    def quantize(self, x_TI: Tensor) -> Tensor:
        """round(x * input_factor + input_zero), clamped to 0..255: uint8 [T, I]."""
        rounded_TI = torch.empty(x_TI.shape, dtype=torch.int8, device=x_TI.device)
        lower = (self.input_zero - 128).float()  # as signed integers, which torch converts to several times as fast

        # In blocks of rows: about four times as fast as all rows at once (docs/LOG.md).
        for rows, rounded in zip(x_TI.split(ROWS), rounded_TI.split(ROWS), strict=True):
            scaled = torch.addcmul(lower, rows.float(), self.input_factor)
            rounded.copy_(scaled.round_().clamp_(-128, 127))
        return rounded_TI.view(torch.uint8).bitwise_xor_(128)  # adds 128

    def product(
        self, integers_TI: Tensor, dtype: torch.dtype, activation: str = "", output: Quantization = UNUSED
    ) -> Tensor:
        """act(x W^T + b) of quantized inputs, [T, O].

        integers_TI: the result of `quantize`.
        dtype: of the result.
        activation: name of act; "": none.
        output: quantization of the result, for dtype uint8.
        """
        if not fast_int8(integers_TI.device):
            return self.plain_product(integers_TI, dtype, activation, output)

        weight, zeros_O = self._pack()
        inputs = self.quantization
        name, algorithm = POST_OPERATIONS[activation] if activation else ("none", "none")
        result: Tensor = torch.ops.onednn.qlinear_pointwise(
            integers_TI,
            x_scale=inputs.scale,
            x_zero_point=inputs.zero_point,
            qw=weight,
            w_scale=self.weight_scale,
            w_zero_point=zeros_O,
            bias=self.bias,
            output_scale=output.scale,
            output_zero_point=output.zero_point,
            output_dtype=dtype,
            post_op_name=name,
            post_op_args=[],
            post_op_algorithm=algorithm,
        )
        return result

    def _pack(self) -> tuple[Tensor, Tensor]:
        """Weights in oneDNN's order and their zero points, made with the first product."""
        if self._packed is None:
            zeros_O = torch.zeros(len(self.weight_int8), dtype=torch.int64)
            self._packed = torch.ops.onednn.qlinear_prepack(self.weight_int8, None), zeros_O
        return self._packed

    def plain_product(self, integers_TI: Tensor, dtype: torch.dtype, activation: str, output: Quantization) -> Tensor:
        """The same by a float32 product, for devices without int8 instructions: correct but not fast."""
        scale_O = self.weight_scale * self.input_scale
        sums_TO = F.linear((integers_TI.float() - self.input_zero), self.weight_int8.float())
        x_TO = sums_TO * scale_O + self.bias
        if activation:
            x_TO = ACTIVATIONS[activation](x_TO)

        if dtype is not torch.uint8:
            return x_TO.to(dtype)
        return (x_TO / output.scale).round_().add_(output.zero_point).clamp_(0, 255).to(torch.uint8)

    def train(self, mode: bool = True) -> "Int8Linear":
        if mode:
            raise int8_error()
        return super().train(mode)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        self._packed = None
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_packed": None}  # it cannot be copied


class Int8FeedForward(nn.Module):
    """act(x A) B with the activation, and the quantization for the second product, fused into the first product."""

    def __init__(self, inner: Int8Linear, output: nn.Module, activation: str) -> None:
        super().__init__()
        self.inner = inner
        self.output = output
        self.activation = activation

    def forward(self, x_TH: Tensor) -> Tensor:
        """[T, H] -> [T, H]"""
        integers_TH = self.inner.quantize(x_TH)

        if isinstance(self.output, Int8Linear):
            inner_TI = self.inner.product(
                integers_TH,
                torch.uint8,
                activation=self.activation,
                output=self.output.quantization,
            )
            return self.output.product(inner_TI, x_TH.dtype)

        output_TH: Tensor = self.output(self.inner.product(integers_TH, x_TH.dtype, self.activation))
        return output_TH


@cache
def fast_int8(device: torch.device) -> bool:
    """Whether the CPU has instructions for sums of 8-bit products. The sums of older CPUs can overflow."""
    if device.type != "cpu":
        return False
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name, False) for name in INT8_INSTRUCTIONS)


def int8_error() -> InputError:
    """For attempts to train a quantized model."""
    return InputError("the model is quantized to int8, which can be used but not changed; use the original model")


def quantize_symmetric(weight_OI: Tensor) -> tuple[Tensor, Tensor]:
    """Integers -127..127 and a scale per row: weight = scale * integer, to within half a scale.

    Quantizing scale * integer again gives the same integers: in float32, x / 127 * 127 / 127 equals x / 127 for any x.
    """
    largest_O = weight_OI.abs().amax(1).clamp_min(torch.finfo(torch.float32).tiny * MAX_INTEGER)
    scale_O = largest_O / MAX_INTEGER
    integers_OI = (weight_OI / scale_O[:, None]).round_()
    return integers_OI.to(torch.int8), scale_O


# --- models -----------------------------------------------------------------------------------------------------------

SLACK = 2**16  # parameters of float layers that int8 layers lack


def is_int8(model: nn.Module) -> bool:
    """Whether some layers of a model are quantized."""
    return any(isinstance(part, Int8Linear) for part in model.modules())


def replace_linears(model: Model, linears: Mapping[str, Int8Linear]) -> Model:
    """A copy with int8 layers in place of the layers with their names, and the token table rounded as it is stored."""
    copy = deepcopy(model)
    set_linears(copy, linears)
    return copy.eval()


def set_linears(model: Model, linears: Mapping[str, Int8Linear]) -> None:
    """Set int8 layers in place of the layers with their names, and round the token table as it is stored."""
    for name, linear in linears.items():
        set_module(model, name, deepcopy(linear))
    _fuse(model)
    round_table(model)


def round_table(model: Model) -> None:
    """Give the token table the values that are stored, in place."""
    words = model.encoder.embeddings.words
    integers_VE, scale_V = quantize_symmetric(words.weight.detach())
    words.weight.data = _table(integers_VE, scale_V)


def dequantize(model: Model) -> Model:
    """The float32 model whose linear layers have the values of the int8 layers; their inputs are not rounded."""
    state = model.state_dict()
    for name, module in model.named_modules():
        if isinstance(module, Int8Linear):
            scale_O = module.weight_scale * module.input_scale
            state[f"{name}.weight"] = module.weight_int8.float() * scale_O[:, None] * module.input_factor

    with no_init():
        plain = Model(model.config, model.num_outputs, pooler=model.pooler is not None)
    plain.load_state_dict({name: state[name] for name in plain.state_dict()})
    return plain.eval()


def _fuse(model: Model) -> None:
    """Replace the feed-forward modules whose activation is part of an int8 product, in place."""
    for name, module in [*model.named_modules()]:
        if isinstance(module, FeedForward) and can_fuse(module, model.config) and isinstance(module.inner, Int8Linear):
            fused = Int8FeedForward(module.inner, module.output, model.config.hidden_act)
            set_module(model, name, fused)


def can_fuse(module: FeedForward, config: EncoderConfig) -> bool:
    """Whether the activation can be fused into the first product."""
    return not module.gated and config.hidden_act in POST_OPERATIONS


def _table(integers_VE: Tensor, scale_V: Tensor) -> Tensor:
    return integers_VE.float() * scale_V[:, None]


# --- stored models ----------------------------------------------------------------------------------------------------


def int8_state_dict(model: Model) -> dict[str, Tensor]:
    """The tensors of an int8 model, by our names."""
    state = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    integers_VE, scale_V = quantize_symmetric(state.pop(TABLE))
    return {**state, TABLE_INT8: integers_VE, TABLE_SCALE: scale_V}


def load_int8_state_dict(config: EncoderConfig, stored: Mapping[str, Tensor]) -> Model:
    """The model of these tensors. InputError if they do not fit the config."""
    try:
        model = _build_model(config, stored)
        state = dict(stored)
        state[TABLE] = _table(state.pop(TABLE_INT8), state.pop(TABLE_SCALE))
        model.load_state_dict(state)
    except (KeyError, RuntimeError, ValueError) as error:  # torch has no single exception for tensors that do not fit
        raise InputError(" ".join(str(error).split())[:300]) from None
    return model.eval()


def _build_model(config: EncoderConfig, state: Mapping[str, Tensor]) -> Model:
    """An uninitialized model with the heads and int8 layers that these names imply."""
    heads = sorted({name.split(".")[1] for name in state if name.startswith("heads.")})
    num_outputs = {}
    for head in heads:
        if head in NUM_OUTPUTS:
            num_outputs[head] = NUM_OUTPUTS[head]
        else:
            num_outputs[head] = len(state[f"heads.{head}.output.bias"])
    has_pooler = any(name.startswith("pooler.") for name in state)

    # A config may ask for more memory than the file's own tensors explain.
    num_stored = sum(value.numel() for value in state.values())
    with no_init(max_elements=2 * num_stored + SLACK):
        model = Model(config, num_outputs, pooler=has_pooler)

    modules = {name for name, _ in model.named_modules()}
    for layer in int8_layers(state):
        if layer not in modules:
            raise InputError(f"{layer}{WEIGHT}: the config has no such layer")
        output_size, input_size = state[layer + WEIGHT].shape
        set_module(model, layer, Int8Linear(input_size, output_size))
    _fuse(model)
    return model
