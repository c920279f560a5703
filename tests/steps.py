"""Steps that a function takes, counted in lines that run: how they grow does not depend on the machine."""

import sys
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any


def count_lines(module: ModuleType, call: Callable[[], object]) -> int:
    """How many lines of a module run during a call."""
    lines = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        if frame.f_code.co_filename != module.__file__:
            return None
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return lines
