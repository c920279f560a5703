"""The shape of the package: `make check` ends with it.

    python -m tools.house [PACKAGE]

Three things are held, and exit with status 1: files that import each other in a circle, doors (folders) that do, and
functions of over 60 logical lines. Everything else is printed, and limits nothing: a limit on lines was met by packing
them (docs/LOG.md). The same counts hold for any package, for comparison.

A logical line has code: blank lines, comments, docstrings and lone brackets are none. Code tokens leave out comments,
docstrings and imports.
"""

import ast
import io
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, fields
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "bothways"
DATA = {"pretrained", "sample"}  # folders without code
MAX_FUNCTION_LINES = 60
LONG_FILE = 500  # lines
MANY_ARGUMENTS = 6  # positional ones

LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
BRACKETS = set("()[]{},:")  # a line of these alone closes or opens a call, and has no code of its own
C_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
# A name or number, a text, or a sign; signs of several characters count once.
C_TOKEN = re.compile(r'[\w.]+|"[^"\n]*"|->|<<=?|>>=?|[-+*/%&|^=!<>]=|&&|\|\||\+\+|--|[^\s\w]')
PRONOUNS = re.compile(r"\b(?:that|those) of\b")


@dataclass(frozen=True)
class SourceFile:
    """A Python file, read once. path: relative to the package, without .py."""

    path: str
    text: str

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def functions(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]

    @cached_property
    def tokens(self) -> list[tokenize.TokenInfo]:
        """The tokens of code: without layout, comments and docstrings."""
        found = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return [token for token in found if token.type not in LAYOUT and token.start[0] not in self.docstring_lines]

    @cached_property
    def docstring_lines(self) -> set[int]:
        rows = set[int]()
        for node in ast.walk(self.tree):
            has_body = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            if has_body and ast.get_docstring(node, clean=False) is not None:  # type: ignore[arg-type]
                docstring = node.body[0]  # type: ignore[attr-defined]
                rows.update(range(docstring.lineno, docstring.end_lineno + 1))
        return rows

    @cached_property
    def import_lines(self) -> set[int]:
        rows = set[int]()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                rows.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        return rows

    @cached_property
    def logical_lines(self) -> set[int]:
        return {token.start[0] for token in self.tokens if token.string not in BRACKETS}

    @property
    def door(self) -> str:
        """The folder at the top that has the file; "" for a file at the top itself."""
        folder, slash, _ = self.path.partition("/")
        return folder if slash else ""


@dataclass(frozen=True)
class House:
    """The measures of a package.

    counts: by name, in the order in which they are printed.
    long_functions: "file.py: name" of functions over the limit -> logical lines.
    circle: files that import each other.
    door_circle: doors that do.
    """

    counts: dict[str, float]
    longest_function: int
    long_functions: dict[str, int]
    circle: list[str]
    door_circle: list[str]

    def faults(self) -> list[str]:
        """A line for everything that is held, and is not so."""
        faults = [
            f"{name} has {count} logical lines, over {MAX_FUNCTION_LINES}: divide it"
            for name, count in self.long_functions.items()
        ]
        if self.circle:
            faults.append(f"these files import each other in a circle: {', '.join(self.circle)}")
        if self.door_circle:
            faults.append(f"these doors import each other in a circle: {', '.join(self.door_circle)}")
        return faults


def measure(package: Path) -> House:
    """Measure the Python files of a package."""
    files = [
        SourceFile(file.relative_to(package).with_suffix("").as_posix(), file.read_text(encoding="utf-8"))
        for file in sorted(package.rglob("*.py"))
        if "__pycache__" not in file.parts
    ]
    lengths = function_lengths(files)
    long_functions = {name: length for name, length in lengths.items() if length > MAX_FUNCTION_LINES}

    graph = import_graph(package.name, files)
    inside = {path: targets for path, targets in graph.items() if "/" in path}
    return House(
        counts=count_all(files) | count_c([*package.rglob("*.[ch]")]),
        longest_function=max(lengths.values(), default=0),
        long_functions=long_functions,
        circle=[f"{path}.py" for path in find_circle(inside)],
        door_circle=find_circle(door_graph(files, graph)),
    )


# --- counts -----------------------------------------------------------------------------------------------------------


def count_all(files: list[SourceFile]) -> dict[str, float]:
    """All counts of some files by name."""
    lines = sum(len(file.lines) for file in files)
    comments = sum(line.strip().startswith("#") for file in files for line in file.lines)
    code_tokens = sum(1 for file in files for token in file.tokens if token.start[0] not in file.import_lines)
    code_lines = {
        (file.path, token.start[0])
        for file in files
        for token in file.tokens
        if token.start[0] not in file.import_lines
    }
    bodies = [line for file in files for line in body_lines(file)]
    blank = sum(not line.strip() for line in bodies)

    return {
        "code tokens": code_tokens,
        "tokens a logical line": round(code_tokens / max(1, len(code_lines)), 2),
        "comments a thousand lines": round(1000 * comments / max(1, lines), 1),
        "blank lines in functions, %": round(100 * blank / max(1, len(bodies)), 1),
        "assignments of unrelated values on one line": sum(map(count_packed, files)),
        f"calls with {MANY_ARGUMENTS} or more positional arguments": sum(map(count_wide_calls, files)),
        "'that of' and 'those of'": sum(len(PRONOUNS.findall(file.text)) for file in files),
        "lines": lines,
        "files": len(files),
        f"files over {LONG_FILE} lines": sum(len(file.lines) > LONG_FILE for file in files),
        "doors": len({file.door for file in files} - DATA - {""}),
    }


