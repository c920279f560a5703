"""Changing modules of a model: the same parameters in a module of another class."""

from copy import deepcopy
from typing import TypeVar

from torch import nn

Module = TypeVar("Module", bound=nn.Module)


def retype(module: nn.Module, kind: type[Module]) -> Module:
    """A module of another class with the same attributes and the same parameters, not copies, under the same names."""
    changed = kind.__new__(kind)
    changed.__dict__ = {
        name: value.copy() if name in ("_parameters", "_buffers", "_modules") else value
        for name, value in module.__dict__.items()
    }
    return changed


def set_module(model: nn.Module, name: str, module: nn.Module) -> None:
    """Replace the submodule of this name."""
    parent, _, attribute = name.rpartition(".")
    setattr(model.get_submodule(parent), attribute, module)


def share(module: Module) -> Module:
    """A copy of the modules with the same parameters and buffers, not copies: what is added to one is not in the
    other."""
    return deepcopy(module, {id(value): value for value in (*module.parameters(), *module.buffers())})
