"""Linear layers in int8: x W^T + b as a product of 8-bit integers (Jacob 2018, section 2), about twice as fast as bf16
on processors that have an instruction for it.

A weight is weight_scale[o] * integer[o, i], an input (integer - input_zero) / input_factor[i], both rounded once; sums
are exact. Scales are fixed beforehand (model/calibrate.py), so a token's result does not depend on its company. Inputs
have a factor a column, which evens out columns of very different sizes (Xiao 2023, eq. 3); its other half is in the
weights.

Letters: T tokens, I inputs, O outputs, H hidden.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bothways.config import EncoderConfig
from bothways.errors import InputError
from bothways.model.layer import ACTIVATIONS, FeedForward
from bothways.model.model import OUTPUTS, Model
from bothways.model.parameters import no_init

LARGEST = 127  # of a weight's integer, on either side of 0
ROWS = 256  # quantized at once, so that what is between two steps stays in the processor's cache
# What oneDNN can do to a product before it leaves the registers: name, variety.
POST_OPERATIONS = {
    "gelu": ("gelu", "none"),
    "gelu_tanh": ("gelu", "tanh"),
    "relu": ("relu", "none"),
    "silu": ("swish", "none"),
}


class Rounding(NamedTuple):
    """How numbers become integers 0..255: value = scale * (integer - zero)."""

    scale: float
    zero: int


UNUSED = Rounding(1.0, 0)


class Int8Linear(nn.Module):
    """x W^T + b, with the weights as int8 and x rounded to 8 bits on the way in. Not to be trained."""

    def __init__(self, num_inputs: int, num_outputs: int) -> None:
        super().__init__()
        self.register_buffer("weight_int8", torch.zeros(num_outputs, num_inputs, dtype=torch.int8))
        self.register_buffer("weight_scale", torch.ones(num_outputs))
        self.register_buffer("bias", torch.zeros(num_outputs))
        self.register_buffer("input_factor", torch.ones(num_inputs))
        self.register_buffer("input_scale", torch.ones(()))
        self.register_buffer("input_zero", torch.zeros((), dtype=torch.int64))
        self._packed: tuple[Tensor, Tensor] | None = None  # the weights as oneDNN wants them, and their zero points

    weight_int8: Tensor
    weight_scale: Tensor
    bias: Tensor
    input_factor: Tensor
    input_scale: Tensor
    input_zero: Tensor

    @property
    def rounding(self) -> Rounding:
        """Of its inputs, once they are multiplied by input_factor * input_scale."""
        return Rounding(self.input_scale.item(), int(self.input_zero))

    def forward(self, x_TI: Tensor) -> Tensor:
        return self.product(self.integers(x_TI), x_TI.dtype)

    def integers(self, x_TI: Tensor) -> Tensor:
        """round(x * input_factor + input_zero), kept within 0..255: uint8 [T, I]."""
        rounded_TI = torch.empty(x_TI.shape, dtype=torch.int8, device=x_TI.device)
        lower = (self.input_zero - 128).float()  # as signed integers, to which torch converts several times as fast
        for part, rounded in zip(x_TI.split(ROWS), rounded_TI.split(ROWS), strict=True):
            rounded.copy_(torch.addcmul(lower, part.float(), self.input_factor).round_().clamp_(-128, 127))
        return rounded_TI.view(torch.uint8).bitwise_xor_(128)  # adds 128

    def product(self, integers_TI: Tensor, dtype: torch.dtype, activation: str = "", to: Rounding = UNUSED) -> Tensor:
        """act(x W^T + b) of rounded inputs, [T, O]; as uint8 by the rounding `to` where dtype is that."""
        if not fast_int8(integers_TI.device):
            return self.plain_product(integers_TI, dtype, activation, to)
        if self._packed is None:
            zeros_O = torch.zeros(len(self.weight_int8), dtype=torch.int64)
            self._packed = torch.ops.onednn.qlinear_prepack(self.weight_int8, None), zeros_O
        name, variety = POST_OPERATIONS[activation] if activation else ("none", "none")
        own = self.rounding
        found: Tensor = torch.ops.onednn.qlinear_pointwise(
            integers_TI, own.scale, own.zero, self._packed[0], self.weight_scale, self._packed[1], self.bias,
            to.scale, to.zero, dtype, name, [], variety,
        )  # fmt: skip
        return found

    def plain_product(self, integers_TI: Tensor, dtype: torch.dtype, activation: str, to: Rounding) -> Tensor:
        """What `product` means, by float32 products: for devices without instructions for int8, right but not fast."""
        scale_O = self.weight_scale * self.input_scale
        sums_TO = F.linear((integers_TI.float() - self.input_zero), self.weight_int8.float())
        x_TO = sums_TO * scale_O + self.bias
        x_TO = ACTIVATIONS[activation](x_TO) if activation else x_TO
        if dtype is not torch.uint8:
            return x_TO.to(dtype)
        return (x_TO / to.scale).round_().add_(to.zero).clamp_(0, 255).to(torch.uint8)

    def train(self, mode: bool = True) -> "Int8Linear":
        if mode:
            raise refusal()
        return super().train(mode)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Int8Linear":
        """Moves to another device; scales stay float32 whatever the model's number format is."""
        before = dict(self._buffers)
        super()._apply(fn, recurse)
        for name, value in before.items():
            moved = self._buffers[name]
            assert value is not None and moved is not None
            self._buffers[name] = value.to(moved.device)
        self._packed = None
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_packed": None}  # which cannot be copied


