"""Optimizer: AdamW with float32 master weights, weight decay, mixed precision.

Mixed precision is dynamic loss scaling for float16, as torch's GradScaler (Micikevicius 2017, section 3.2). The scale
is a power of two, so it changes no mantissa. An overflow skips the step and halves the scale; after `GROWTH_INTERVAL`
good steps it doubles.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from bothways.base.errors import InputError
from bothways.training.distributed import SINGLE_PROCESS, Processes, gather_shards, local_shard, to_shard

# Elements that are updated at once. On a CPU they stay in its cache: with that, and without a float32 copy of all
# gradients, a step of the model size mini took 17 ms instead of 28 to 42 (docs/LOG.md).
PIECE = {"cpu": 1 << 18, "cuda": 1 << 24}
BETA_1 = 0.9
INITIAL_SCALE = 2.0**16
MIN_SCALE = 2.0**-10
GROWTH_INTERVAL = 2000


class Optimizer:
    """Updates a module's parameters through float32 master weights, since bf16 cannot hold small steps.

    module: its parameters without gradients stay as they are.
    learning_rate: its peak.
    weight_decay: of matrices only.
    eps, beta2: of AdamW.
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
        self.shards = shards
        self.parameters: dict[str, nn.Parameter] = {}
        self.frozen: dict[str, nn.Parameter] = {}
        for name, parameter in module.named_parameters():
            if parameter.requires_grad:
                self.parameters[name] = parameter
            else:
                self.frozen[name] = parameter
        self.masters = _float32_shards(self.parameters)
        self.frozen_masters = _float32_shards(self.frozen)

        # All masters at the best evaluation; empty if none was marked.
        self.best: dict[str, Tensor] = {}
        decays = {name: weight_decay if value.ndim > 1 else 0.0 for name, value in self.masters.items()}
        self.adamw = AdamW(self.masters, learning_rate, decays, eps=eps, beta2=beta2)

    @torch.no_grad()
    def step(
        self,
        lr_factor: float,
        max_grad_norm: float = 1.0,
        loss_scale: float = 1.0,
        unread_norm: Tensor | None = None,
    ) -> Tensor:
        """One step; returns the norm of the gradients, which are cleared. If it is not finite, nothing changes.

        lr_factor: learning rate of the step, as a fraction of its peak.
        max_grad_norm: larger gradients are scaled down to it.
        loss_scale: factor of the losses, by which the gradients are divided.
        unread_norm: norm of a step before, if nobody has looked at it; nothing changes if that is not finite, either.

        The norm is a float64 tensor on the device of the parameters. For a GPU the processor does not wait, unless
        the parameters are sharded.
        """
        weights: dict[str, Tensor] = {}
        gradients: dict[str, Tensor] = {}
        for name, parameter in self.parameters.items():
            weights[name] = local_shard(parameter)
            if parameter.grad is not None:
                gradients[name] = local_shard(parameter.grad)
                parameter.grad = None

        norm = self._norm_of(gradients) / loss_scale
        is_good = norm.isfinite()
        if unread_norm is not None:
            is_good = is_good & unread_norm.isfinite()
        divisor = (norm / max_grad_norm).clamp(min=1.0) * loss_scale
        self.adamw.step(weights, gradients, lr_factor, divisor.float(), is_good.float())
        return norm

    def _norm_of(self, gradients: Mapping[str, Tensor]) -> Tensor:
        """Norm of all gradients together, of all processes that have a shard."""
        norm = norm_of(gradients)
        if self.shards.world_size == 1:
            return norm
        # Numbers are exchanged as objects, so here the processor waits for its GPU.
        return torch.full_like(norm, math.hypot(*self.shards.gather(norm.item())))

    def mark_best(self) -> None:
        """Keep a copy of the current master weights as the best."""
        self.best = {name: master.clone() for name, master in self.masters.items()}

    def write_masters(self, module: nn.Module, *, best: bool = True) -> None:
        """Copy the master weights into a module, which becomes float32. Frozen parameters are as they were, not
        rounded.

        best: take the weights that were marked as the best, if any; else the last.
        """
        module.float()
        masters = self.best if best and self.best else self.masters
        source = {**masters, **self.frozen_masters}
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
        other = sorted(targets.keys() ^ state.keys())
        if other:
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


