"""Documents in folders: order, what is skipped and why, links, patterns."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from bothways.base.errors import InputError, MissingFile
from bothways.search.folder import find_documents


def make(root, *names, **content_by_name):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("text", encoding="utf-8")
    return root


def found(*roots, **options):
    return [file.relative for file in find_documents(roots, **options)]


def ignore(folder, *lines):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".gitignore").write_text("\n".join(lines), encoding="utf-8")


def test_documents_are_sorted_and_described(tmp_path):
    make(tmp_path, "b/x.md", "b.txt", "a/z.pdf", "a/b/c.csv", "B.md")
    files = [*find_documents([tmp_path])]
    assert [file.relative for file in files] == ["B.md", "a/b/c.csv", "a/z.pdf", "b/x.md", "b.txt"]
    status = (tmp_path / "b.txt").stat()
    assert (files[-1].path, files[-1].size, files[-1].modified_ns) == (tmp_path / "b.txt", 4, status.st_mtime_ns)


def test_what_is_skipped_is_counted_by_reason(tmp_path):
    make(tmp_path, "a.md", ".hidden.md", ".cache/a.md", ".git/a.md", "b.exe", "c.exe", "d.tar.gz", "core", "no.md")
    ignore(tmp_path, "no.md")
    os.mkfifo(tmp_path / "pipe.txt")
    skipped = Counter()
    assert found(tmp_path, skipped=skipped) == ["a.md"]
    assert skipped == {
        "hidden": 4,
        "named in .gitignore": 1,
        "not a regular file": 1,
        "of type .exe": 2,
        "of type .tar.gz": 1,
        "without a type": 1,
    }
    assert found(tmp_path, hidden=True) == [".cache/a.md", ".hidden.md", "a.md"]


def test_a_file_that_is_named_is_found_whatever_its_name(tmp_path):
    make(tmp_path, ".odd.xyz", "a.md")
    assert found(tmp_path / ".odd.xyz", tmp_path, tmp_path / "a.md") == [".odd.xyz", "a.md"]
    with pytest.raises(MissingFile):
        found(tmp_path / "none")


def test_nested_gitignore_files_and_negations_are_honoured(tmp_path):
    make(tmp_path, "a.log", "keep.log", "sub/b.log", "sub/c.txt", "sub/deep/c.txt", "build/x.md", "sub/build/y.md")
    ignore(tmp_path, "*.log", "!keep.log", "/build/", "[")
    ignore(tmp_path / "sub", "!b.log", "/c.txt")
    assert found(tmp_path) == ["keep.log", "sub/b.log", "sub/build/y.md", "sub/deep/c.txt"]


def test_gitignore_files_above_the_root_count_within_a_repository(tmp_path):
    make(tmp_path, "repository/docs/a.md", "repository/docs/b.md")
    ignore(tmp_path, "a.md")
    ignore(tmp_path / "repository", "/docs/b.md")
    root = tmp_path / "repository" / "docs"
    assert found(root) == ["a.md", "b.md"]
    (tmp_path / "repository" / ".git").mkdir()
    assert found(root) == ["a.md"]


def test_a_relative_root_within_a_repository(tmp_path, monkeypatch):
    make(tmp_path, ".git/config", "docs/a.md", "docs/b.md")
    ignore(tmp_path, "/docs/b.md")
    monkeypatch.chdir(tmp_path)
    assert found(Path("docs")) == ["a.md"]
    assert [str(file.path) for file in find_documents([Path("docs")])] == ["docs/a.md"]


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        (["*.md"], ["a.md", "docs/c.md", "docs/drafts/d.md"]),
        (["docs/**"], ["docs/c.md", "docs/drafts/d.md", "docs/e.txt"]),
        (["!drafts/"], ["a.md", "b.txt", "docs/c.md", "docs/e.txt"]),
        (["*.md", "!docs/drafts/**"], ["a.md", "docs/c.md"]),
        (["!*.md"], ["b.txt", "docs/e.txt"]),
        (["/*.txt"], ["b.txt"]),
        (["*.{none}"], []),
    ],
)
def test_patterns_choose_files(tmp_path, glob, expected):
    make(tmp_path, "a.md", "b.txt", "docs/c.md", "docs/drafts/d.md", "docs/e.txt")
    assert found(tmp_path, glob=glob) == expected


def test_a_pattern_that_is_none_is_refused(tmp_path):
    with pytest.raises(InputError, match="glob"):
        found(tmp_path, glob=["!"])


def test_links_within_the_roots_are_followed_once_and_others_not(tmp_path):
    make(tmp_path, "root/a.md", "root/.hidden/b.md", "outside/c.md", "outside/folder/d.md", "root-2/e.md")
    root = tmp_path / "root"
    for name, target in {
        "0-same.md": "a.md",
        "1-hidden.md": ".hidden/b.md",
        "loop": ".",
        "broken.md": "none.md",
        "self": "self",
        "out.md": "../outside/c.md",
        "out": "../outside/folder",
        "near.md": "../root-2/e.md",
    }.items():
        (root / name).symlink_to(target)
    skipped = Counter()
    assert found(root, skipped=skipped) == ["1-hidden.md", "a.md"]
    assert skipped == {"hidden": 1, "link that leads out of the folders": 3, "broken link": 2}
    assert found(root, tmp_path / "outside") == ["1-hidden.md", "a.md", "c.md", "folder/d.md"]


def test_a_root_may_be_a_link(tmp_path):
    make(tmp_path, "root/a.md")
    (tmp_path / "link").symlink_to("root")
    assert found(tmp_path / "link") == found(tmp_path / "link", tmp_path / "root") == ["a.md"]


def test_files_are_found_without_loading_a_library(tmp_path):
    make(tmp_path, "a.md")
    code = "import sys; from pathlib import Path; from bothways.search.folder import find_documents; "
    code += f"print(len([*find_documents([Path({str(tmp_path)!r})])]), *sys.modules)"
    number, *loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split()
    assert number == "1" and not {"torch", "numpy", "pyarrow"} & {*loaded}


def test_a_folder_that_is_named_is_read_although_it_is_ignored_above(tmp_path):
    make(tmp_path, "build/docs/a.md", "build/docs/b.log", "build/docs/c.md", "other/d.md")
    (tmp_path / ".git").mkdir()
    ignore(tmp_path, "build/", "*.log", "b*")
    ignore(tmp_path / "build" / "docs", "c.md")
    assert found(tmp_path) == ["other/d.md"]
    assert found(tmp_path / "build" / "docs") == ["a.md"]
    ignore(tmp_path, "/build", "*.log")
    assert found(tmp_path / "build") == ["docs/a.md"]


def test_a_message_about_a_folder_without_a_document_says_what_was_left_out(tmp_path, caplog):
    make(tmp_path, "a/one.md", "a/two.md", "a/c.exe", "b/d.md", "c/.hidden.md")
    ignore(tmp_path / "a", "*.md")
    (tmp_path / "empty").mkdir()
    assert found(*(tmp_path / name for name in ("a", "b", "c", "empty", "b"))) == ["d.md"]
    assert [("2 named in .gitignore" in text, "1 hidden" in text) for text in caplog.messages] == [
        (True, True),  # .gitignore itself
        (False, True),
    ]
    assert found(tmp_path / "b", glob=["*.txt"]) == [] and "not chosen by a pattern" in caplog.messages[-1]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_byte_order_mark_does_not_hide_the_first_line_of_gitignore(tmp_path, encoding):
    make(tmp_path, "private.md", "secret.md", "public.md")
    (tmp_path / ".gitignore").write_bytes("private.md\r\nsecret.md\r\n".encode(encoding))
    assert found(tmp_path) == ["public.md"]
