"""Rules of the architecture: import order, size of the core, and the generated list of files."""

import ast
import dataclasses
import inspect
import io
import re
import tokenize
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "bothways"
CORE_LINES = 1200
# A room imports only rooms above it, its `__init__` included.
ROOMS = (
    "errors", "pretrained", "io", "log", "rng", "inputs", "tables_in_memory", "settings", "device", "attention_config",
    "config", "sizes",
    "tokenizer", "batch", "batching", "data", "metrics", "corpus", "model", "families", "linear", "checkpoint",
    "inference", "report", "training", "pretraining", "distillation", "evaluation", "finetuning", "verbs",
    "compression", "export", "bench", "batch_jobs", "cli",
)  # fmt: skip
LAZY = {"__init__", "__main__"}  # the package itself, which loads its public names on first use
LARGEST_ROOM = 27
# What to read to understand how BERT goes from text to loss and prediction, in this order.
CORE = (
    "config", "tokenizer/basic", "tokenizer/wordpiece", "tokenizer/tokenizer", "batch", "model/layout",
    "model/embeddings", "model/attention", "model/layer", "model/encoder", "model/heads", "model/model",
    "corpus/sentence_pairs", "corpus/masking", "training/losses", "training/optimizer", "training/loop",
    "pretraining/objective", "pretraining/pretrain",
)  # fmt: skip


def modules() -> dict[str, Path]:
    """The files of the package by their path below it, without .py."""
    return {path.relative_to(PACKAGE).with_suffix("").as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}


def room(name: str) -> str:
    return name.split("/")[0]


def test_every_file_is_in_a_room():
    assert {room(name) for name in modules()} - LAZY == set(ROOMS)
    sizes = Counter(room(name) for name in modules() if "/" in name and not name.endswith("__init__"))
    assert max(sizes.values()) <= LARGEST_ROOM, sizes


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


def test_the_architecture_page_shows_every_file():
    """`python tests/test_architecture.py` writes it."""
    assert tree() in (ROOT / "docs/ARCHITECTURE.md").read_text(encoding="utf-8")


def tree() -> str:
    """Every file with the first sentence of its docstring, room by room."""
    lines = ["```"]
    for name in ROOMS:
        inside = {key: path for key, path in modules().items() if room(key) == name}
        head = inside.pop(name, None) or inside.pop(f"{name}/__init__")
        lines.append(f"{name + ('/' if inside else '.py'):28}{mark(name)}{summary(head)}")
        files = {key.removesuffix("/__init__").partition("/")[2]: (key, path) for key, path in inside.items()}
        for short, (key, path) in sorted(files.items()):
            shown = short + ("/" if key.endswith("__init__") else ".py")
            lines.append(f"    {shown:24}{mark(key)}{summary(path)}")
    return "\n".join([*lines, "```"]) + "\n"


def mark(name: str) -> str:
    return "● " if name in CORE else "  "


def summary(file: Path) -> str:
    """The first paragraph of a file's docstring, up to the end of its first sentence."""
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return re.split(r"(?<=[.!?]) ", " ".join(text.split("\n\n")[0].split()))[0].rstrip(".")


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
    assert "tokenizer/basic" in imports_of(PACKAGE / "tokenizer" / "fast.py")
    assert "tokenizer/learn" in imports_of(PACKAGE / "tokenizer" / "tokenizer.py")  # inside a function
    assert "metrics/__init__" in imports_of(PACKAGE / "finetuning" / "finetune.py")


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
    sizes = {name: code_lines(PACKAGE / f"{name}.py") for name in CORE}
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


def test_only_families_contain_parameter_names_of_other_libraries():
    for file in PACKAGE.rglob("*.py"):
        if "families" not in file.parts:
            assert "attention.self" not in file.read_text(encoding="utf-8"), file


def test_settings_config_and_tokenizer_import_no_torch():
    for name in (
        "config.py",
        "settings/__init__.py",
        *(f"tokenizer/{path.name}" for path in (PACKAGE / "tokenizer").glob("*.py")),
    ):
        assert not re.search(r"^\s*(import|from) torch", (PACKAGE / name).read_text(encoding="utf-8"), re.MULTILINE), (
            name
        )


if __name__ == "__main__":
    page = ROOT / "docs/ARCHITECTURE.md"
    text = page.read_text(encoding="utf-8")
    before, after = text.split("<!-- files -->\n")[0], text.split("<!-- end of files -->\n")[1]
    page.write_text(f"{before}<!-- files -->\n{tree()}<!-- end of files -->\n{after}", encoding="utf-8")
