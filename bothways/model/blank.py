"""Modules whose parameters are about to be read from a file: made without drawing values for them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

# What fills a new Linear and a new Embedding. The functions of nn.init ask the mode first, and run outside of it.
DRAWS = (torch.nn.init.kaiming_uniform_, torch.nn.init.uniform_, torch.nn.init.normal_)


class _NoDraws(TorchFunctionMode):
    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        given = kwargs or {}
        return (args or list(given.values()))[0] if func in DRAWS else func(*args, **given)


@contextmanager
def blank(dtype: torch.dtype = torch.float32) -> Iterator[None]:
    """Within it, parameters are memory of this number format, with whatever stands there.

    (Making a module on the device "meta" and giving it memory afterwards loads half of torch's compiler: a second, and
    80 MB.)
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with _NoDraws():
            yield
    finally:
        torch.set_default_dtype(before)
