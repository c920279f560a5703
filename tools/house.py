"""The shape of the package: `make check` ends with it.

    python -m tools.house

Exits with status 1 where files import each other in a circle, or where a function has over 60 logical lines: lines with
code, lone brackets and docstrings aside. Neither lines nor files are limited, since air is cheap; what must not grow
are ideas. So the options of each verb are printed too: docs/LOG.md has a sentence for each new one.
"""

import ast
import io
import sys
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "bothways"
DATA = {"pretrained", "sample"}  # folders without code
MAX_FUNCTION_LINES = 60

LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
BRACKETS = set("()[]{},:")  # a line of these alone closes or opens a call, and has no code of its own


@dataclass(frozen=True)
class House:
    """What is measured.

    long_functions: "file.py: name" of those over the limit -> logical lines.
    circle: files that import each other.
    """

    lines: int
    files: int
    doors: int
    longest_function: int
    long_functions: dict[str, int]
    circle: list[str]

    def faults(self) -> list[str]:
        """A line for whatever must not be."""
        faults = [
            f"{name} has {count} logical lines, over {MAX_FUNCTION_LINES}: divide it"
            for name, count in self.long_functions.items()
        ]
        if self.circle:
            faults.append(f"these files import each other in a circle: {', '.join(self.circle)}")
        return faults


def measure(package: Path) -> House:
    """Measures the Python files of a package."""
    texts = {file: file.read_text(encoding="utf-8") for file in sorted(package.rglob("*.py"))}
    trees = {file: ast.parse(text) for file, text in texts.items()}
    doors = {file.relative_to(package).parts[0] for file in trees if file.parent != package} - DATA

    lengths = {}
    for file, tree in trees.items():
        rows = logical_lines(texts[file], tree)
        for node in functions(tree):
            name = f"{file.relative_to(package)}: {node.name}"
            length = sum(row in rows for row in range(node.lineno, (node.end_lineno or node.lineno) + 1))
            lengths[name] = max(length, lengths.get(name, 0))

    return House(
        lines=sum(len(text.splitlines()) for text in texts.values()),
        files=len(texts),
        doors=len(doors),
        longest_function=max(lengths.values(), default=0),
        long_functions={name: length for name, length in lengths.items() if length > MAX_FUNCTION_LINES},
        circle=[str(file.relative_to(package)) for file in find_circle(package, trees)],
    )


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def logical_lines(text: str, tree: ast.Module) -> set[int]:
    """The lines that have code: neither blank nor a comment, nor part of a docstring, nor brackets alone."""
    rows = {
        token.start[0]
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in LAYOUT and token.string not in BRACKETS
    }
    for node in [tree, *functions(tree), *(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))]:
        if ast.get_docstring(node, clean=False) is not None:
            docstring = node.body[0]
            rows -= set(range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1))
    return rows


def find_circle(package: Path, trees: Mapping[Path, ast.Module]) -> list[Path]:
    """Files that import each other in a circle, wherever in the file they do; imports for type checking aside."""
    graph = {file: {*imported(package, tree)} - {file} for file, tree in trees.items() if file.parent != package}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


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


def options_by_verb() -> dict[str, set[str]]:
    """The names of the settings of each verb."""
    from bothways.cli.verbs import VERBS

    return {name: {field.name for field in fields(verb.settings_class)} for name, verb in VERBS.items()}


def main() -> None:
    house = measure(PACKAGE)
    options = options_by_verb()

    print(
        f"house: {house.lines:,} lines in {house.files} files and {house.doors} doors, "
        f"longest function {house.longest_function} of {MAX_FUNCTION_LINES} logical lines"
    )
    by_verb = sorted(options.items(), key=lambda verb: -len(verb[1]))
    print(
        f"options: {len(set.union(*options.values()))} names; "
        + ", ".join(f"{verb} {len(names)}" for verb, names in by_verb)
    )

    if faults := house.faults():
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
