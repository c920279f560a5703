"""Load the code that compiles the C library, from a checkout whose package and requirements are not installed."""

import importlib.util
from pathlib import Path
from types import ModuleType

NAME = "bothways_core_build"


def load_core_build(root: Path) -> ModuleType:
    """The module bothways/core/build.py of a checkout."""
    spec = importlib.util.spec_from_file_location(NAME, root / "bothways" / "core" / "build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
