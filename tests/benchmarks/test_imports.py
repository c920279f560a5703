"""What benchmarks, examples and tools import from the package exists, also in those that no test runs."""

import ast
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
FOLDERS = ("benchmarks", "examples", "soak", "tools")


def names_imported(file: Path) -> set[tuple[str, str]]:
    """Module and name of each import from the package; "" for the module itself."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found |= {(node.module, alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {(alias.name, "") for alias in node.names}
    return {(module, name) for module, name in found if module.partition(".")[0] == "bothways"}


def exists(module: str, name: str) -> bool:
    try:
        if hasattr(importlib.import_module(module), name or "__name__"):
            return True
        importlib.import_module(f"{module}.{name}")
    except ModuleNotFoundError as error:
        # A package that is not installed here is no fault of the file.
        return (error.name or "").partition(".")[0] != "bothways"
    return True


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS)
def test_what_is_imported_from_the_package_exists(folder):
    files = sorted((ROOT / folder).rglob("*.py"))
    missing = [
        f"{file.relative_to(ROOT)}: {module}.{name}"
        for file in files
        for module, name in sorted(names_imported(file))
        if not exists(module, name)
    ]
    assert files and not missing
