"""Without the packages of an extra: what needs none works, and anything else is one line that names the extra."""

import json
import os
import subprocess
import sys

import pytest

from bothways.base.errors import InputError, packages_named, require

HEAVY = ("torch", "pyarrow", "scipy", "sklearn", "joblib", "rich", "matplotlib")
BLOCK = "import sys; sys.modules.update(dict.fromkeys({!r}.split(), None)); "
RUN = "from bothways.cli import main; main.main({!r})"


def run_without(modules, code):
    """Run code in a process in which some modules are missing."""
    code = BLOCK.format(" ".join(modules)) + code
    return subprocess.run([sys.executable, "-c", code], env=os.environ, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("module", "error"),
    [("msgspec", "finetune: needs the package msgspec; pip install 'bothways[serve]'"),
     ("scipy.special", "finetune: needs the package scipy; pip install 'bothways[train]'"),
     ("sklearn.linear_model", "finetune: needs the package scikit-learn; pip install 'bothways[train]'"),
     ("torch", "finetune: needs the package PyTorch; pip install 'bothways[train]'"),
     ("orjson", "finetune: needs the package orjson; pip install 'bothways[serve]'")],
)  # fmt: skip
def test_a_missing_package_of_an_extra_is_one_line(module, error, monkeypatch):
    monkeypatch.setitem(sys.modules, module.partition(".")[0], None)
    with pytest.raises(InputError) as caught, packages_named("finetune"):
        __import__(module)
    assert str(caught.value) == error
    with pytest.raises(InputError, match="out.parquet: needs"):
        require("out.parquet", module.partition(".")[0])


@pytest.mark.parametrize("module", ["no_such_module_anywhere", "scipy.no_such_module"])
def test_any_other_missing_module_stays_an_import_error(module):
    with pytest.raises(ModuleNotFoundError), packages_named("finetune"):
        __import__(module)
    require("out.parquet", "pyarrow")


@pytest.mark.slow
def test_training_in_python_names_the_package_as_well():
    code = (
        "import bothways\nfrom bothways.base.errors import InputError\nfrom bothways.settings import Classify\n"
        "try:\n    bothways.train(Classify(train='missing.csv', out='run'))\n"
        "except InputError as error:\n    print(error)"
    )
    error = run_without(HEAVY, code).stdout
    assert error.startswith("finetune classify: needs the package PyTorch; ") and "bothways[train]" in error


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        "finetune classify --model no --train no.csv -o run",
        "pretrain no.txt -o run",
        "quantize no --with no.csv -o small",
    ],
)
def test_verbs_that_train_name_the_package_in_one_line_before_they_read_anything(line):
    result = run_without(HEAVY, RUN.format(line.split()))
    verb = line.partition(" --model")[0].partition(" no")[0]
    assert result.returncode == 1
    assert (
        result.stderr == f"bothways {verb}: error: {verb}: needs the package PyTorch; pip install 'bothways[train]'\n"
    )


@pytest.mark.slow
def test_tables_are_read_and_written_without_heavy_packages(tmp_path):
    rows = [{"text": f"text {number}", "label": "ab"[number % 2]} for number in range(5)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "t.csv").write_text("text,label\n" + "".join("{text},{label}\n".format(**row) for row in rows))
    code = f"""
from pathlib import Path
from bothways.base.errors import InputError
from bothways.inference.jobs import blocks, writers
from bothways.measure import metrics
from bothways.search.fact_table import COLUMNS, write_rows
from bothways.tasks import TASKS
from bothways.text.rows.arrow_tables import read_schema
from bothways.text.data.examples import read_table
folder = Path({str(tmp_path)!r})
for name in ("t.jsonl", "t.csv"):
    assert read_table(folder / name, need_labels=True).texts == [f"text {{number}}" for number in range(5)]
    assert blocks.estimate_num_rows(str(folder / name))
write_rows([dict.fromkeys(COLUMNS) | {{"path": 'a"b', "start": 3, "score": 1.0}}], folder / "facts.csv", ".csv")
columns = TASKS["tag"].load().columns(None)
writers.Separated([*columns], False).head()
metrics.classification_intervals("abababab", "ababbbab")
for name in ("t.parquet", "t.arrow"):
    try:
        read_schema(folder / name)
    except InputError as error:
        print(error)
assert not {{"torch", "pyarrow", "scipy"}} & {{name for name, module in sys.modules.items() if module}}
"""
    result = run_without(HEAVY, code)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [
        f"{tmp_path / name}: needs the package pyarrow; pip install 'bothways[train]'"
        for name in ("t.parquet", "t.arrow")
    ]
    assert (tmp_path / "facts.csv").read_text() == (
        '"path","kind","name","text","start","end","line","page","score","group"\n"a""b",,,,3,,,,1,\n'
    )
