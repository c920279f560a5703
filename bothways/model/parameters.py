"""Modules whose parameters are about to be read from a file: made without drawing values for them."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from bothways.errors import InputError
from bothways.model.heads import ClassificationHead

# What fills a new Linear and a new Embedding. The functions of nn.init ask the mode first, and run outside of it.
DRAWS = (torch.nn.init.kaiming_uniform_, torch.nn.init.uniform_, torch.nn.init.normal_)
MEMORY = (torch.empty, torch.zeros)  # what makes parameters


class _NoDraws(TorchFunctionMode):
    def __init__(self, most: float) -> None:
        super().__init__()
        self.most = self.left = most

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        given = kwargs or {}
        if func in DRAWS:
            return (args or list(given.values()))[0]
        if func in MEMORY:
            self.left -= math.prod(args[0] if isinstance(args[0], Sequence) else args)
            if self.left < 0:
                raise InputError(f"asks for more parameters than {self.most:,}, which is all there can be")
        return func(*args, **given)


@contextmanager
def no_init(dtype: torch.dtype = torch.float32, most: float = math.inf) -> Iterator[None]:
    """Within it, parameters are memory of this number format, with whatever stands there. InputError, before any memory
    is asked for, where they have more than `most` elements together.

    (Making a module on the device "meta" and giving it memory afterwards loads half of torch's compiler: a second, and
    80 MB.)
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with _NoDraws(most):
            yield
    finally:
        torch.set_default_dtype(before)


def move(model: nn.Module, device: torch.device, dtype: torch.dtype) -> None:
    """All but the maps to classes and numbers change their format: in bf16 a bias of 2,000 would become a multiple of
    8."""
    maps = [part.output for part in model.modules() if isinstance(part, ClassificationHead)]
    exact = [(value, value.data) for part in maps for value in part.parameters()]
    model.to(device, dtype)
    for value, data in exact:
        value.data = data.to(device)
