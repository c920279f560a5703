"""Changes of a checkpoint: functions from a Checkpoint, and further arguments, to another one.

A new change is one function and one entry in CHANGES. A file is imported when its change is used.
"""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bothways.checkpoint.contents import Checkpoint

CHANGES: dict[str, str] = {  # by name, "module:function"
    "layers": "bothways.checkpoint.changes.cut:with_layers",
    "parts": "bothways.checkpoint.changes.cut:cut",
    "whole-heads": "bothways.checkpoint.changes.cut:fill_heads",
    "vocabulary": "bothways.checkpoint.changes.vocabulary:cut_vocabulary",
    "width": "bothways.checkpoint.changes.width:with_width",
    "new-head": "bothways.checkpoint.changes.new_head:with_head",
    "heads": "bothways.checkpoint.changes.new_head:with_heads",
    "encoder": "bothways.checkpoint.changes.new_head:encoder_only",
    "lengthen": "bothways.checkpoint.changes.lengthen:lengthen",
    "int8": "bothways.checkpoint.changes.pack:with_int8",
    "pack": "bothways.checkpoint.changes.pack:with_packed",
    "merge": "bothways.checkpoint.changes.pack:with_merged",
}


def load(name: str) -> "Callable[..., Checkpoint]":
    """The function of a change."""
    module, function = CHANGES[name].split(":")
    change: Callable[..., Checkpoint] = getattr(import_module(module), function)
    return change


def apply(name: str, checkpoint: "Checkpoint", *arguments: Any, **options: Any) -> "Checkpoint":
    """The checkpoint after a change. arguments, options: those of its function."""
    return load(name)(checkpoint, *arguments, **options)
