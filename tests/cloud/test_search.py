"""Folders in object storage are indexed, searched and extracted from as local ones."""

import tempfile

import pytest

from bothways.base.errors import MissingFile
from bothways.base.paths import as_path
from bothways.cli.main import main
from bothways.search.commands import run_index, run_search
from bothways.search.folder import find_documents
from bothways.search.store import Store
from bothways.settings import Index, Search
from tests.cloud.conftest import at_random

FILES = {
    "guide/cats.md": "# Cats\n\nCats purr when they are content.\n",
    "guide/dogs.html": "<title>Dogs</title><p>Dogs bark at strangers.</p>",
    "rows.csv": 'text,year\n"Birds sing at dawn, loudly.",2001\n',
    "notes.txt": "Fish swim in shoals.\n",
    ".hidden/secret.txt": "Nobody reads this.",
    "image.png": "no document",
}


@pytest.fixture
def folders(bucket, tmp_path):
    for name, text in FILES.items():
        (tmp_path / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "docs" / name).write_text(text)
        (as_path(bucket) / "docs" / name).put(text.encode())
    return tmp_path / "docs", as_path(f"{bucket}/docs")


def indexed(folder, out, **options):
    return run_index(Index(folders=(folder,), out=out, encoder=False, **options))


def test_the_same_documents_are_found(folders):
    _, remote = folders
    for options in ({}, {"glob": ["*.md", "*.txt"]}, {"glob": ["!guide/"]}, {"hidden": True}):
        found = [[one.relative for one in find_documents([place], **options)] for place in folders]
        assert found[0] == found[1] and found[0], options
    assert [one.path for one in find_documents([remote, remote / "guide"])] == [
        remote / name for name in ("guide/cats.md", "guide/dogs.html", "notes.txt", "rows.csv")
    ]
    assert [one.path for one in find_documents([remote / "notes.txt"])] == [remote / "notes.txt"]
    with pytest.raises(MissingFile, match=f"^{remote}/none: no such file or folder"):
        [*find_documents([remote / "none"])]


def test_an_index_of_object_storage_finds_what_that_of_files_does(folders, tmp_path, proxy):
    local, remote = folders
    proxy.plan = at_random(4, ["500", "cut", "reset"], 0.1)
    results = [indexed(place, tmp_path / f"index{number}") for number, place in enumerate(folders)]
    proxy.plan = lambda method, path: ""
    assert [(one.new, one.files, one.passages, one.skipped) for one in results] == [(4, 4, 4, {})] * 2
    for query in ("purring cats", "dogs that bark", "birds", "fish"):
        hits = [
            run_search(Search(query=query, path=tmp_path / f"index{number}")).hits for number in range(len(folders))
        ]
        shown = [
            [(hit.path.relative_to(place).as_posix(), hit.text, hit.score, hit.line, hit.metadata) for hit in found]
            for place, found in zip(folders, hits, strict=True)
        ]
        assert shown[0] == shown[1] and shown[0]
    assert str(hits[1][0].path) == f"{remote}/notes.txt"
    (remote / "notes.txt").put(b"Whales sing below the ice.")
    (remote / "guide/dogs.html").unlink()
    again = indexed(remote, tmp_path / "index1")
    assert (again.new, again.changed, again.deleted, again.unchanged) == (0, 1, 1, 2)
    with Store(tmp_path / "index1") as store:
        assert not [hit for hit in store.search("fish", how="words") if "Fish" in hit.text]
    assert run_search(Search(query="whales", path=remote)).hits[0].path == remote / "notes.txt"
    forgotten = run_index(Index(folders=(local,), out=tmp_path / "index1", encoder=False, remove=(str(remote),)))
    assert forgotten.files == 4


def test_an_object_that_cannot_be_read_is_named_by_its_url(folders, tmp_path, monkeypatch):
    # A place of its own for temporary copies: other processes come and go in the one all share.
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))

    _, remote = folders
    (remote / "bad.txt").put(b"\xff\xfe\xff")
    (remote / "bad.parquet").put(b"no parquet")
    skipped = indexed(remote, tmp_path / "index").skipped
    assert sorted(skipped) == [f"{remote}/bad.parquet", f"{remote}/bad.txt"]
    assert all(reason.startswith(name) for name, reason in skipped.items())
    assert not [*temporary.rglob("bad.*")]


def test_the_command_prints_the_name_of_a_missing_folder(bucket, capsys, tmp_path):
    with pytest.raises(SystemExit, match="1"):
        main(["index", f"{bucket}/none", "-o", str(tmp_path / "index")])
    assert f"{bucket}/none: no such file or folder" in capsys.readouterr().err
