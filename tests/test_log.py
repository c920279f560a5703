"""Output of the command: results on any stream, and no terminal control characters."""

import ast
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bothways.base import log, terminal
from bothways.cli import main
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint
from tests.soaked import in_soak

PACKAGE = Path(log.__file__).parent.parent
LABELS = ("x", "\x1b[2Jé", "\x9b31m\u202ez\n")  # clears the screen; a C1 escape, another direction, a line feed
ACTING = {*map(chr, [*range(32), *range(127, 160), 0x061C, *range(0x200E, 0x2010), *range(0x2028, 0x202F)])} - {"\n"}
ACTING |= {*map(chr, range(0x2066, 0x206A))}


@pytest.fixture(scope="module")
def classifier(make_model, tokenizer, tmp_path_factory):
    directory = tmp_path_factory.mktemp("classifier") / "model"
    checkpoint.save(Checkpoint(make_model("bert", {"classes": 3}), tokenizer, labels=LABELS), directory)
    return directory


def shell(line, **environment):
    """(status, standard output, standard error) of a line of bash in which `bothways` is the command."""
    prelude = f'bothways() {{ "{sys.executable}" -m bothways "$@"; }}; '
    completed = subprocess.run(["bash", "-c", prelude + line], capture_output=True, env={**os.environ, **environment})
    return completed.returncode, completed.stdout, completed.stderr.decode()


# --- streams ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "status", "expected"),
    [
        ("bothways --help | true; exit ${PIPESTATUS[0]}", 1, ""),
        ("bothways predict --help | true; exit ${PIPESTATUS[0]}", 1, ""),
        ("bothways --help >&-", 0, ""),
        ("bothways --version > /dev/full", 1, "bothways: error: [Errno 28] No space left on device\n"),
        ("WORLD_SIZE= RANK= bothways --version > /dev/null", 0, ""),
        ("bothways info no-such-model 2>&-", 1, ""),
    ],
)
def test_streams_that_are_closed_or_full_are_no_traceback(line, status, expected):
    code, out, error = shell(line)
    assert (code, error) == (status, expected) and b"Traceback" not in out


@pytest.mark.slow
def test_a_closed_standard_input_is_named_in_one_line(classifier):
    status, out, error = shell(f"bothways predict '{classifier}' - <&-")
    assert (status, out) == (1, b"") and error.count("\n") == 1 and "standard input is closed" in error


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", *in_soak("latin-1")])  # UTF-8 is that of all other tests
def test_results_are_the_same_json_and_facts_are_printed_in_every_encoding(encoding, classifier):
    line = f"bothways predict '{classifier}' --text 'a café' --keep-columns text; bothways info '{classifier}'"
    status, out, error = shell(line, PYTHONIOENCODING=encoding)
    assert (status, error) == (0, "")
    result, *facts = out.decode(encoding).splitlines()
    assert list(json.loads(result)["scores"]) == [*LABELS] and json.loads(result)["text"] == "a café"
    assert any(row.startswith("labels") for row in facts)


@pytest.mark.parametrize(("name", "value"), [("WORLD_SIZE", ""), ("WORLD_SIZE", "two"), ("RANK", "")])
def test_torchruns_variables_may_be_empty_and_must_be_numbers(name, value, monkeypatch):
    from bothways.base.errors import InputError
    from bothways.training.distributed import process_group

    monkeypatch.setenv(name, value)
    if value:
        with pytest.raises(InputError, match=r"WORLD_SIZE \(two\)"), process_group():
            pass
    else:
        with process_group() as processes:
            assert processes.world_size == 1


# --- characters that act ----------------------------------------------------------------------------------------------


def test_every_character_that_acts_is_escaped_and_no_other():
    escaped = {sign for sign in map(chr, range(0x110000)) if terminal.escape_controls(sign) != sign}
    assert escaped == {*map(chr, range(0xD800, 0xE000)), *ACTING} - {"\t"}  # UTF-8 cannot encode the first
    text = "".join(sorted(ACTING)) + "é中😀\u200d"
    assert json.loads(f'"{terminal.escape_controls(text)}"', strict=False) == text


def test_a_line_can_always_be_encoded():
    assert terminal.escape_line("a\ud800b\n") == "a\\ud800b\\n"


