"""Model parameters in memory: create models uninitialized, move them to a device and dtype, and put them into modules
of another class."""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, TypeVar

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from bothways.base.errors import InputError
from bothways.model.heads import ClassificationHead

CPU = torch.device("cpu")
Module = TypeVar("Module", bound=nn.Module)
# Functions that initialize a new Linear and a new Embedding. They consult the mode first and run outside of it.
INITIALIZERS = (
    torch.nn.init.kaiming_uniform_,
    torch.nn.init.uniform_,
    torch.nn.init.normal_,
)
ALLOCATORS = (torch.empty, torch.zeros)  # functions that allocate parameters
NUM_HASHED = 256  # numbers of each tensor


class _NoInit(TorchFunctionMode):
    """Leaves initializers out and counts what allocators are asked for."""

    def __init__(self, max_elements: float) -> None:
        super().__init__()
        self.max_elements = max_elements
        self.num_left = max_elements

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func in INITIALIZERS:
            tensor, *_ = args or kwargs.values()
            return tensor

        if func in ALLOCATORS:
            shape = args[0] if isinstance(args[0], Sequence) else args
            self.num_left -= math.prod(shape)
            if self.num_left < 0:
                raise InputError(f"more than {self.max_elements:,} parameters needed, the most that the file can hold")
        return func(*args, **kwargs)


@contextmanager
def no_init(dtype: torch.dtype = torch.float32, max_elements: float = math.inf) -> Iterator[None]:
    """In this context, new parameters have this dtype and are not initialized, since they will be read from a file.

    InputError, before memory is allocated, for more than max_elements elements in all. (Building a module on the device
    "meta" and allocating memory afterwards would import half of torch's compiler, in a second and 80 MB.)
    """
    default = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with _NoInit(max_elements):
            yield
    finally:
        torch.set_default_dtype(default)


@contextmanager
def same_random_numbers() -> Iterator[None]:
    """In this context, layers may be built without an effect on the random numbers after it: torch's generator is then
    as before. Not for threads beside others that draw."""
    with torch.random.fork_rng([]):
        yield


def move_model(model: nn.Module, device: torch.device, dtype: torch.dtype) -> None:
    """Move a model, in place. The output layers of classification heads keep their dtype: in bf16 a bias of 2,000 would
    be rounded to a multiple of 8."""
    exact: list[tuple[nn.Parameter, torch.Tensor]] = []
    for head in model.modules():
        if isinstance(head, ClassificationHead):
            exact += [(parameter, parameter.data) for parameter in head.output.parameters()]

    model.to(device, dtype)
    for parameter, data in exact:
        parameter.data = data.to(device)


def inference_copy(model: Module, device: torch.device, dtype: torch.dtype) -> Module:
    """A copy in eval mode, on a device and in a number format."""
    copy = deepcopy(model)
    move_model(copy, device, dtype)
    return copy.eval()


def fingerprint_weights(model: nn.Module) -> str:
    """Hash of a sample of each tensor."""
    digest = hashlib.sha256()
    for name, value in model.state_dict().items():
        flat = value.detach().flatten()
        step = max(1, -(-len(flat) // NUM_HASHED))
        sample = flat[::step].float().cpu().numpy()
        digest.update(name.encode() + sample.tobytes())
    return digest.hexdigest()[:16]


def all_finite(values: torch.Tensor) -> bool:
    """Whether no value is NaN or infinite."""
    # The sum first, in a twentieth of the time; it may overflow.
    if math.isfinite(values.sum().item()):
        return True
    return bool(values.isfinite().all())


def retype(module: nn.Module, kind: type[Module]) -> Module:
    """A module of another class with the same attributes and the same parameters, not copies, under the same names."""
    changed = kind.__new__(kind)
    changed.__dict__ = dict(module.__dict__)
    # Their own tables, so that a parameter that is added to one module is not in the other.
    for name in ("_parameters", "_buffers", "_modules"):
        changed.__dict__[name] = module.__dict__[name].copy()
    return changed


def set_module(model: nn.Module, name: str, module: nn.Module) -> None:
    """Replace the submodule of this name."""
    parent, _, attribute = name.rpartition(".")
    setattr(model.get_submodule(parent), attribute, module)


def share(module: Module) -> Module:
    """A copy of the modules with the same parameters and buffers, not copies: a part that is added to one module is not
    in the other."""
    shared = {id(value): value for value in (*module.parameters(), *module.buffers())}
    return deepcopy(module, shared)
