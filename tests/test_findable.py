"""Each feature is found by its usual name: in a file name or in the first line of its docstring."""

import ast
import re

import pytest

from tests.test_architecture import PACKAGE, ROOT, modules, parse, summary

# A word that people look for, and the part of it to search for.
WORDS = {
    "learning rate": "learning rate", "warmup": "warmup", "gradient accumulation": "gradient accumulation",
    "attention mask": "attention mask", "padding": "padding", "positional": "position", "distributed": "distributed",
    "checkpoint": "checkpoint", "resume": "resume", "tokenizer": "tokenizer", "vocabulary": "vocabulary", "F1": "f1",
    "SQuAD": "squad", "NER": "ner)", "pooling": "pooling", "quantization": "quantiz", "ONNX": "onnx",
    "schedule": "schedule", "logging": "logging",
}  # fmt: skip


@pytest.fixture(scope="module")
def lines():
    return [f"{name} {summary(path)}".lower() for name, path in modules().items()]


@pytest.mark.parametrize("word", WORDS)
def test_a_file_is_found_by_the_usual_word(word, lines):
    assert any(WORDS[word] in line for line in lines)


def names_of(node, prefix=""):
    """The functions, classes, their methods, and the constants of a module."""
    for inner in node.body:
        if isinstance(inner, (ast.ClassDef, ast.FunctionDef)):
            yield prefix + inner.name
        if isinstance(inner, ast.ClassDef):
            yield from names_of(inner, f"{inner.name}.")
        if isinstance(inner, (ast.Assign, ast.AnnAssign)):
            targets = inner.targets if isinstance(inner, ast.Assign) else [inner.target]
            yield from (prefix + target.id for target in targets if isinstance(target, ast.Name))


def test_the_table_of_searches_names_what_is_in_the_files():
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([\w ]+) \| .+ \| (`[\w/]+\.py`.*) \| (`.+`) \|$", page, re.M)
    assert len(rows) == 10
    for search, files, names in rows:
        named = {*re.findall(r"`([^`]+)`", names)}
        held = [named & {*names_of(parse(PACKAGE / file))} for file in re.findall(r"`([^`]+)`", files)]
        assert all(held) and set[str]().union(*held) == named, search
