"""Muon optimizer for the layers' matrices: orthogonalized momentum (Jordan 2024).

Steps are scaled to the size of AdamW's (Liu 2025), so that the same learning rates and weight decay apply.
"""

import re
from collections.abc import Mapping

import torch
from torch import Tensor

STACKED = {".qkv.": 3, ".global_key_value.": 2}  # matrices stacked in one parameter


def is_hidden_matrix(name: str, value: Tensor) -> bool:
    """Whether a parameter is a matrix of a layer, not an embedding, head, norm or bias."""
    return value.ndim == 2 and re.search(r"(^|\.)layers\.\d+\.", name) is not None


class Muon:
    """Updates float32 matrices. peaks, decays: peak learning rate and weight decay by parameter name."""

    def __init__(self, masters: Mapping[str, Tensor], peaks: Mapping[str, float], decays: Mapping[str, float]) -> None:
        self.masters = masters
        self.momentum = {name: torch.zeros_like(master) for name, master in masters.items()}
        self.blocks = {name: _blocks(name, master) for name, master in masters.items()}
        self.inner = torch.optim.Muon(
            [{"params": self.blocks[name], "weight_decay": decays[name], "peak": peaks[name]} for name in masters],
            adjust_lr_fn="match_rms_adamw",
        )
        for name, blocks in self.blocks.items():
            for block, momentum in zip(blocks, _blocks(name, self.momentum[name]), strict=True):
                self.inner.state[block]["momentum_buffer"] = momentum

    def step(
        self, weights: Mapping[str, Tensor], gradients: Mapping[str, Tensor], lr_factor: float, divisor: float
    ) -> None:
        """One step at `lr_factor` times the peaks, with gradients divided by `divisor`; rounds masters into weights."""
        for name, blocks in self.blocks.items():
            if name in gradients:
                gradient = gradients[name].float() / divisor
                for block, part in zip(blocks, _blocks(name, gradient), strict=True):
                    block.grad = part
        for group in self.inner.param_groups:
            group["lr"] = group["peak"] * lr_factor
        self.inner.step()
        self.inner.zero_grad()
        for name, master in self.masters.items():
            weights[name].copy_(master)

    def state(self) -> dict[str, Mapping[str, Tensor]]:
        """Optimizer state besides the masters, by kind and parameter name."""
        return {"momentum": self.momentum}


def _blocks(name: str, value: Tensor) -> list[Tensor]:
    """Split stacked query, key and value matrices, which Muon must orthogonalize separately."""
    return list(value.chunk(next((count for part, count in STACKED.items() if part in name), 1)))
