"""Rules of the architecture: import order, reading lists, and the generated list of files."""

import ast
import dataclasses
import inspect
import io
import json
import os
import re
import subprocess
import sys
import textwrap
import tokenize
from collections import Counter
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from bothways.cli.verbs import LIBRARY_VERBS
from bothways.tasks import TASKS

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "bothways"
# The stair: a door imports, at run time and in types, only doors above it in this list. The applications stand at its
# end, and the library never imports them.
LIBRARY = (
    "base",
    "pretrained",
    "core",
    "settings",
    "text",
    "model",
    "measure",
    "tasks",
    "inference",
    "training",
    "evaluation",
    "shrink",
    "cli",
    "api",
)
APPLICATIONS = ("search", "serving", "scale")
# Rooms of a door, in their order: a room imports only rooms above it, its `__init__` included.
INSIDE = {
    "text": ("text/tokenizer", "text", "text/rows", "text/data", "text/retrieval", "text/corpus"),
    "model": (
        "model/config",
        "model",
        "model/families",
        "model/linear",
        "model/checkpoint",
        "model/adapters",
        "model/transforms",
    ),
    "measure": ("measure/metrics", "measure", "measure/report"),
    "tasks": (
        "tasks",
        "tasks/fill",
        "tasks/is_next",
        "tasks/tag",
        "tasks/answer",
        "tasks/embed",
        "tasks/regress",
        "tasks/classify",
        "tasks/decide",
        "tasks/rerank",
    ),
    "inference": ("inference", "inference/jobs"),
    "training": (
        "training",
        "training/pretraining",
        "training/pretraining/distillation",
        "training/finetuning/ground",
        "training/finetuning",
    ),
    "shrink": ("shrink", "shrink/export"),
    "search": ("search/formats", "search/mapping", "search"),
}
DOORS = (*LIBRARY, *APPLICATIONS)
ROOMS = tuple(room for door in DOORS for room in INSIDE.get(door, (door,)))
LAZY = {"__init__", "__main__"}  # the package itself, which loads its public names on first use
LARGEST_ROOM = 27