def test_labels_of_a_checkpoint_are_printed_with_escapes(classifier, tmp_path, capfd):
    (tmp_path / "\x1b[1mt.csv").write_text("text,label\nthe cat,x\na dog,\x1b[2Jé\n", encoding="utf-8")
    for arguments in (
        ["info", classifier], ["info", classifier, "--json"], ["evaluate", classifier, tmp_path / "\x1b[1mt.csv"],
        ["evaluate", classifier, tmp_path / "\x1b[1mt.csv", "--json"], ["predict", classifier, "--text", "\x1b\u202e"],
        ["predict", classifier, tmp_path / "\x1b[1mt.csv", "--keep-columns", "all"], ["info", tmp_path / "\x9b\u2067"],
        ["predict", classifier, tmp_path / "\x1b[1mt.csv", "--keep-columns", "none\x1b"], ["info", "m", "--no\x1b"],
        ["\x1b]0;verb"], ["predict", classifier, tmp_path / "\x1b[1mt.csv", "-o", tmp_path / "\x1bp.csv"],
    ):  # fmt: skip
        try:
            main.main([*map(str, arguments)])
        except SystemExit as end:
            assert end.code in (1, 2)
        output = capfd.readouterr()
        assert not ACTING & {*output.out, *output.err}, arguments
    main.main(["info", str(classifier)])
    assert "labels       x, \\u001b[2Jé, \\u009b31m\\u202ez\\n\n" in capfd.readouterr().out


@pytest.mark.slow
def test_fine_tuning_prints_labels_and_names_with_escapes(make_model, tokenizer, tmp_path, capfd):
    checkpoint.save(Checkpoint(make_model("bert", {"masked_words": 0}), tokenizer), tmp_path / "m")
    rows = "".join(f'a {word},\x1b[2Jé\nthe {word},"\x9b\u202ez\nseed 9"\n' for word in "cat dog mat b s".split() * 3)
    (tmp_path / "\x1bt.csv").write_text("text,label\n" + rows, encoding="utf-8")
    tuning = ["finetune", "classify", "--model", tmp_path / "m", "--train", tmp_path / "\x1bt.csv", "--epochs", "0.1"]
    main.main([*map(str, tuning), "-o", str(tmp_path / "r\x1b")])
    output = capfd.readouterr()
    assert not ACTING & {*output.out, *output.err} and "\\u001b[2Jé" in output.err
    assert not [line for line in output.err.splitlines() if line.startswith("seed 9")]


@pytest.mark.slow
def test_only_one_file_prints():
    """So that nothing goes around the escaping."""
    for file in PACKAGE.rglob("*.py"):
        names = {
            node.id for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.Name)
        }
        assert "print" not in names or file == PACKAGE / "base/terminal.py", file


def test_the_command_is_named_as_a_shell_finds_it(tmp_path, monkeypatch):
    (tmp_path / "a b").mkdir()
    script = tmp_path / "a b" / "bothways"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", "/nowhere")
    for started, named in (
        (str(script), f"'{script}'"),
        ("/x/bothways/__main__.py", f"{sys.executable} -m bothways"),
        ("/x/pytest/__main__.py", "bothways"),
    ):
        monkeypatch.setattr(sys, "argv", [started])
        assert terminal.command_name() == named
    monkeypatch.setattr(sys, "argv", [str(script)])
    monkeypatch.setenv("PATH", str(script.parent))
    assert terminal.command_name() == "bothways"


# --- stopped ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_sigterm_while_a_model_is_exported_prints_one_line_and_leaves_nothing_behind(classifier, tmp_path):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    code = (
        "import os, signal, sys, time; from bothways.cli import main as cli; "
        "from bothways.shrink.export import graph as onnx_graph\n"
        "def write(model, vectors, file):\n"
        "    file.write_bytes(b'half'); print(*os.listdir(file.parent.parent), flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)\n"
        "onnx_graph.write = write; cli.entry()"
    )
    command = [sys.executable, "-c", code, "export", str(classifier), "-o", str(tmp_path / "onnx")]
    completed = subprocess.run(command, capture_output=True, text=True)
    assert completed.stdout.startswith(".onnx.")  # it was there
    assert completed.returncode == 130 and completed.stderr == "bothways export: stopped\n"
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL  # `main` in a process of another leaves it alone
    assert [*tmp_path.iterdir()] == []


def test_a_message_about_any_file_can_be_written_to_a_log_in_utf8(caplog):
    log.logger.warning("%s: skipped", os.fsdecode(b"caf\xe9.txt"))
    assert caplog.messages == ["caf\\udce9.txt: skipped"]