def _float32_shards(parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
    """The values of parameters, or their rows of this process, in float32."""
    return {name: local_shard(parameter.detach()).float() for name, parameter in parameters.items()}


def norm_of(gradients: Mapping[str, Tensor]) -> Tensor:
    """Norm of all gradients together, each tensor's in float32, as a float64 tensor on their device."""
    norms: list[Tensor] = []
    flat = _flat(gradients)
    buffer = _buffer(gradients)
    for piece in _pieces(flat, flat):
        values = [part.of(flat) for part in piece]
        norms += torch._foreach_norm(_as_float32(values, buffer))
    if not norms:
        return torch.zeros((), dtype=torch.float64, device=buffer.device)
    return torch.stack(norms).double().norm()


class AdamW:
    """Updates float32 master weights.

    masters: by parameter name, changed in place.
    learning_rate: its peak.
    decays: weight decay by parameter name.
    eps, beta2: of the second moments.
    """

    def __init__(
        self,
        masters: Mapping[str, Tensor],
        learning_rate: float,
        decays: Mapping[str, float],
        eps: float,
        beta2: float = 0.999,
    ) -> None:
        self.learning_rate = learning_rate
        self.eps = eps
        self.beta2 = beta2
        self.first = {name: torch.zeros_like(master) for name, master in masters.items()}
        self.second = {name: torch.zeros_like(master) for name, master in masters.items()}
        self.steps = {name: torch.zeros((), device=master.device) for name, master in masters.items()}

        # A call of the fused kernel has one weight decay.
        groups: dict[float, list[str]] = {}
        for name in masters:
            groups.setdefault(decays[name], []).append(name)
        flat_masters = _flat(masters)
        self.groups = {decay: list(_pieces(flat_masters, names)) for decay, names in groups.items()}

        flat_first = _flat(self.first)
        flat_second = _flat(self.second)
        self.parts: dict[Part, tuple[Tensor, Tensor, Tensor]] = {}
        for piece in chain.from_iterable(self.groups.values()):
            for part in piece:
                self.parts[part] = (part.of(flat_masters), part.of(flat_first), part.of(flat_second))

    def step(
        self,
        weights: Mapping[str, Tensor],
        gradients: Mapping[str, Tensor],
        lr_factor: float,
        divisor: Tensor,
        is_good: Tensor,
    ) -> None:
        """One step of the masters, which are then rounded into the weights.

        weights: as the module computes with them.
        gradients: by name; parameters without one do not change.
        lr_factor: learning rate of the step, as a fraction of its peak.
        divisor: of the gradients; float32, one number on their device.
        is_good: 1.0, or 0.0 for a step that changes nothing; also on their device, where the kernels look at it.
        """
        found_inf = 1 - is_good
        scale: Tensor | None = divisor
        if divisor.device.type == "cpu" and divisor == 1:
            # The kernel writes the gradients that it divides. On a GPU, to look would be to wait.
            scale = None

        # A step that is skipped does not count: it would change the correction of the moments.
        counted = [steps for name, steps in self.steps.items() if name in gradients]
        torch._foreach_add_(counted, [is_good] * len(counted))
        flat_weights = _flat(weights)
        flat_gradients = _flat(gradients)
        buffer = _buffer(gradients)

        for decay, pieces in self.groups.items():
            for piece in pieces:
                parts = [part for part in piece if part.name in gradients]
                if not parts:
                    continue
                masters = [self.parts[part][0] for part in parts]
                torch._fused_adamw_(
                    masters,
                    grads=_as_float32([part.of(flat_gradients) for part in parts], buffer),
                    exp_avgs=[self.parts[part][1] for part in parts],
                    exp_avg_sqs=[self.parts[part][2] for part in parts],
                    max_exp_avg_sqs=[],
                    state_steps=[self.steps[part.name] for part in parts],
                    lr=self.learning_rate * lr_factor,
                    beta1=BETA_1,
                    beta2=self.beta2,
                    weight_decay=decay,
                    eps=self.eps,
                    amsgrad=False,
                    maximize=False,
                    grad_scale=scale,
                    found_inf=found_inf,
                )
                if weights[parts[0].name].dtype is not torch.float32:
                    torch._foreach_copy_([part.of(flat_weights) for part in parts], masters)

    def state(self) -> dict[str, Mapping[str, Tensor]]:
        """Optimizer state besides the masters, by kind and parameter name."""
        return {"first": self.first, "second": self.second, "steps": self.steps}


class Part(NamedTuple):
    """A slice of a flattened tensor."""

    name: str
    start: int
    stop: int

    def of(self, flat: Mapping[str, Tensor]) -> Tensor:
        whole = flat[self.name]
        return whole if len(whole) == self.stop - self.start else whole[self.start : self.stop]


def _flat(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.reshape(-1) for name, value in tensors.items()}


def _buffer(tensors: Mapping[str, Tensor]) -> Tensor:
    """Memory for one piece."""
    device = next(iter(tensors.values())).device if tensors else torch.device("cpu")
    return torch.empty(PIECE[device.type], device=device)


def _as_float32(parts: list[Tensor], buffer: Tensor) -> list[Tensor]:
    """The same values, in `buffer` where they are not float32 already."""
    if parts[0].dtype is torch.float32:
        return parts
    sizes = [part.numel() for part in parts]
    copies = list(buffer[: sum(sizes)].split_with_sizes(sizes))
    torch._foreach_copy_(copies, parts)
    return copies


def _pieces(flat: Mapping[str, Tensor], names: Iterable[str]) -> Iterator[list[Part]]:
    """All elements of the named tensors in runs of at most PIECE, one large tensor in several, small ones together."""
    piece: list[Part] = []
    remaining = 0
    for name in names:
        size = len(flat[name])
        most = PIECE[flat[name].device.type]
        for start in range(0, size, most):
            stop = min(start + most, size)
            if piece and remaining < stop - start:
                yield piece
                piece = []
            remaining = (remaining if piece else most) - (stop - start)
            piece.append(Part(name, start, stop))
    if piece:
        yield piece


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
        if not self.dynamic:
            return {}
        return {"scale": self.value, "skipped": self.skips(norm)}
