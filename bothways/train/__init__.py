"""Training, as a package (bothways.train.loop, ...) and, since it has the public function's name, as that function."""

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """Importing a part of the package hides the function bothways.train behind it; calls still reach the function."""

    def __call__(self, *given: Any, **named: Any) -> Any:
        from bothways.tasks.registry import train

        return train(*given, **named)


sys.modules[__name__].__class__ = _Callable
