"""Fast start: no verb's help loads torch, and importing the package loads little.

benchmarks/start.py has the times.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import bothways
from bothways.cli.verbs import VERBS

HEAVY = ("torch", "transformers", "sklearn", "matplotlib", "pyarrow", "numpy")
TORCH_TASKS = ("forward", "linear_start", "losses")  # files of tasks/ that compute with torch alone
MOST_MODULES = 60  # of the standard library too: 29 with Python 3.11
TELL = """
import sys
sys.argv = ["bothways", *sys.argv[1:]]
try:
    from bothways.cli.main import main
    main()
finally:
    print("LOADED", *(name for name in {heavy} if name in sys.modules), file=sys.stderr)
"""


def run(*arguments):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True)


def test_importing_loads_little_and_nothing_heavy():
    code = (
        "import sys; before = len(sys.modules); import bothways; print(len(sys.modules) - before);"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    number, loaded = run("-c", code).stdout.splitlines()
    assert loaded == "[]" and int(number) < MOST_MODULES


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help_is_printed_without_loading_anything_heavy(verb):
    shown = run("-c", TELL.format(heavy=HEAVY), *verb.split(), "--help")
    assert shown.returncode == 0
    assert shown.stderr == "LOADED\n"
    assert shown.stdout.startswith(f"usage: bothways {verb or 'VERB'} ")


def test_a_model_is_loaded_and_used_without_scipy_and_scikit_learn():
    code = (
        "import sys, bothways; bothways.load().embed('the cat');"
        "print({'scipy', 'sklearn', 'matplotlib', 'pyarrow', 'sqlite3'} & {*sys.modules})"
    )
    assert run("-c", code).stdout == "set()\n"


def test_the_package_never_imports_matplotlib():
    files = [*Path(bothways.__file__).parent.rglob("*.py")]
    imported = re.compile(r"^\s*(import|from) matplotlib", re.MULTILINE)
    assert len(files) > 200
    assert [file for file in files if imported.search(file.read_text(encoding="utf-8"))] == []


def test_the_tokenizer_needs_no_torch():
    code = "import sys, bothways; bothways.Tokenizer; print('torch' in sys.modules)"
    assert run("-c", code).stdout == "False\n"


def test_what_reads_decodes_scores_and_prints_needs_no_torch():
    package = Path(bothways.__file__).parent
    rooms = [
        f"{room.replace('/', '.')}.{file.stem}"
        for room in ("text/data", "measure/metrics", "measure/report")
        for file in (package / room).glob("*.py")
    ]
    rooms += [f"tasks.{file.stem}" for file in (package / "tasks").glob("*.py") if file.stem not in TORCH_TASKS]
    modules = [
        *rooms,
        "text.batch",
        "text.batching",
        "inference.predictor",
        "inference.active_learning",
    ]
    modules += [f"inference.jobs.{name}" for name in ("writers", "blocks", "journal", "job_progress")]
    code = (
        "import sys; from importlib import import_module\n"
        "sys.modules.update(dict.fromkeys(['torch', 'scipy', 'pyarrow']))\n"
        "for name in sys.argv[1:]: import_module(f'bothways.{name}')\n"
        "print(bool({'torch', 'scipy', 'pyarrow'} & {name for name in sys.modules if sys.modules[name]}))"
    )
    shown = run("-c", code, *modules)
    assert (shown.stdout, shown.stderr) == ("False\n", "")
