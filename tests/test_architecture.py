"""The house keeps its promises: imports go one way, the core stays small, and the README shows the house as it is."""

import ast
import dataclasses
import inspect
import io
import re
import tokenize
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "bothways"
CORE_LINES = 1200
TREE = re.search(r"```\nbothways/\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)


def house() -> list[tuple[str, bool]]:
    """(path below bothways/, whether it is core) in the README's order, which is the order of imports."""
    assert TREE, "the README has a tree that begins with bothways/"
    folder, found = "", []
    for line in TREE[1].splitlines():
        name, core = line.split()[0], "●" in line
        if name.endswith("/"):
            folder = name
        else:
            found.append(((folder if line.startswith("    ") else "") + name, core))
    return found


def test_the_readme_shows_every_file_and_no_other():
    files = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if path.name != "__init__.py"}
    data = {"sample/novels.jsonl.xz", "__init__.py"}
    assert {name for name, _ in house()} - data == files


def test_a_file_imports_only_files_that_stand_above_it():
    order = [name for name, _ in house()]
    wrong = []
    for place, name in enumerate(order):
        if not name.endswith(".py") or name == "__init__.py":
            continue
        for imported in imports_of(PACKAGE / name):
            if imported not in order[:place]:
                wrong.append(f"{name} imports {imported}")
    assert not wrong


def imports_of(file: Path) -> set[str]:
    """The package's own modules a file imports, wherever it does (type checking aside)."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    skipped = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if node in skipped:
            continue
        names = []
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "bothways":
            names = [node.module] + [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.split(".")[0] == "bothways"]
        for name in names:
            path = "/".join(name.split(".")[1:])
            if (PACKAGE / f"{path}.py").is_file():
                found.add(f"{path}.py")
    return found


def test_the_check_of_imports_sees_them():
    assert "tokenizer/text.py" in imports_of(PACKAGE / "tokenizer" / "reading.py")
    assert "tokenizer/learn.py" in imports_of(PACKAGE / "tokenizer" / "tokenizer.py")  # inside a function


def test_no_family_has_widened_a_layers_signature():
    """Every layer of every family is layer(x, context); what all layers share travels in the context."""
    from bothways.model.attention import Context
    from bothways.model.encoder import Encoder
    from bothways.model.layer import Layer

    def taken(function):
        return [*inspect.signature(function).parameters][1:]

    kinds = [Layer, *Layer.__subclasses__()]
    assert len(kinds) > 1 and all(taken(kind.forward) == ["x_TH", "context"] for kind in kinds)
    assert all(taken(kind.forward) == ["batch", "context"] for kind in (Encoder, *Encoder.__subclasses__()))
    assert [field.name for field in dataclasses.fields(Context)] == ["layout", "positions"]


def test_the_core_can_be_read_in_an_hour():
    sizes = {name: code_lines(PACKAGE / name) for name, core in house() if core}
    assert len(sizes) > 12
    assert sum(sizes.values()) < CORE_LINES, sizes


def code_lines(file: Path) -> int:
    """Lines that hold code: blank lines, comments and docstrings do not count."""
    source = file.read_text(encoding="utf-8")
    docstrings = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
            docstrings.update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    ignored = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in ignored:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)


def test_only_variants_know_the_names_of_other_libraries_parameters():
    for file in PACKAGE.rglob("*.py"):
        if "variants" not in file.parts:
            assert "attention.self" not in file.read_text(encoding="utf-8"), file


def test_settings_config_and_tokenizer_import_no_torch():
    for name in (
        "config.py",
        "settings.py",
        *(f"tokenizer/{path.name}" for path in (PACKAGE / "tokenizer").glob("*.py")),
    ):
        assert not re.search(r"^\s*(import|from) torch", (PACKAGE / name).read_text(encoding="utf-8"), re.MULTILINE), (
            name
        )
