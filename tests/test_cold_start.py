"""Fast start: no verb's help loads torch, and importing the package is cheap."""

import resource
import subprocess
import sys

import pytest

from bothways.verbs import VERBS

HEAVY = ("torch", "transformers", "sklearn", "matplotlib", "pyarrow", "numpy")
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


def seconds(*arguments):
    """The processor time of a run: what a command takes that waits for nothing."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert run(*arguments).returncode == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_importing_takes_less_than_50_ms_and_loads_nothing_heavy():
    code = (
        "import sys, time; began = time.perf_counter(); import bothways; print(time.perf_counter() - began);"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    times = []
    for _ in range(3):
        seconds, loaded = run("-c", code).stdout.splitlines()
        assert loaded == "[]"
        times.append(float(seconds))
    assert min(times) < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help_is_printed_without_loading_anything_heavy(verb):
    shown = run("-c", TELL.format(heavy=HEAVY), *verb.split(), "--help")
    assert shown.returncode == 0
    assert shown.stderr == "LOADED\n"
    assert shown.stdout.startswith(f"usage: bothways {verb or 'VERB'} ")


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help_takes_less_than_300_ms(verb):
    # A shared machine may be several times slower for some seconds, in processor time too: then twelve times what an
    # interpreter takes that does nothing (25 ms, and help 40 to 210). What takes too long does so every time.
    assert any(seconds("-m", "bothways", *verb.split(), "--help") < max(0.3, 12 * seconds("-c", "")) for _ in range(20))


def test_the_tokenizer_needs_no_torch():
    code = "import sys, bothways; bothways.Tokenizer; print('torch' in sys.modules)"
    assert run("-c", code).stdout == "False\n"
