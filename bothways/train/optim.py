"""AdamW (Loshchilov 2017) with decay on matrices only, over float32 masters of half-precision weights."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn


class Optimizer:
    """Steps a module's parameters. Weights in bf16 have float32 masters, which hold what single steps are too small
    to show.

    layer_decay: eta_l = eta * layer_decay ** (L - l) for layer l of L, embeddings as layer 0 and heads as layer L
    (Sun 2019).
    """

    def __init__(
        self, module: nn.Module, *, rate: float, weight_decay: float = 0.01, layer_decay: float = 1.0, eps: float = 1e-6
    ) -> None:
        self.parameters: list[Tensor] = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self.masters = [parameter.detach().float().clone() for parameter in self.parameters]
        self.best: list[Tensor] = []
        names = [name for name, parameter in module.named_parameters() if parameter.requires_grad]
        depths = list(_depths(names))
        groups: dict[tuple[float, float], list[Tensor]] = {}
        for depth, master in zip(depths, self.masters, strict=True):
            decay = weight_decay if master.ndim > 1 else 0.0
            groups.setdefault((rate * layer_decay ** (max(depths) - depth), decay), []).append(master)
        self.inner = torch.optim.AdamW(
            [{"params": group, "peak": peak, "weight_decay": decay} for (peak, decay), group in groups.items()],
            lr=rate, betas=(0.9, 0.999), eps=eps, fused=True,
        )  # fmt: skip

    def step(self, share: float, clip: float = 1.0) -> float:
        """One step at `share` of the peak rate; gradients are clipped to a total norm, which is returned, and cleared.

        A norm that is not finite changes nothing.
        """
        for parameter, master in zip(self.parameters, self.masters, strict=True):
            master.grad = None if parameter.grad is None else parameter.grad.float()
            parameter.grad = None
        norm = float(nn.utils.clip_grad_norm_(self.masters, clip))
        if norm == norm and norm != float("inf"):
            for group in self.inner.param_groups:
                group["lr"] = group["peak"] * share
            self.inner.step()
            with torch.no_grad():
                torch._foreach_copy_(self.parameters, self.masters)
        for master in self.masters:
            master.grad = None
        return norm

    def mark_best(self) -> None:
        """Remember the masters as they are now."""
        self.best = [master.clone() for master in self.masters]

    def write_masters(self, module: nn.Module) -> None:
        """Make the module float32 again, with the masters as its weights: those marked best, else the last."""
        module.float()
        with torch.no_grad():
            torch._foreach_copy_(self.parameters, self.best or self.masters)


def _depths(names: list[str]) -> Iterator[int]:
    """How deep a parameter sits: embeddings 0, layer l at l + 1, all behind them one more."""
    layers = [int(name.split("layers.")[1].split(".")[0]) + 1 if "layers." in name else None for name in names]
    last = max((layer for layer in layers if layer), default=0) + 1
    for name, layer in zip(names, layers, strict=True):
        yield layer if layer is not None else 0 if "embeddings." in name else last
