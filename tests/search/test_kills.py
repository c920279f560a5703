"""Killed while indexing: what was committed is there, whole, and the next run ends as if nothing had happened."""

import os
import signal
import subprocess
import sys
from errno import ENOSPC
from pathlib import Path

import pytest

from bothways.base.errors import InputError
from bothways.search import indexing, writing
from bothways.search.database import Database
from bothways.search.indexing import index
from bothways.search.store import Store
from tests.search.tables import WORDS, small_static

# Indexes a folder; the process kills itself when a function is called for the n-th time.
CODE = """
import os, signal, sys
from pathlib import Path
from bothways.search import database, indexing, spaces, writing
from tests.search.tables import small_static

folder, store, name, number = sys.argv[1:]
owner, attribute = {{"append": (writing, "append_vectors"), "batch": (database.Database, "add_batch"),
    "merge": (database.Database, "_merge"), "changed": (writing.StoreWriter, "_changed"),
    "digest": (indexing, "file_digest")}}[name]
original, calls = getattr(owner, attribute), []

def counted(*arguments, **options):
    calls.append(1)
    {before}
    result = original(*arguments, **options)
    {after}
    return result

setattr(owner, attribute, counted)
static = small_static()
indexing.open_vectors = lambda space, model: static
class Encoder:
    model, fingerprint, embed = "encoder", "encoder", lambda self, texts: static.embed(texts)
indexing.EncoderVectors = lambda name, **options: Encoder()
indexing.COMMIT_PASSAGES = 3
indexing.ENCODER_PASSAGES = 4
indexing.index([Path(folder)], Path(store), static_model="small", encoder="encoder")
"""
KILL = "if len(calls) == int(number): os.kill(os.getpid(), signal.SIGKILL)"
ROOT = Path(__file__).parents[2]


def make_files(folder: Path, number: int) -> None:
    folder.mkdir()
    for row in range(number):
        words = [WORDS[(row * 7 + place * place) % len(WORDS)] for place in range(12)]
        (folder / f"{row:02}.md").write_text(
            f"# {words[0]}\n\n{' '.join(words)}\n\n# {words[1]}\n\n{' '.join(words[3:])}"
        )
        os.utime(folder / f"{row:02}.md", (1e9, 1e9))


def run(folder: Path, store: Path, *, name: str = "digest", number: int = 0, at: str = "before") -> int:
    code = CODE.format(**{"before": "", "after": "", at: KILL})
    command = [sys.executable, "-c", code, str(folder), str(store), name, str(number)]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}).returncode


def contents(directory: Path) -> list[tuple]:
    static = small_static()
    with Store(directory) as store:
        hits = []
        for how in ("words",) if store.space() == "encoder" else ("words", "vectors", "hybrid"):
            hits += store.search("late fee of the cat report", how=how, top=500, vectors=lambda space, model: static)
        return sorted((hit.path.name, hit.start, hit.text, hit.heading, round(hit.score, 4)) for hit in hits)


def check_whole(store: Path, folder: Path) -> int:
    """Every file of a store has all of its passages, its words and its vector. Returns the number of files."""
    database = Database(store)
    names = [name for (name,) in database.execute("SELECT path FROM files")]
    for name in names:
        rows = database.execute(
            "SELECT text FROM passages JOIN files ON files.id = file WHERE path = ? ORDER BY slot", (name,)
        ).fetchall()
        assert "\n\n".join(text for (text,) in rows) == (folder / name).read_text()
    slots = database.get("slots", 0)
    assert len(database.lengths()) == slots == database.get("static_rows", 0)
    assert database.get("encoder_rows", 0) <= slots
    database.close()
    return len(names)


# A function, the number of its call, and the side of it on which the process is killed. The others: soak/.
KILLS = [("append", 2, "after"), ("merge", 1, "before")]
OTHER_KILLS = [("batch", 2, "after"), ("changed", 3, "after"), ("append", 8, "after")]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "number", "at"), KILLS)
def test_a_kill_loses_nothing_that_was_committed(tmp_path, name, number, at):
    kill_and_resume(tmp_path, name, number, at)


def kill_and_resume(tmp_path, name, number, at):
    folder, store = tmp_path / "documents", tmp_path / "store"
    make_files(folder, 9)
    assert run(folder, store, name=name, number=number, at=at) == -signal.SIGKILL
    files = check_whole(store, folder)
    assert 0 < files <= 9
    assert run(folder, store) == 0
    assert check_whole(store, folder) == 9
    index([folder], tmp_path / "fresh", static_model="small", encoder="encoder")
    for space in ("static", "encoder"):
        assert (store / f"{space}-0.f32").read_bytes() == (tmp_path / "fresh" / f"{space}-0.f32").read_bytes()
    assert contents(store) == contents(tmp_path / "fresh")


@pytest.fixture(autouse=True)
def small_models(monkeypatch):
    static = small_static()

    class Encoder:
        model = fingerprint = "encoder"
        embed = staticmethod(static.embed)

    monkeypatch.setattr(indexing, "open_vectors", lambda space, model: static)
    monkeypatch.setattr(indexing, "EncoderVectors", lambda name, **options: Encoder())


def test_a_full_disk_leaves_the_store_as_it_was(tmp_path, monkeypatch):
    folder, store = tmp_path / "documents", tmp_path / "store"
    make_files(folder, 5)
    index([folder], store, static_model="small", encoder=None)
    before = contents(store)
    (folder / "new.md").write_text("annual report")

    def full(*arguments):
        raise OSError(ENOSPC, os.strerror(ENOSPC))

    monkeypatch.setattr(writing, "append_vectors", full)
    with pytest.raises(OSError, match="No space"):
        index([folder], store, static_model="small", encoder=None)
    assert contents(store) == before
    monkeypatch.undo()
    assert check_whole(store, folder) == 5


def test_a_database_that_cannot_grow_is_one_line(tmp_path, monkeypatch):
    folder, store = tmp_path / "documents", tmp_path / "store"
    make_files(folder, 5)
    index([folder], store, static_model="small", encoder=None)
    before = contents(store)
    for row in range(40):
        (folder / f"new{row}.md").write_text("annual report " * 500)
    create = Database.__init__

    def limited(self, *arguments, **options):
        create(self, *arguments, **options)
        pages = self.execute("PRAGMA page_count").fetchone()[0]
        self.execute(f"PRAGMA max_page_count = {pages + 2}")

    monkeypatch.setattr(Database, "__init__", limited)
    with pytest.raises(InputError, match="disk is full; free disk space"):
        index([folder], store, static_model="small", encoder=None)
    monkeypatch.setattr(Database, "__init__", create)
    assert contents(store) == before
