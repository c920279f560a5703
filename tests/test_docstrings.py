"""The examples in docstrings give the results that they show."""

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import bothways

PACKAGE = Path(bothways.__file__).parent
IN_FOLDER = ("search.filters", "search.formats.html_pages", "search.folder", "search.indexing", "search.store")

FILES = {
    "docs/guide.md": "# Guide\n",
    "docs/search/filters.md": "# Filters\n",
    "docs/drafts/old.md": "# Old\n",
    "docs/notes.txt": "notes\n",
    "documents/invoices.md": "# Invoices\n\nLate fees are five per cent of the sum.\n",
    "documents/travel.md": "# Travel\n\nTrains are booked by the office.\n",
}


@pytest.fixture
def in_folder(tmp_path, monkeypatch):
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.chdir(tmp_path)


def with_examples():
    """The modules with examples, but those that need a folder of files."""
    for file in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(file.relative_to(PACKAGE).with_suffix("").parts)
        if name not in IN_FOLDER and ">>> " in file.read_text(encoding="utf-8"):
            yield name


def check(name):
    results = doctest.testmod(import_module(f"bothways.{name}"))
    assert results.attempted
    assert not results.failed, name


@pytest.mark.parametrize("name", [*with_examples()])
def test_the_examples_of_a_module_are_right(name):
    check(name)


@pytest.mark.usefixtures("in_folder")
def test_the_examples_of_search_are_right():
    for name in IN_FOLDER:  # the store is searched after it was made
        check(name)
