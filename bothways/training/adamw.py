"""AdamW optimizer (Loshchilov 2017) in one pass over memory, with torch's fused kernel.

Memory bandwidth limits the step. Parameters are processed in cache-sized pieces: convert the gradient to float32,
update the master weight, round it into the weight. Only one piece of float32 gradients exists at a time.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

PIECE = {"cpu": 1 << 18, "cuda": 1 << 24}  # elements
BETA_1 = 0.9


class Part(NamedTuple):
    """A slice of a flattened tensor."""

    name: str
    start: int
    stop: int

    def of(self, flat: Mapping[str, Tensor]) -> Tensor:
        whole = flat[self.name]
        return whole if len(whole) == self.stop - self.start else whole[self.start : self.stop]


def norm_of(gradients: Mapping[str, Tensor]) -> float:
    """Norm of all gradients together, in float32."""
    norms: list[Tensor] = []
    flat, buffer = _flat(gradients), _buffer(gradients)
    for piece in _pieces(flat, flat):
        norms += torch._foreach_norm(_as_float32([part.of(flat) for part in piece], buffer))
    return float(torch.stack(norms).double().norm()) if norms else 0.0


class AdamW:
    """Updates float32 master weights. peaks, decays: peak learning rate and weight decay by parameter name."""

    def __init__(
        self,
        masters: Mapping[str, Tensor],
        peaks: Mapping[str, float],
        decays: Mapping[str, float],
        eps: float,
        beta2: float = 0.999,
    ) -> None:
        self.eps, self.beta2 = eps, beta2
        self.first = {name: torch.zeros_like(master) for name, master in masters.items()}
        self.second = {name: torch.zeros_like(master) for name, master in masters.items()}
        self.steps = {name: torch.zeros((), device=master.device) for name, master in masters.items()}
        groups: dict[tuple[float, float], list[str]] = {}
        for name in masters:
            groups.setdefault((peaks[name], decays[name]), []).append(name)
        self.groups = {rates: list(_pieces(_flat(masters), names)) for rates, names in groups.items()}
        flat = [_flat(values) for values in (masters, self.first, self.second)]
        self.parts = {
            part: [part.of(values) for values in flat]
            for pieces in self.groups.values()
            for piece in pieces
            for part in piece
        }

    def step(
        self, weights: Mapping[str, Tensor], gradients: Mapping[str, Tensor], lr_factor: float, divisor: float
    ) -> None:
        """One step at `lr_factor` times the peaks, with gradients divided by `divisor`; rounds masters into weights.

        Parameters without a gradient do not change.
        """
        torch._foreach_add_([steps for name, steps in self.steps.items() if name in gradients], 1)
        flat_weights, flat_gradients, buffer = _flat(weights), _flat(gradients), _buffer(gradients)
        scale = None if divisor == 1 else torch.full((), divisor, device=buffer.device)  # which waits for no GPU
        for (peak, decay), pieces in self.groups.items():
            for piece in pieces:
                parts = [part for part in piece if part.name in gradients]
                if not parts:
                    continue
                masters, first, second = map(list, zip(*(self.parts[part] for part in parts), strict=True))
                torch._fused_adamw_(
                    masters,
                    _as_float32([part.of(flat_gradients) for part in parts], buffer),
                    first,
                    second,
                    [],
                    [self.steps[part.name] for part in parts],
                    lr=peak * lr_factor,
                    beta1=BETA_1,
                    beta2=self.beta2,
                    weight_decay=decay,
                    eps=self.eps,
                    amsgrad=False,
                    maximize=False,
                    grad_scale=scale,
                )
                if weights[parts[0].name].dtype is not torch.float32:
                    torch._foreach_copy_([part.of(flat_weights) for part in parts], masters)

    def state(self) -> dict[str, Mapping[str, Tensor]]:
        """Optimizer state besides the masters, by kind and parameter name."""
        return {"first": self.first, "second": self.second, "steps": self.steps}


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
        size, most = len(flat[name]), PIECE[flat[name].device.type]
        for start in range(0, size, most):
            stop = min(start + most, size)
            if piece and remaining < stop - start:
                yield piece
                piece = []
            remaining = (remaining if piece else most) - (stop - start)
            piece.append(Part(name, start, stop))
    if piece:
        yield piece
