"""The plugin of `make test` (tests/minutes.py): the lines it prints, and the command that repeats what failed."""

import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.minutes import Minutes, repeating

ROOT = Path(__file__).parent.parent

PLANTED = """
import pytest

@pytest.mark.parametrize("text", ["a b", "c"])
def test_one(text):
    assert text == "c"

def test_other():
    pass

def test_skipped():
    pytest.skip("for once")

@pytest.fixture
def broken():
    yield
    raise ValueError

def test_with_a_broken_fixture(broken):
    pass
"""


@pytest.fixture
def lines():
    return []


@pytest.fixture
def minutes(lines):
    """The plugin with a terminal that keeps lines, and a clock that the test sets."""
    terminal = SimpleNamespace(write_line=lines.append)
    config = SimpleNamespace(
        pluginmanager=SimpleNamespace(getplugin=lambda name: terminal),
        getoption=lambda name, default: 123,
    )
    clock = SimpleNamespace(now=0.0)
    plugin = Minutes(config, clock=lambda: clock.now)
    plugin.clock_of_the_test = clock
    return plugin


def report(name, *, when="teardown", failed=False):
    return SimpleNamespace(nodeid=name, when=when, failed=failed, outcome="failed" if failed else "passed")


def test_a_line_is_printed_each_minute_with_the_number_of_tests(minutes, lines):
    minutes.pytest_xdist_node_collection_finished([f"test_{number}" for number in range(2000)])
    for number in range(1500):
        minutes.clock_of_the_test.now = number * 0.1  # seconds
        minutes.pytest_runtest_logreport(report(f"test_{number}"))
    assert lines == ["1 min: 601 of 2,000 tests, 0 failed", "2 min: 1,201 of 2,000 tests, 0 failed"]


def test_a_failure_is_printed_at_once_and_counted_once(minutes, lines):
    minutes.pytest_runtest_logreport(report("test_a", when="call", failed=True))
    minutes.pytest_runtest_logreport(report("test_a", failed=True))
    assert lines == ["FAILED test_a"]


@pytest.mark.parametrize(
    ("failed", "tests"),
    [
        (["tests/test_a.py::test_one"], ["tests/test_a.py::test_one"]),
        (["tests/test_a.py::test_one[a b]"], ["tests/test_a.py::test_one[a b]"]),
        ([f"tests/test_{name}.py::test_{number}" for name in "ba" for number in range(7)],
         ["tests/test_a.py", "tests/test_b.py"]),
    ],
)  # fmt: skip
def test_the_command_names_the_failed_tests_or_of_many_their_files(failed, tests):
    make, test, seed, named = shlex.split(repeating(failed, 123))
    assert (make, test, seed) == ("make", "test", "SEED=123")
    assert shlex.split(named.removeprefix("TESTS=")) == tests


def test_a_dollar_in_a_name_is_doubled_for_make():
    assert "a$$b" in repeating(["tests/test_a.py::test_one[a$b]"], 1)


@pytest.mark.slow
def test_a_run_prints_its_seed_its_failures_and_the_command(tmp_path):
    (tmp_path / "test_planted.py").write_text(PLANTED, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -q\n", encoding="utf-8")
    options = ["-p", "tests.minutes", "-p", "no:cacheprovider", "--randomly-seed=7", "test_planted.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    printed = done.stdout.splitlines()
    assert done.returncode == 1, done.stderr
    assert printed[0] == "tests in random order, seed 7"
    assert {line for line in printed if line.startswith("FAILED")} >= {
        "FAILED test_planted.py::test_one[a b]",
        "FAILED test_planted.py::test_with_a_broken_fixture",
    }
    (command,) = (line for line in printed if line.startswith("to repeat: "))
    assert "SEED=7" in command and "test_one[a b]" in command and "broken_fixture" in command
    assert "1 failed, 3 passed, 1 skipped, 1 error" in printed[-1]
