"""How a linear layer's inputs and weights are scaled for int8: by what the layer reads of the user's own texts.

Columns of inputs differ in size by a factor of ten and more, and the largest would set the step for all. So each
column is divided by largest_input^s / largest_weight^(1-s), which the weights are multiplied by (SmoothQuant, Xiao
2023, eq. 4); the strength s is the one, of some, with the least error in the layer's outputs.

Letters: T tokens, S of them kept, I inputs, O outputs.
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
KEPT = 64  # inputs of a batch that errors are measured on, about
MOST = 2048  # ... and of all batches: with more, every other one goes
TINY = 1e-30  # in place of 0, to divide by


@dataclass
class Inputs:
    """What a layer read: least and greatest of each column, and some of the rows."""

    low_I: Tensor
    high_I: Tensor
    rows: list[Tensor] = field(default_factory=list)
    step: int = 1  # of a batch's rows that could be kept, every so many are

    def see(self, x_TI: Tensor) -> None:
        self.low_I = torch.minimum(self.low_I, x_TI.amin(0))
        self.high_I = torch.maximum(self.high_I, x_TI.amax(0))
        self.rows.append(x_TI[:: max(1, len(x_TI) // KEPT) * self.step].clone())
        if sum(map(len, self.rows)) > MOST:
            self.rows, self.step = [torch.cat(self.rows)[::2].clone()], 2 * self.step


class Candidate(NamedTuple):
    """A layer in int8, and the share of its outputs' variation that is error."""

    linear: Int8Linear
    error: float


MAPS = ("attention.qkv", "attention.output", "feed_forward.inner", "feed_forward.output")  # that all tokens go through


def linears_of(model: Model) -> dict[str, nn.Linear]:
    """The layers that int8 is for, by name: those whose work grows with the tokens."""
    relative = model.config.relative_positions
    through_qkv = relative is not None and relative.shared  # what it does to positions is not seen here
    maps = [name for name in MAPS if not (through_qkv and name == "attention.qkv")]
    return {
        name: part for name, part in model.named_modules()
        if isinstance(part, nn.Linear) and ".layers." in name and name.endswith(tuple(maps))
    }  # fmt: skip


def observe(model: Model, read: Callable[[], object]) -> dict[str, Inputs]:
    """What each of those layers reads while `read` runs."""
    seen: dict[str, Inputs] = {}

    def look(name: str, module: nn.Module, given: tuple[Tensor, ...]) -> None:
        x_TI = given[0].detach().float()
        seen.setdefault(name, Inputs(x_TI[0].clone(), x_TI[0].clone())).see(x_TI)

    hooks = [part.register_forward_pre_hook(partial(look, name)) for name, part in linears_of(model).items()]
    try:
        read()
    finally:
        for hook in hooks:
            hook.remove()
    return seen


def candidates(model: Model, seen: dict[str, Inputs]) -> dict[str, Candidate]:
    """Each layer in the int8 form with the least error on the rows that were kept. InputError where a layer read
    numbers beyond float32."""
    # What a product rounds itself for the next one has one step for all columns.
    rounded = {
        f"{name}.output"
        for name, part in model.named_modules()
        if isinstance(part, FeedForward) and can_fuse(part, model.config)
    }
    found = {}
    for name, linear in linears_of(model).items():
        if not (seen[name].low_I.isfinite().all() and seen[name].high_I.isfinite().all()):
            raise InputError(f"{name} overflows float32 on these texts; the model is broken: train or fetch it again")
        strengths = STRENGTHS[:1] if name in rounded else STRENGTHS
        tried = [candidate(linear, seen[name], strength) for strength in strengths]
        found[name] = min(tried, key=lambda one: one.error)
    return found


@torch.no_grad()
def candidate(linear: nn.Linear, seen: Inputs, strength: float) -> Candidate:
    made = int8_linear(linear, seen.low_I, seen.high_I, strength)
    x_SI = torch.cat(seen.rows)
    exact_SO = F.linear(x_SI, linear.weight)
    error_SO = made(x_SI) - made.bias - exact_SO
    return Candidate(made, float(error_SO.square().sum() / exact_SO.square().sum().clamp_min(TINY)))


def int8_linear(linear: nn.Linear, low_I: Tensor, high_I: Tensor, strength: float = 0.0) -> Int8Linear:
    """The layer for inputs between low and high; 0 is always a value of its own."""
    weight_OI = linear.weight.detach().float()
    largest_I = torch.maximum(low_I.abs(), high_I.abs()).clamp_min(1e-6)
    size_I = largest_I**strength / weight_OI.abs().amax(0).clamp_min(1e-6) ** (1 - strength)
    size_I = size_I if strength else torch.ones_like(size_I)
    low, high = float((low_I / size_I).min().clamp_max(0)), float((high_I / size_I).max().clamp_min(0))
    scale = max(high - low, 1e-6) / 255
    made = Int8Linear(linear.in_features, linear.out_features)
    integers_OI, scale_O = quantize_symmetric(weight_OI * size_I)
    made.weight_int8.copy_(integers_OI)
    made.weight_scale.copy_(scale_O)
    if linear.bias is not None:
        made.bias.copy_(linear.bias.detach())
    made.input_factor.copy_(1 / (scale * size_I))
    made.input_scale.fill_(scale)
    made.input_zero.fill_(round(-low / scale))
    return made.eval()