def count_c(files: list[Path]) -> dict[str, float]:
    """Counts of the C of a package, if it has some; comments are no tokens."""
    texts = [C_COMMENT.sub("", file.read_text(encoding="utf-8")) for file in files]
    tokens = [C_TOKEN.findall(text) for text in texts]
    if not tokens:
        return {}
    return {"tokens of C": sum(map(len, tokens)), "functions of C": sum(map(count_c_functions, tokens))}


def count_c_functions(tokens: list[str]) -> int:
    """Bodies behind a list of parameters, outside of all others."""
    count = 0
    depth = 0
    for index, token in enumerate(tokens):
        count += token == "{" and not depth and tokens[index - 1] == ")"
        depth += (token == "{") - (token == "}")
    return count


def body_lines(file: SourceFile) -> Iterator[str]:
    """The lines of all functions after their docstrings."""
    for function in file.functions:
        first = function.body[0]
        start = first.lineno - 1
        if ast.get_docstring(function) is not None:
            start = first.end_lineno or first.lineno
        yield from file.lines[start : function.end_lineno]


def count_packed(file: SourceFile) -> int:
    """Assignments such as `a, b = c, d`, but for swaps."""
    count = 0
    for node in ast.walk(file.tree):
        if not isinstance(node, ast.Assign):
            continue
        target = node.targets[0]
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            names = {ast.unparse(element) for element in target.elts}
            values = {ast.unparse(element) for element in node.value.elts}
            count += not names & values
    return count


def count_wide_calls(file: SourceFile) -> int:
    """Calls with many positional arguments, of which a reader cannot tell the meaning."""
    calls = (node for node in ast.walk(file.tree) if isinstance(node, ast.Call))
    numbers = (sum(not isinstance(argument, ast.Starred) for argument in call.args) for call in calls)
    return sum(number >= MANY_ARGUMENTS for number in numbers)


def function_lengths(files: list[SourceFile]) -> dict[str, int]:
    """The logical lines of each function by "file.py: name"; of several with one name, the greatest number."""
    lengths: dict[str, int] = defaultdict(int)
    for file in files:
        for function in file.functions:
            name = f"{file.path}.py: {function.name}"
            rows = range(function.lineno, (function.end_lineno or function.lineno) + 1)
            lengths[name] = max(lengths[name], sum(row in file.logical_lines for row in rows))
    return lengths


# --- imports ----------------------------------------------------------------------------------------------------------


def import_graph(package: str, files: list[SourceFile]) -> dict[str, set[str]]:
    """The files that each file imports, wherever in the file it does; imports for type checking aside."""
    paths = {file.path for file in files}
    return {file.path: {*imported(package, file, paths)} - {file.path} for file in files}


def imported(package: str, file: SourceFile, paths: set[str]) -> Iterator[str]:
    """The paths of the files that a file imports. paths: of all files."""
    branches = (node for node in ast.walk(file.tree) if isinstance(node, ast.If))
    for_types = {inner for node in branches if "TYPE_CHECKING" in ast.unparse(node.test) for inner in ast.walk(node)}
    for node in ast.walk(file.tree):
        if not isinstance(node, ast.ImportFrom) or node in for_types:
            continue
        if not node.module or not node.module.startswith(f"{package}."):
            continue
        module = node.module.removeprefix(f"{package}.").replace(".", "/")
        inner = [f"{module}/{alias.name}" for alias in node.names]
        yield from (path for path in inner if path in paths)
        if not paths.issuperset(inner):  # a name of the module itself
            yield from (path for path in (module, f"{module}/__init__") if path in paths)


def door_graph(files: list[SourceFile], graph: Mapping[str, Set[str]]) -> dict[str, set[str]]:
    """The doors that each door uses. A file at the top of the package is none."""
    doors: dict[str, set[str]] = {file.door: set() for file in files if file.door}
    for path, targets in graph.items():
        door = path.partition("/")[0]
        if door in doors:
            used = {target.partition("/")[0] for target in targets}
            doors[door] |= used & doors.keys() - {door}
    return doors


def find_circle(graph: Mapping[str, Set[str]]) -> list[str]:
    """Names that lead to each other in a circle; empty without one."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [*dict.fromkeys(error.args[1])]
    return []


# --- options ----------------------------------------------------------------------------------------------------------


def options_by_verb() -> dict[str, set[str]]:
    """The names of the settings of each verb."""
    from bothways.cli.verbs import VERBS

    return {name: {field.name for field in fields(verb.settings_class)} for name, verb in VERBS.items()}


def describe_options(options: Mapping[str, Set[str]]) -> str:
    names = set[str]().union(*options.values())
    by_number = sorted(options.items(), key=lambda verb: -len(verb[1]))
    return f"options: {len(names)} names; " + ", ".join(f"{verb} {len(known)}" for verb, known in by_number)


def main(arguments: list[str] | None = None) -> None:
    arguments = sys.argv[1:] if arguments is None else arguments
    house = measure(Path(arguments[0]) if arguments else PACKAGE)

    for name, count in house.counts.items():
        print(f"{count:>9,}  {name}")
    print(f"{house.longest_function:>9,}  logical lines of the longest function, of {MAX_FUNCTION_LINES}")
    if not arguments:
        print(describe_options(options_by_verb()))

    if faults := house.faults():
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
