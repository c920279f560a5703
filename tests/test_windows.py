"""The base on Windows, simulated: what POSIX alone has is missing in the process, and in those that it starts.

It runs in the environment of tests/test_light.py. tests/simulated_windows.py says what is simulated.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import bothways
from bothways.model.checkpoint.checkpoint import save
from bothways.model.checkpoint.contents import Checkpoint
from tests.test_light import PACKAGE, PYTHON, RUN

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="the simulation reads /proc"),
]
WARNINGS = ("-X", "warn_default_encoding", "-W", "error::EncodingWarning")  # Windows' default is not UTF-8


@pytest.fixture
def windows(tmp_path):
    """Runs code in the simulation, in the folder `work`; its standard output."""
    site = tmp_path / "site"
    site.mkdir()
    shutil.copy(Path(__file__).parent / "simulated_windows.py", site / "sitecustomize.py")
    (tmp_path / "work").mkdir()
    path = os.pathsep.join([str(site), str(PACKAGE.parent)])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "cp1252"}

    def run(code, *arguments):
        assert PYTHON.exists(), f"{PYTHON} is missing: make test makes it"
        command = [PYTHON, *WARNINGS, "-c", code, *arguments]
        done = subprocess.run(command, env=environment, cwd=tmp_path / "work", capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def work(tmp_path, windows, make_model, tokenizer):
    """The folder, with a classifier, a table and documents."""
    root = tmp_path / "work"
    model = make_model("bert", {"classes": 2})
    save(Checkpoint(model=model, tokenizer=tokenizer, labels=("good", "bad")), root / "classifier")
    (root / "rows.csv").write_text("text\nthe cat\na dog\nthe rate\n", encoding="utf-8")
    (root / "documents").mkdir()
    (root / "documents/river.txt").write_text("The river flooded the village in spring.\n", encoding="utf-8")
    (root / "documents/bread.html").write_text("<p>Bread is baked from flour and water.</p>", encoding="utf-8")
    return root


def verbs(windows, *lines):
    """What these command lines print, in one process; each ends well."""
    done = json.loads(windows(RUN, json.dumps([line.split() for line in lines])))
    assert [status for status, _, _ in done] == [0] * len(lines), done
    return [output for _, output, _ in done]


def test_the_simulation_lacks_what_windows_lacks(windows):
    code = (
        "import importlib, os, signal\n"
        "def refused(call, *arguments):\n"
        "    try:\n"
        "        call(*arguments)\n"
        "    except Exception as error:\n"
        "        return type(error).__name__\n"
        "file = open('a.txt', 'w', encoding='utf-8')\n"
        "other = open('b.txt', 'w', encoding='utf-8').close()\n"
        "print([refused(importlib.import_module, name) for name in ('fcntl', 'resource')],\n"
        "      hasattr(os, 'fork'), hasattr(signal, 'SIGHUP'), refused(os.open, '.', os.O_RDONLY),\n"
        "      refused(os.replace, 'a.txt', 'c.txt'), refused(os.replace, 'b.txt', 'a.txt'),\n"
        "      refused(os.unlink, 'a.txt'), refused(os.unlink, 'b.txt'),\n"
        "      refused(os.fsync, os.open('a.txt', os.O_RDONLY)), refused(os.fsync, file))"
    )
    assert windows(code).split() == [
        "['ModuleNotFoundError',", "'ModuleNotFoundError']", "False", "False", "PermissionError",
        "PermissionError", "PermissionError", "PermissionError", "None", "OSError", "None",
    ]  # fmt: skip


def test_models_load_and_compute(windows):
    code = (
        "import bothways, json; model = bothways.load(backend='numpy');"
        "print(json.dumps([model.embed(['the cat', 'a dog']).tolist(), model.fill('the [MASK] barks')[0][0].token]))"
    )
    vectors, word = json.loads(windows(code))
    model = bothways.load(dtype="float32", backend="numpy")
    np.testing.assert_allclose(vectors, model.embed(["the cat", "a dog"]), rtol=0, atol=1e-6)
    assert word == model.fill("the [MASK] barks")[0][0].token


def test_predictions_are_written_in_each_format(windows, work):
    verbs(
        windows,
        "predict classifier rows.csv -o labels.csv",
        "predict classifier rows.csv -o labels.jsonl",
        "embed bothways-en-static rows.csv -o vectors.npy",
    )
    model = bothways.load(work / "classifier", dtype="float32")
    labels = [prediction.label for prediction in model.classify(["the cat", "a dog", "the rate"])]
    for name in ("labels.csv", "labels.jsonl"):
        *_, first, second, third = (work / name).read_text(encoding="utf-8").splitlines()
        assert [label in row for label, row in zip(labels, (first, second, third), strict=True)] == [True] * 3
    assert np.load(work / "vectors.npy").shape == (3, 384)
    assert [path.name for path in work.iterdir() if path.name.startswith(".")] == []


def test_an_output_that_fails_is_taken_away(windows, work):
    """The way of an error that writes nothing: the unfinished files are deleted, and the error is that of the disk."""
    code = (
        "import types\n"
        "from pathlib import Path\n"
        "from bothways.inference.jobs.journal import open_output\n"
        "form = types.SimpleNamespace(head=lambda: b'head')\n"
        "try:\n"
        "    with open_output(Path('labels.csv'), form, {}):\n"
        "        raise ValueError('the first block')\n"
        "except Exception as error:\n"
        "    print(type(error).__name__, error)"
    )
    assert windows(code).strip() == "ValueError the first block"
    assert [path.name for path in work.iterdir() if "labels" in path.name] == []


def test_a_folder_is_indexed_and_searched(windows, work):
    lines = ("index documents -o index --json", "search river documents --json", "search bread documents --json")
    _, *found = verbs(windows, *lines)
    assert [first_file(page) for page in found] == ["river.txt", "bread.html"]

    (work / "documents/river.txt").write_text("The bridge has three arches.\n", encoding="utf-8")
    (work / "documents/bread.html").unlink()
    (found,) = verbs(windows, "search bridge documents --json")
    assert first_file(found) == "river.txt" and len(found.splitlines()) == 1


def first_file(page):
    return Path(json.loads(page.splitlines()[0])["path"]).name


def test_an_index_has_one_writer(windows):
    code = (
        "from pathlib import Path\n"
        "from bothways.search.writing import writer_lock\n"
        "with writer_lock(Path('index')) as first, writer_lock(Path('index')) as second:\n"
        "    print(first, second)\n"
        "with writer_lock(Path('index')) as third:\n"
        "    print(third)"
    )
    assert windows(code).split() == ["True", "False", "True"]


def test_a_file_is_locked_there_too_but_not_shared(windows):
    code = (
        "from bothways.base.file_lock import acquire_lock, locks_are_advisory\n"
        "first = open('lock', 'ab')\n"
        "second = open('lock', 'ab')\n"
        "print(locks_are_advisory(), acquire_lock(first), acquire_lock(second, is_waiting=False))\n"
        "first.close()\n"
        "print(acquire_lock(second))\n"
        "try:\n"
        "    acquire_lock(second, is_shared=True)\n"
        "except OSError as error:\n"
        "    print(error.strerror)"
    )
    assert windows(code).split("\n") == ["False True False", "True", "no shared locks on Windows", ""]


def test_the_help_of_the_command_can_be_printed(windows):
    program = "import sys; sys.argv[0] = 'bothways'; from bothways.cli.main import entry; entry()"
    assert "bothways VERB --help" in windows(program, "--help")
    helps = verbs(windows, "predict --help-all", "search --help-all", "finetune classify --help-all")
    assert all(page.encode("cp1252") for page in helps)
