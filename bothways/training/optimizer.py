"""Optimizer: AdamW, weight decay, layer-wise learning rate decay (LLRD), mixed precision.

Mixed precision is dynamic loss scaling for float16, as torch's GradScaler (Micikevicius 2017, section 3.2). The scale
is a power of two, so it changes no mantissa. An overflow skips the step and halves the scale; after `GROWTH_INTERVAL`
good steps it doubles.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from bothways.errors import InputError
from bothways.training.adamw import AdamW, norm_of
from bothways.training.distributed import SINGLE_PROCESS, Processes, gather_shards, local_shard, to_shard

INITIAL_SCALE, MIN_SCALE = 2.0**16, 2.0**-10
GROWTH_INTERVAL = 2000


class Optimizer:
    """Updates a module's parameters through float32 master weights, since bf16 cannot hold small steps. Weight decay
    applies to matrices only.

    shards: the processes among which the parameters are sharded.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        learning_rate: float,
        weight_decay: float = 0.01,
        eps: float = 1e-6,
        beta2: float = 0.999,
        shards: Processes = SINGLE_PROCESS,
    ) -> None:
        self.parameters = {name: value for name, value in module.named_parameters() if value.requires_grad}
        self.masters = {name: local_shard(value.detach()).float() for name, value in self.parameters.items()}
        self.frozen = {name: value for name, value in module.named_parameters() if not value.requires_grad}
        self.exact = {name: local_shard(value.detach()).float() for name, value in self.frozen.items()}
        self.shards = shards
        self.best: dict[str, Tensor] = {}
        decays = {name: weight_decay if value.ndim > 1 else 0.0 for name, value in self.masters.items()}
        self.adamw = AdamW(self.masters, dict.fromkeys(self.masters, learning_rate), decays, eps, beta2)

    @torch.no_grad()
    def step(self, lr_factor: float, max_grad_norm: float = 1.0, loss_scale: float = 1.0) -> float:
        """One step at `lr_factor` times the peak learning rates. Gradients are divided by `loss_scale`, clipped to
        `max_grad_norm`, and cleared; returns their norm. If it is not finite, nothing changes."""
        weights = {name: local_shard(parameter) for name, parameter in self.parameters.items()}
        gradients = {name: local_shard(value.grad) for name, value in self.parameters.items() if value.grad is not None}
        for parameter in self.parameters.values():
            parameter.grad = None
        norm = math.hypot(*self.shards.gather(norm_of(gradients))) / loss_scale
        if math.isfinite(norm):
            divisor = loss_scale * max(1.0, norm / max_grad_norm)
            self.adamw.step(weights, gradients, lr_factor, divisor)
        return norm

    def mark_best(self) -> None:
        """Keep a copy of the current master weights as the best."""
        self.best = {name: master.clone() for name, master in self.masters.items()}

    def write_masters(self, module: nn.Module, *, best: bool = True) -> None:
        """Copy the master weights into a module, which becomes float32: the best ones if marked (and `best`), else the
        last. Frozen parameters are as they were, not rounded."""
        module.float()
        source = {**(self.best if best and self.best else self.masters), **self.exact}
        parameters = {**self.parameters, **self.frozen}
        with torch.no_grad():
            for name, value in module.named_parameters():
                if name in source:
                    value.copy_(gather_shards(source[name], parameters[name]))

    def state(self) -> dict[str, Tensor]:
        """State dict with keys "kind.name", on the CPU. Sharded tensors are gathered in the main process; all processes
        must call this."""
        state = {}
        for key, value, parameter in self._state():
            tensor = gather_shards(value, parameter).cpu()
            if self.shards.is_main_process:
                state[key] = tensor
        return state

    @torch.no_grad()
    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restore a state dict, written by any number of processes. InputError if it belongs to another model."""
        if any(key.startswith("best.") for key in state):
            self.mark_best()
        targets = {key: (value, parameter) for key, value, parameter in self._state()}
        if other := sorted(targets.keys() ^ state.keys()):
            raise InputError(f"the state of another model or optimizer; keys that differ: {', '.join(other[:3])}")
        for key, (value, parameter) in targets.items():
            value.copy_(to_shard(state[key], parameter))
        for name, parameter in self.parameters.items():
            local_shard(parameter).copy_(self.masters[name])

    def _state(self) -> Iterator[tuple[str, Tensor, Tensor]]:
        kinds = {"masters": self.masters, "best": self.best, **self.adamw.state()}
        for kind, values in kinds.items():
            for name, value in values.items():
                yield f"{kind}.{name}", value, self.parameters[name]


@dataclass(frozen=True)
class LossScale:
    """Factor of the losses, and the number of good steps since it last changed."""

    value: float = 1.0
    good_steps: int = 0
    dynamic: bool = False

    @staticmethod
    def for_dtype(dtype: torch.dtype) -> "LossScale":
        """Dynamic scaling for float16; bfloat16 has the range of float32 and needs no scaling."""
        return LossScale(INITIAL_SCALE, dynamic=True) if dtype is torch.float16 else LossScale()

    def skips(self, norm: float) -> bool:
        """Whether this gradient norm is an overflow that a smaller scale can avoid."""
        return self.dynamic and not math.isfinite(norm) and self.value > MIN_SCALE

    def update(self, norm: float) -> "LossScale":
        """The scale for the next step, given the gradient norm of this one."""
        if not self.dynamic:
            return self
        if not math.isfinite(norm):
            return replace(self, value=self.value / 2, good_steps=0)
        if self.good_steps + 1 == GROWTH_INTERVAL:
            return replace(self, value=self.value * 2, good_steps=0)
        return replace(self, good_steps=self.good_steps + 1)

    def metrics(self, norm: float) -> dict[str, Any]:
        """Entries for the metrics of a step."""
        return {"scale": self.value, "skipped": self.skips(norm)} if self.dynamic else {}
