"""Messages for callers in Python name arguments instead of flags."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import bothways
from bothways.base.errors import InputError, command_line, flag, flags
from bothways.cli.main import main
from bothways.cli.verbs import VERBS
from bothways.settings import Classify
from bothways.settings.options import options

PACKAGE = Path(bothways.__file__).parent


@pytest.fixture(autouse=True)
def command_line_wording():
    """As in Python, unlike in the other tests."""
    with command_line(False):
        yield


FLAGS = [  # arguments of `flag`, on the command line, in Python
    (("dev",), "--dev", "dev"),
    (("learning_rate",), "--learning-rate", "learning_rate"),
    (("epochs", 10), "--epochs 10", "epochs=10"),
    (("on_error", "skip"), "--on-error skip", 'on_error="skip"'),
    (("words_column", "1"), "--words-column 1", 'words_column="1"'),
    (("remove", Path("old/notes")), "--remove old/notes", 'remove="old/notes"'),
    (("resume", True), "--resume", "resume=True"),
    (("context", False), "--no-context", "context=False"),
    (("strip_accents", True), "--strip-accents", "strip_accents=True"),
    (("strip_accents", False), "--keep-accents", "strip_accents=False"),
    (("from_checkpoint",), "--from", "from_checkpoint"),
    (("purpose", "words"), "--for words", 'purpose="words"'),
    (("texts",), "--with", "texts"),
]


@pytest.mark.parametrize(("arguments", "on_command_line", "in_python"), FLAGS)
def test_an_option_is_a_flag_or_an_argument(arguments, on_command_line, in_python):
    assert flag(*arguments) == in_python
    with command_line():
        assert flag(*arguments) == on_command_line
    options = {"learning_rate": 0, "pooling": "mean"}
    assert flags(options) == 'learning_rate=0, pooling="mean"'
    with command_line():
        assert flags(options) == "--learning-rate 0 --pooling mean"


def test_worker_processes_write_as_their_command_does():
    code = "from bothways.base.errors import flag; print(flag('dev'))"
    for context, expected in ((command_line(), "--dev\n"), (command_line(False), "dev\n")):
        with context:
            assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == expected


def test_every_flag_in_a_message_is_an_option_as_the_command_line_writes_it():
    by_name = {}
    for verb in VERBS.values():
        for option in options(verb.settings_class):
            by_name.setdefault(option.name, []).append(option)
    seen = set()
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "flag":
                name, *values = (part.value if isinstance(part, ast.Constant) else None for part in node.args)
                seen.add((name, values[0] if values else None))
    seen = {(name, value) for name, value in seen if name is not None}
    assert len(seen) > 60
    with command_line():
        for name, value in seen:
            named = by_name[name]
            written = flag(name, value).split(" ")[0]
            assert any(written in (*option.flags, option.negative) for option in named), name
            assert value is None or any(option.is_switch == isinstance(value, bool) for option in named), name
            choices = {choice for option in named for choice in option.choices}
            assert not choices or value is None or value in choices, name


def test_every_kind_of_message_has_the_names_of_its_caller(capsys):
    with pytest.raises(InputError, match="leave out dev,"):
        Classify(train="t.csv", out="o", dev="d.csv", folds=3)
    with pytest.raises(SystemExit):
        main(["finetune", "classify", "--train", "t.csv", "-o", "o", "--dev", "d.csv", "--folds", "3"])
    assert "leave out --dev," in capsys.readouterr().err


def test_the_command_line_keeps_its_flags(tmp_path, capsys):
    table = tmp_path / "t.csv"
    table.write_text("words,kind\na,x\nb,y\n")
    with pytest.raises(SystemExit):
        main(["finetune", "classify", "--train", str(table), "-o", str(tmp_path / "out")])
    assert "--text-column" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({}, "name yours with text="),
        ({"text": "words", "label": "sort"}, "name yours with label="),
        ({"text": "words", "label": "kinds"}, "did you mean 'kind'?"),
    ],
)
def test_a_wrong_column_is_named_as_the_argument_of_the_call(options, advice, tmp_path):
    rows = [{"words": word, "kind": "x"} for word in "abcd"]
    with pytest.raises(InputError) as raised:
        bothways.finetune(rows, out=tmp_path / "out", **options)
    message = str(raised.value)
    assert message.endswith(advice) and "--" not in message and "_column" not in message
