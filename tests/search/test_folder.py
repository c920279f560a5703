"""The files of a folder: ignore files, links, hidden and binary files, globs."""

import os

import pytest

from bothways.search.folder import find_documents
from bothways.search.globs import matches


def names(folder, **options) -> list[str]:
    return [found.relative for found in find_documents(folder, **options)]


def make(folder, *paths: str) -> None:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("text")


def test_text_files_in_order(tmp_path):
    make(
        tmp_path,
        "b.txt",
        "a/c.md",
        "a/.hidden.md",
        ".git/config",
        "photo.JPG",
        "notes.txt.gz",
        "archive.gz",
        "Makefile",
    )
    assert names(tmp_path) == ["Makefile", "a/c.md", "b.txt", "notes.txt.gz"]
    (found,) = find_documents(tmp_path / "b.txt")
    assert (found.relative, found.size, found.path) == ("", 4, (tmp_path / "b.txt").resolve())


def test_ignore_files(tmp_path):
    make(tmp_path, "build/x.txt", "a.log", "sub/a.log", "sub/keep.log", "sub/deep/drop.txt", "sub/deep/other.txt")
    (tmp_path / ".gitignore").write_text("/build/\n*.log\n")
    (tmp_path / "sub/.gitignore").write_text("!keep.log\ndeep/drop.txt\n")
    assert names(tmp_path) == ["sub/deep/other.txt", "sub/keep.log"]


def test_links(tmp_path):
    make(tmp_path, "outside/secret.txt", "in/a.txt", "in/real/b.txt")
    root = tmp_path / "in"
    os.symlink(tmp_path / "outside", root / "out")
    os.symlink(tmp_path / "outside/secret.txt", root / "secret.txt")
    os.symlink(root, root / "real/loop")
    os.symlink(root / "real", root / "z-again")
    os.symlink(root / "missing", root / "broken.txt")
    assert names(root) == ["a.txt", "real/b.txt"]


def test_the_index_is_no_document(tmp_path):
    make(tmp_path, "a.txt", "index/notes.txt")
    assert names(tmp_path, skip=tmp_path / "index") == ["a.txt"]


@pytest.mark.parametrize(
    ("globs", "found"),
    [
        (["*.md"], ["docs/a.md", "docs/deep/b.md"]),
        (["docs/*.md"], ["docs/a.md"]),
        (["docs/**"], ["docs/a.md", "docs/deep/b.md", "docs/c.txt"]),
        (["**/b.*"], ["docs/deep/b.md"]),
        (["!docs/deep/**"], ["docs/a.md", "docs/c.txt", "d.txt"]),
        (["*.md", "!a.*"], ["docs/deep/b.md"]),
        (["[a-c].md"], ["docs/a.md", "docs/deep/b.md"]),
        (["?.txt"], ["docs/c.txt", "d.txt"]),
        (["[!a].md"], ["docs/deep/b.md"]),
    ],
)
def test_globs(globs, found):
    assert [name for name in ("docs/a.md", "docs/deep/b.md", "docs/c.txt", "d.txt") if matches(name, globs)] == found