def modules() -> dict[str, Path]:
    """The files of the package by their path below it, without .py."""
    return {path.relative_to(PACKAGE).with_suffix("").as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def parse(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def room(name: str) -> str:
    """The deepest room that has a file."""
    inside = [one for one in ROOMS if name == one or name.startswith(f"{one}/")]
    return max(inside, key=len, default=name.split("/")[0])


def door(name: str) -> str:
    return name.split("/")[0]


def test_every_file_is_in_a_room():
    assert {room(name) for name in modules()} - LAZY == set(ROOMS)
    sizes = Counter(room(name) for name in modules() if "/" in name and not name.endswith("__init__"))
    assert max(sizes.values()) <= LARGEST_ROOM, sizes


def test_the_top_level_has_at_most_ten_files():
    assert len([*PACKAGE.glob("*.py")]) <= 10


def test_no_two_classes_have_the_same_name():
    names = Counter(
        node.name for path in PACKAGE.rglob("*.py") for node in parse(path).body if isinstance(node, ast.ClassDef)
    )
    assert {name for name, count in names.items() if count > 1} <= {"Answer", "Embed", "Predict"}  # settings too


def test_a_door_knows_only_doors_below_it_on_the_stair():
    """In types, too."""
    wrong = [
        f"{name} imports {imported}"
        for name, path in modules().items()
        if name not in LAZY
        for imported in imports_of(path, types=True)
        if DOORS.index(door(imported)) > DOORS.index(door(name))
    ]
    assert not wrong


def test_the_library_imports_no_application():
    wrong = [
        f"{name} imports {imported}"
        for name, path in modules().items()
        if name not in LAZY and door(name) in LIBRARY
        for imported in imports_of(path, types=True)
        if door(imported) in APPLICATIONS
    ]
    assert not wrong


def test_a_room_imports_only_rooms_above_it():
    wrong = [
        f"{name} imports {imported}"
        for name, path in modules().items()
        if name not in LAZY
        for imported in imports_of(path)
        if ROOMS.index(room(imported)) > ROOMS.index(room(name))
    ]
    assert not wrong


def test_no_files_import_each_other_in_a_circle():
    graph = {name: imports_of(path) - {name} for name, path in modules().items() if name not in LAZY}
    assert [*TopologicalSorter(graph).static_order()]  # CycleError names the circle


def test_the_page_of_the_architecture_shows_which_door_uses_which():
    page = (ROOT / "docs/ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)/` .*\| (.*) \|$", page, re.M)
    shown = {name: set(re.findall(r"`(\w+)`", uses)) for name, uses in rows}
    doors = {door(name) for name in modules() if "/" in name} - {"pretrained"}
    used = {name: set[str]() for name in doors}
    for name, path in modules().items():
        if door(name) in doors:
            used[door(name)] |= {door(imported) for imported in imports_of(path)} & doors - {door(name)}
    assert [*shown] == [name for name in DOORS if name in doors]
    assert shown == used


def test_only_the_room_of_the_tasks_lists_them():
    """Elsewhere no dictionary, list, tuple, set, Literal, enum or match names three of them; but verbs may be called
    like tasks."""
    containers = (ast.Dict, ast.List, ast.Tuple, ast.Set, ast.Match, ast.ClassDef)
    listed = []
    for name, path in modules().items():
        tasks = {*TASKS} - ({*LIBRARY_VERBS} if name == "cli/verbs" else set())
        for node in ast.walk(parse(path)) if door(name) != "tasks" else ():
            if isinstance(node, ast.ClassDef) and not any("Enum" in ast.unparse(base) for base in node.bases):
                continue
            texts = (inner.value for inner in ast.walk(node) if isinstance(inner, ast.Constant))
            if isinstance(node, containers) and len(tasks & {text for text in texts if isinstance(text, str)}) > 2:
                listed.append(f"{name}:{node.lineno}")
    assert not listed


def test_the_page_of_files_shows_every_file(reading):
    """`python tests/test_architecture.py` writes it."""
    assert tree(reading) in (ROOT / "docs/files.md").read_text(encoding="utf-8")


def test_the_reading_lists_name_every_file_that_runs(reading):
    """In the order of the first call, with lines of code, which have no limit."""
    assert set(reading) == {"text to loss", "text to label"}
    assert {"text/tokenizer/wordpiece", "model/attention", "model/losses"} <= {*reading["text to loss"]}
    assert {"inference/load", "model/attention", "tasks/class_decoding"} <= {*reading["text to label"]}
    assert reading_lists(reading) in (ROOT / "docs/ARCHITECTURE.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def reading():
    return measure_reading()


def measure_reading() -> dict[str, list[str]]:
    """The files that run, by path (tests/reading.py)."""
    settings = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(ROOT / "tests/reading.py")]
    return json.loads(subprocess.run(command, env=os.environ | settings, check=True, capture_output=True).stdout)


def reading_lists(reading: dict[str, list[str]]) -> str:
    """The lists as Markdown: room by room in the order of the first call, with lines of code."""
    text = ""
    for name, files in reading.items():
        lines = {file: code_lines(PACKAGE / f"{file}.py") for file in files}
        steps = ", ".join(f"{file}\N{NO-BREAK SPACE}{count}" for file, count in lines.items())
        wrapped = textwrap.fill(steps, 100, break_long_words=False, break_on_hyphens=False)
        body = wrapped.replace("\N{NO-BREAK SPACE}", " ")
        head = f"**From {name}**: {len(files)} files, {sum(lines.values()):,} lines of code"
        text += f"{head}\n\n```text\n{body}\n```\n\n"
    return text


def tree(reading: dict[str, list[str]]) -> str:
    """Every file with the first sentence of its docstring, room by room; ● marks those of the reading lists."""
    read = {file for files in reading.values() for file in files}

    def mark(name: str) -> str:
        return "● " if name in read else "  "

    lines = ["```"]
    for name in ROOMS:
        inside = {key: path for key, path in modules().items() if room(key) == name}
        head = inside.pop(name, None) or inside.pop(f"{name}/__init__")
        lines.append(f"{name + ('/' if inside else '.py'):28}{mark(name)}{summary(head)}")
        files = {key.removesuffix("/__init__").removeprefix(f"{name}/"): (key, path) for key, path in inside.items()}
        for short, (key, path) in sorted(files.items()):
            shown = short + ("/" if key.endswith("__init__") else ".py")
            lines.append(f"    {shown:24}{mark(key)}{summary(path)}")
    return "\n".join([*lines, "```"]) + "\n"


def summary(file: Path) -> str:
    """The first paragraph of a file's docstring, up to the end of its first sentence."""
    text = ast.get_docstring(parse(file)) or ""
    return re.split(r"(?<=[.!?]) ", " ".join(text.split("\n\n")[0].split()))[0].rstrip(".")


@cache
def imports_of(file: Path, *, types: bool = False) -> set[str]:
    """The package's own modules that a file imports, wherever it does. types: also those for type checking."""
    tree = parse(file)
    skipped = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if node in skipped and not types:
            continue
        names = []
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "bothways":
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            files = [name for name in inner if any(map(Path.exists, file_or_room(name)))]
            names = files if len(files) == len(inner) else [node.module, *files]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.split(".")[0] == "bothways"]
        for name in names:
            found |= {
                path.relative_to(PACKAGE).with_suffix("").as_posix() for path in file_or_room(name) if path.exists()
            }
    return found - LAZY


def file_or_room(name: str) -> tuple[Path, Path]:
    path = ROOT / name.replace(".", "/")
    return path.with_suffix(".py"), path / "__init__.py"


def test_the_check_of_imports_sees_them():
    assert "text/tokenizer/basic" in imports_of(PACKAGE / "text" / "tokenizer" / "fast.py")
    assert "text/tokenizer/learn" in imports_of(PACKAGE / "text" / "tokenizer" / "tokenizer.py")  # inside a function
    assert "measure/metrics/__init__" in imports_of(PACKAGE / "training" / "finetuning" / "seeds.py")


def test_no_family_has_widened_a_layers_signature():
    """Every layer of every family is layer(x, context, rows); what all layers share travels in the context."""
    import bothways.model.disentangled  # noqa: F401  # a family imports its layers when it is used
    from bothways.model.attention import Context
    from bothways.model.encoder import Encoder
    from bothways.model.layer import Layer

    def taken(function):
        return [*inspect.signature(function).parameters][1:]

    kinds = [Layer, *Layer.__subclasses__()]
    assert len(kinds) > 1 and all(taken(kind.forward) == ["x_TH", "context", "rows_R"] for kind in kinds)
    assert all(taken(kind.forward) == ["batch", "context", "rows_R"] for kind in (Encoder, *Encoder.__subclasses__()))
    assert [field.name for field in dataclasses.fields(Context)] == ["layout", "positions"]


def code_lines(file: Path) -> int:
    """Lines that hold code: blank lines, comments and docstrings do not count."""
    source = file.read_text(encoding="utf-8")
    docstrings = set()
    for node in ast.walk(parse(file)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
            docstrings.update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    ignored = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in ignored:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)


def test_only_families_contain_parameter_names_of_other_libraries():
    for file in PACKAGE.rglob("*.py"):
        if "families" not in file.parts:
            assert "attention.self" not in file.read_text(encoding="utf-8"), file


def test_settings_config_and_tokenizer_import_no_torch():
    for name in (
        "model/config.py",
        "settings/__init__.py",
        *(f"text/tokenizer/{path.name}" for path in (PACKAGE / "text" / "tokenizer").glob("*.py")),
    ):
        assert not re.search(r"^\s*(import|from) torch", (PACKAGE / name).read_text(encoding="utf-8"), re.MULTILINE), (
            name
        )


def rewrite(page: Path, name: str, content: str) -> None:
    """Replace what is between the comments `name` and `end of name` of a page."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    text = page.read_text(encoding="utf-8")
    page.write_text(f"{text.split(begin)[0]}{begin}{content}{end}{text.split(end)[1]}", encoding="utf-8")


if __name__ == "__main__":
    measured = measure_reading()
    rewrite(ROOT / "docs/files.md", "files", tree(measured))
    rewrite(ROOT / "docs/ARCHITECTURE.md", "reading lists", reading_lists(measured))
