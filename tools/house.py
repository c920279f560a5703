"""The size of the package against its budget, in one line: `make check` ends with it.

    python -m tools.house

Exits with status 1 if a measure is over its budget. Lower a budget when the package has become smaller. docs/LOG.md has
the aims: 43,500 lines in 280 files.
"""

import ast
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "bothways"
DATA = {"pretrained", "sample"}  # folders without code
BUDGET = {
    "lines": 53_369,
    "files": 311,
    "doors": 11,
    "lines of the longest function": 58,
    "options": 148,
    "options of a verb": 45,
    "import circles": 0,
}


def measure(package: Path) -> dict[str, int]:
    """What the budget limits, of the Python files of a package."""
    trees = {file: ast.parse(file.read_text(encoding="utf-8")) for file in sorted(package.rglob("*.py"))}
    doors = {file.relative_to(package).parts[0] for file in trees if file.parent != package} - DATA
    functions = (
        node.end_lineno - node.lineno + 1
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno
    )
    return {
        "lines": sum(len(file.read_text(encoding="utf-8").splitlines()) for file in trees),
        "files": len(trees),
        "doors": len(doors),
        "lines of the longest function": max(functions, default=0),
        "import circles": int(has_circle(package, trees)),
    }


def measure_options() -> dict[str, int]:
    """How many settings there are by name, and the most in one verb."""
    from bothways.verbs import VERBS

    names = [{field.name for field in fields(verb.settings_class)} for verb in VERBS.values()]
    return {"options": len(set.union(*names)), "options of a verb": max(map(len, names))}


def has_circle(package: Path, trees: Mapping[Path, ast.Module]) -> bool:
    """Whether files import each other in a circle, wherever they do; imports for type checking aside."""
    graph = {file: {*imported(package, tree)} - {file} for file, tree in trees.items() if file.parent != package}
    try:
        TopologicalSorter(graph).prepare()
        return False
    except CycleError:
        return True


def imported(package: Path, tree: ast.Module) -> Iterator[Path]:
    """The files of the package that a file imports."""
    branches = (node for node in ast.walk(tree) if isinstance(node, ast.If))
    skipped = {inner for node in branches if ast.unparse(node.test) == "TYPE_CHECKING" for inner in ast.walk(node)}
    for node in ast.walk(tree):
        module = node.module if isinstance(node, ast.ImportFrom) and node not in skipped else None
        if isinstance(node, ast.ImportFrom) and module and module.startswith(f"{package.name}."):
            path = package.parent.joinpath(*module.split("."))
            yield from (path / f"{alias.name}.py" for alias in node.names if (path / f"{alias.name}.py").exists())
            if path.with_suffix(".py").exists():
                yield path.with_suffix(".py")


def over_budget(measured: Mapping[str, int]) -> list[str]:
    return [name for name, limit in BUDGET.items() if measured[name] > limit]


def main() -> None:
    measured = measure(PACKAGE) | measure_options()
    print("budget: " + ", ".join(f"{name} {measured[name]:,} of {limit:,}" for name, limit in BUDGET.items()))
    if over := over_budget(measured):
        sys.exit(f"over budget: {', '.join(over)}; make it smaller, or say in docs/LOG.md why it must grow")


if __name__ == "__main__":
    main()
