"""The examples in the docstrings of search give the results that they show."""

import doctest

import pytest

from bothways.search import filters, folder, indexing, store
from bothways.search.formats import html_pages

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


@pytest.mark.usefixtures("in_folder")
def test_the_examples_of_docstrings_are_right():
    for module in (filters, html_pages, folder, indexing, store):  # the store is searched after it was made
        results = doctest.testmod(module)
        assert results.attempted
        assert not results.failed, module.__name__
