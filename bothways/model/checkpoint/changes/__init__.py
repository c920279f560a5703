"""Changes of a checkpoint: functions from a Checkpoint, and further arguments, to another one.

A new change is one function and one entry in CHANGES. A file is imported when its change is used.
"""

from collections.abc import Callable
from typing import Any

from bothways.base.io import LazyTable
from bothways.model.families.spec import name_table

CHANGES = LazyTable[Callable[..., Any]](
    "bothways.model.checkpoint.changes",
    name_table(
        "layers=cut:with_layers parts=cut:cut whole-heads=cut:fill_heads vocabulary=cut:cut_vocabulary"
        " width=width:with_width new-head=new_head:with_head heads=new_head:with_heads encoder=new_head:encoder_only"
        " int8=pack:with_int8 pack=pack:with_packed merge=pack:with_merged"
    ),
)
