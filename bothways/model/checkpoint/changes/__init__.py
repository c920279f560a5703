"""Changes of a checkpoint: functions from a Checkpoint, and further arguments, to another one.

A new change is one function and one entry in CHANGES. A file is imported when its change is used.
The folder of adapters is known here by a name alone.
"""

from collections.abc import Callable
from typing import Any

from bothways.base.io import LazyTable

CHANGES = LazyTable[Callable[..., Any]](
    "bothways.model",
    {
        "layers": "checkpoint.changes.cut:with_layers",
        "parts": "checkpoint.changes.cut:cut",
        "whole-heads": "checkpoint.changes.cut:fill_heads",
        "vocabulary": "checkpoint.changes.cut:cut_vocabulary",
        "width": "checkpoint.changes.width:with_width",
        "new-head": "checkpoint.changes.new_head:with_head",
        "heads": "checkpoint.changes.new_head:with_heads",
        "encoder": "checkpoint.changes.new_head:encoder_only",
        "int8": "checkpoint.changes.pack:with_int8",
        "pack": "checkpoint.changes.pack:with_packed",
        "merge": "adapters.attach:with_merged",
    },
)
