"""Changes of a checkpoint: functions from a Checkpoint, and further arguments, to another one.

A new change is one function and one entry in CHANGES. A file is imported when its change is used.
"""

from collections.abc import Callable
from typing import Any

from bothways.io import LazyTable

CHANGES = LazyTable[Callable[..., Any]](
    "bothways.model.checkpoint.changes",
    {
        "layers": "cut:with_layers",
        "parts": "cut:cut",
        "whole-heads": "cut:fill_heads",
        "vocabulary": "vocabulary:cut_vocabulary",
        "width": "width:with_width",
        "new-head": "new_head:with_head",
        "heads": "new_head:with_heads",
        "encoder": "new_head:encoder_only",
        "int8": "pack:with_int8",
        "pack": "pack:with_packed",
        "merge": "pack:with_merged",
    },
)
