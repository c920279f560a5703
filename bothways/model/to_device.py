"""A model on another device and in another number format."""

import torch
from torch import nn

from bothways.model.heads import Classes


def move(model: nn.Module, device: torch.device, dtype: torch.dtype) -> None:
    """All but the maps to classes and numbers change their format: in bf16 a bias of 2,000 would become a multiple of
    8."""
    maps = [part.output for part in model.modules() if isinstance(part, Classes)]
    exact = [(value, value.data) for part in maps for value in part.parameters()]
    model.to(device, dtype)
    for value, data in exact:
        value.data = data.to(device)
