"""Changes of a checkpoint: functions from a Checkpoint, and further arguments, to another one.

A new change is one function and one entry in CHANGES. A file is imported when its change is used.
The folder of adapters is known here by a name alone.
"""

from collections.abc import Callable
from typing import Any

from bothways.base.registry import Registry

CHANGES = Registry[Callable[..., Any]](
    "change",
    "",
    {
        "layers": "bothways.model.checkpoint.changes.cut:with_layers",
        "parts": "bothways.model.checkpoint.changes.cut:cut",
        "whole-heads": "bothways.model.checkpoint.changes.cut:fill_heads",
        "vocabulary": "bothways.model.checkpoint.changes.cut:cut_vocabulary",
        "width": "bothways.model.checkpoint.changes.width:with_width",
        "new-head": "bothways.model.checkpoint.changes.new_head:with_head",
        "heads": "bothways.model.checkpoint.changes.new_head:with_heads",
        "encoder": "bothways.model.checkpoint.changes.new_head:encoder_only",
        "int8": "bothways.model.checkpoint.changes.pack:with_int8",
        "pack": "bothways.model.checkpoint.changes.pack:with_packed",
        "merge": "bothways.model.adapters.attach:with_merged",
    },
)
