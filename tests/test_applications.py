"""The library works without the applications: `search`, `serving` and `scale` are deleted from a copy."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import bothways

PACKAGE = Path(bothways.__file__).parent
APPLICATIONS = ("search", "serving", "scale")
ROWS = """text,label
The kettle is hot,kitchen
She washed the plates,kitchen
He cut the bread,kitchen
The soup needs salt,kitchen
Bake it for an hour,kitchen
The pan is too small,kitchen
Peel the potatoes first,kitchen
There is milk in the fridge,kitchen
The train was late,travel
We missed the last bus,travel
My passport has expired,travel
The flight leaves at noon,travel
He packed two suitcases,travel
A ticket to the coast,travel
The road was closed,travel
They waited at the station,travel
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """A copy of the package without the applications."""
    directory = tmp_path_factory.mktemp("library")
    ignored = shutil.ignore_patterns(*APPLICATIONS, "__pycache__", ".float32-*")
    shutil.copytree(PACKAGE, directory / "bothways", ignore=ignored)
    return directory


@pytest.fixture
def run(library, tmp_path):
    """Runs Python code with the copy, in a directory with rows; returns its output."""
    (tmp_path / "rows.csv").write_text(ROWS)
    environment = os.environ | {
        "PYTHONPATH": str(library),
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "BOTHWAYS_CACHE": str(tmp_path / "cache"),
    }

    def run(code):
        command = [sys.executable, "-c", code]
        found = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert found.returncode == 0, found.stderr
        return found.stdout

    return run


@pytest.mark.slow
def test_the_library_works_without_the_applications(run):
    code = """
import json, sys
from contextlib import suppress
from pathlib import Path
import bothways
from bothways.cli.main import main

with suppress(SystemExit):
    main(["--help"])
model = bothways.load()
guesses = model.fill("He drank a cup of [MASK].")[0]
size = model.embed(["a cat"]).shape[1]
run = bothways.finetune("rows.csv", out="run")
labels = [prediction.label for prediction in run.load().classify(["The bread is in the oven", "The bus was late"])]
main(["predict", "run", "rows.csv", "-o", "labels.csv"])
loaded = [name for name in sys.modules if name.startswith(("bothways.search", "bothways.serving", "bothways.scale"))]
facts = {"guess": guesses[0].token, "size": size, "labels": labels, "loaded": loaded}
Path("facts.json").write_text(json.dumps({**facts, "rows": len(Path("labels.csv").read_text().splitlines())}))
print(Path("facts.json").read_text())
"""
    *shown, facts = run(code).splitlines()
    verbs = {line.split()[0] for line in shown if line.startswith("  ")}
    assert {"predict", "finetune", "embed"} <= verbs and not {"search", "index", "serve", "mcp"} & verbs
    assert json.loads(facts) == {
        "guess": "coffee",
        "size": 384,
        "labels": ["kitchen", "travel"],
        "loaded": [],
        "rows": 17,
    }


@pytest.mark.parametrize(
    ("call", "missing"),
    [
        ('main(["search", "words", "."])', "search"),
        ('bothways.base.paths.as_path("s3://bucket/key")', "scale"),
        ('main(["embed", "rows.csv", "-o", "parts"])', "scale"),
    ],
)
def test_a_missing_application_is_one_line(run, call, missing):
    code = f"""
import bothways.base.paths
from bothways.base.errors import InputError
from bothways.cli.main import main
try:
    {call}
except (InputError, SystemExit) as error:
    print("refused", error)
"""
    assert "refused" in run(code)