class Int8FeedForward(nn.Module):
    """act(x A) B with the activation done inside the first product, which rounds its result for the second too."""

    def __init__(self, inner: Int8Linear, output: nn.Module, activation: str) -> None:
        super().__init__()
        self.inner, self.output, self.activation = inner, output, activation

    def forward(self, x_TH: Tensor) -> Tensor:
        integers_TH = self.inner.integers(x_TH)
        if isinstance(self.output, Int8Linear):
            inner_TI = self.inner.product(integers_TH, torch.uint8, self.activation, self.output.rounding)
            return self.output.product(inner_TI, x_TH.dtype)
        output_TH: Tensor = self.output(self.inner.product(integers_TH, x_TH.dtype, self.activation))
        return output_TH


@cache
def fast_int8(device: torch.device) -> bool:
    """Whether there is an instruction that adds up products of 8-bit integers. Older ones can overflow on the way."""
    able = torch.cpu.get_capabilities()
    return device.type == "cpu" and any(able.get(name, False) for name in ("avx512_vnni", "avx_vnni", "amx_int8"))


def refusal() -> InputError:
    return InputError("the model is int8 already, which can be used but not changed; take the one it was made from")


def symmetric(weight_OI: Tensor) -> tuple[Tensor, Tensor]:
    """Integers -127..127 and a scale a row: weight = scale * integer, to within half a scale.

    Integers and scales follow again from scale * integer: in float32 x / 127 * 127 / 127 is x / 127, whatever x is.
    """
    largest_O = weight_OI.abs().amax(1).clamp_min(torch.finfo(torch.float32).tiny * LARGEST)
    scale_O = largest_O / LARGEST
    integers_OI = (weight_OI / scale_O[:, None]).round_()
    return integers_OI.to(torch.int8), scale_O


# --- models -----------------------------------------------------------------------------------------------------------

WORDS = "encoder.embeddings.words.weight"
SLACK = 2**16  # parameters that int8 layers have no use for
TABLE_INT8, TABLE_SCALE = "encoder.embeddings.words.table_int8", "encoder.embeddings.words.table_scale"


def is_int8(model: nn.Module) -> bool:
    return any(isinstance(part, Int8Linear) for part in model.modules())


def with_int8(model: Model, linears: Mapping[str, Int8Linear]) -> Model:
    """A copy with int8 layers in place of those of the same names, and the token table as it is stored."""
    copy = deepcopy(model)
    for name, linear in linears.items():
        _put(copy, name, deepcopy(linear))
    _fuse(copy)
    words = copy.encoder.embeddings.words
    words.weight.data = _table(*symmetric(words.weight.detach()))
    return copy.eval()


def _put(model: Model, name: str, part: nn.Module) -> None:
    parent, _, own_name = name.rpartition(".")
    setattr(model.get_submodule(parent), own_name, part)


def _fuse(model: Model) -> None:
    for name, part in [*model.named_modules()]:
        if isinstance(part, FeedForward) and fuses(part, model.config) and isinstance(part.inner, Int8Linear):
            _put(model, name, Int8FeedForward(part.inner, part.output, model.config.hidden_act))


def fuses(part: FeedForward, config: EncoderConfig) -> bool:
    """Whether its activation can be done inside its first product."""
    return not part.gated and config.hidden_act in POST_OPERATIONS


def _table(integers_VE: Tensor, scale_V: Tensor) -> Tensor:
    return integers_VE.float() * scale_V[:, None]


# --- stored -----------------------------------------------------------------------------------------------------------


def int8_state(model: Model) -> dict[str, Tensor]:
    """All that such a model holds, by our names."""
    state = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    integers_VE, scale_V = symmetric(state.pop(WORDS))
    return {**state, TABLE_INT8: integers_VE, TABLE_SCALE: scale_V}


def from_int8_state(config: EncoderConfig, stored: Mapping[str, Tensor]) -> Model:
    """The way back. InputError where the config and these tensors do not belong together."""
    try:
        model = _empty(config, stored)
        state = dict(stored)
        state[WORDS] = _table(state.pop(TABLE_INT8), state.pop(TABLE_SCALE))
        model.load_state_dict(state)
    except (KeyError, RuntimeError, ValueError) as error:  # torch has no one kind for "does not fit"
        raise InputError(" ".join(str(error).split())[:300]) from None
    return model.eval()


def _empty(config: EncoderConfig, state: Mapping[str, Tensor]) -> Model:
    """A model with the heads and the int8 layers that these names tell of."""
    heads = sorted({name.split(".")[1] for name in state if name.startswith("heads.")})
    sizes = {name: OUTPUTS[name] if name in OUTPUTS else len(state[f"heads.{name}.output.bias"]) for name in heads}
    with no_init(most=2 * sum(value.numel() for value in state.values()) + SLACK):
        model = Model(config, sizes, pooler=any(name.startswith("pooler.") for name in state))
    known = {name for name, _ in model.named_modules()}
    for name, weight_OI in state.items():
        layer = name.removesuffix(".weight_int8")
        if layer == name:
            continue
        if layer not in known:
            raise InputError(f"{name}: the config has no such layer")
        num_outputs, num_inputs = weight_OI.shape
        _put(model, layer, Int8Linear(num_inputs, num_outputs))
    _fuse(model)
    return model
