"""Search under kills at random moments: 100 SIGKILLs while folders of real text are indexed.

python -m pytest soak/test_search.py --timeout 3600 -s
"""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from bothways.search.database import Database
from bothways.search.indexing import file_digest
from bothways.search.store import Store

DATA = Path(os.environ.get("BOTHWAYS_DATA", "../shared/data"))
KILLS = 100
CODE = """
import sys
from pathlib import Path
from bothways.search import indexing
indexing.COMMIT_PASSAGES = 64
indexing.index([Path(sys.argv[1])], Path(sys.argv[2]), static_model="bothways-en-static", encoder=None)
"""
QUERIES = ("late fees", "who composed the opera", "the history of the city", "species of birds", "war and peace")


def test_a_hundred_kills(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    folder, store = tmp_path / "documents", tmp_path / "store"
    folder.mkdir()
    rows = pq.read_table(sorted((DATA / "wikipedia-2015-en").glob("train-*.parquet"))[0]).to_pylist()[:1500]
    generator = random.Random(11)
    committed: dict[str, bytes] = {}
    for number in range(KILLS):
        for place in generator.sample(range(len(rows)), 30):  # new and changed files
            path = folder / f"{place:04}.txt"
            path.write_text(rows[place]["text"][: generator.randrange(500, 8000)], encoding="utf-8")
        for path in generator.sample(sorted(folder.iterdir()), 3):
            path.unlink()
        process = subprocess.Popen([sys.executable, "-c", CODE, str(folder), str(store)])
        time.sleep(generator.uniform(0.3, 2.0))
        process.send_signal(signal.SIGKILL)
        process.wait()
        if committed or ((store / "store.db").is_file() and Database(store, create=True).get("slots")):
            committed = check(store, committed)
        print(f"kill {number + 1}: {len(committed)} files", flush=True)
    subprocess.run([sys.executable, "-c", CODE, str(folder), str(store)], check=True)
    subprocess.run([sys.executable, "-c", CODE, str(folder), str(tmp_path / "fresh")], check=True)
    assert found(store) == found(tmp_path / "fresh")


def check(directory: Path, before: dict[str, bytes]) -> dict[str, bytes]:
    """Every file of the store has all of its passages, with their words and vectors, and no file that was committed and
    did not change is missing. Returns the digests of the files."""
    database, folder = Database(directory), directory.parent / "documents"
    slots = database.get("slots", 0)
    assert len(database.lengths()) == slots == database.get("static_rows", 0)
    digests: dict[str, bytes] = dict(database.execute("SELECT path, digest FROM files").fetchall())
    on_disk = {path.name: file_digest(path) for path in folder.iterdir()}
    assert not [name for name, digest in before.items() if on_disk.get(name) == digest != digests.get(name)]
    for name, digest in digests.items():
        if on_disk.get(name) == digest:
            query = "SELECT text FROM passages JOIN files ON files.id = file WHERE path = ? ORDER BY slot"
            texts = [text for (text,) in database.execute(query, (name,))]
            whole = (folder / name).read_text(encoding="utf-8")
            assert "".join("".join(texts).split()) == "".join(whole.split()), name
    database.close()
    return digests


def found(directory: Path) -> list[tuple[str, int, str, float]]:
    with Store(directory) as store:
        return [
            (hit.path.name, hit.start, hit.text, round(hit.score, 4))
            for query in QUERIES
            for hit in sorted(store.search(query, top=20), key=lambda hit: (-round(hit.score, 4), hit.path, hit.start))
        ]
