"""Unknown verbs lead to the right one, `help` to the help."""

import re
from datetime import timedelta

import pytest

from bothways.cli import main
from bothways.cli.verbs import VERBS
from bothways.scale import object_storage as cloud


def run(capsys, line):
    """(exit status, standard output, standard error) of a command line that ends the program."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        main.main(line.split())
    shown = capsys.readouterr()
    return stopped.value.code, shown.out, shown.err


@pytest.mark.parametrize(
    ("typed", "verbs"),
    [
        ("finetune ner", ["finetune tag"]), ("finetune QA", ["finetune answer"]),
        ("finetune clasify", ["finetune classify"]),
        ("finetune question_answering", ["finetune answer"]), ("train", ["pretrain", "finetune"]),
        ("classify", ["finetune classify", "predict"]), ("ner", ["finetune tag", "predict"]),
        ("qa", ["finetune answer", "predict"]),
        ("sbert", ["finetune embed", "embed"]), ("regression", ["finetune regress", "predict"]), ("encode", ["embed"]),
        ("predikt", ["predict"]), ("pre-train", ["pretrain"]), ("fine_tune", ["finetune"]), ("eval", ["evaluate"]),
        ("onnx", ["export"]), ("xyzzy", []), ("finetune xyzzy", []), ("\x1b", []),
    ],
)  # fmt: skip
def test_a_usual_word_gets_a_hint_of_the_verb_that_does_it(typed, verbs, capsys):
    status, out, error = run(capsys, f"{typed} --model m")
    assert (status, out, error.count("\n")) == (2, "", 1)
    assert re.findall("`bothways ([^`]*)`", error) == verbs and ("did you mean" in error) == bool(verbs)


def test_every_word_leads_to_verbs_and_is_not_a_verb_itself():
    words = {**main.TASK_WORDS, **main.VERB_WORDS}
    known = {*VERBS, "finetune"}
    assert {*words} <= known and {verb for verbs in main.SEVERAL.values() for verb in verbs} <= known
    others = [other for group in words.values() for other in group] + [*main.SEVERAL]
    assert len(others) == len({*others}) and not {*others} & known


@pytest.mark.parametrize(
    ("arguments", "form"),
    [
        (["predict", "m", "who ran?"], "bothways predict m --text 'who ran?'"),
        (["predict", "m", "dog", "--top", "1"], "bothways predict m --text dog"),
        (["embed", "a dog"], "echo 'a dog' | bothways embed - --out vectors.npy"),
        (["embed", "m", "a dog", "--out", "v.npy"], "echo 'a dog' | bothways embed - --out vectors.npy"),
        (["embed", "--text", "a dog"], "echo 'a dog' | bothways embed - --out vectors.npy"),
    ],
)
def test_a_text_in_place_of_a_file_leads_in_one_line_to_the_command_for_one_text(arguments, form, capsys):
    with pytest.raises(SystemExit) as stopped:
        main.main(arguments)
    error = capsys.readouterr().err
    assert stopped.value.code == 2 and error.count("\n") == 1 and error.rstrip().endswith(form)


@pytest.mark.parametrize("name", ["none.csv", "none.txt", "s3://bucket/part", "*"])
def test_the_name_of_a_file_gets_no_hint_for_a_text(name, capsys, monkeypatch):
    for variable in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        monkeypatch.setenv(f"AWS_{variable}", "key")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # refuses at once
    monkeypatch.setattr(cloud, "PAUSE", 0.002)
    monkeypatch.setitem(cloud.BACKOFF, "init_backoff", timedelta(milliseconds=2))
    with pytest.raises(SystemExit):
        main.main(["predict", "bothways-en", name])
    assert "single text" not in capsys.readouterr().err


def test_fine_tuning_without_a_task_prints_the_tasks(capsys):
    status, _, error = run(capsys, "finetune --model m --train t.csv")
    assert status == 2 and all(verb.split()[1] in error for verb in VERBS if verb.startswith("finetune "))


@pytest.mark.parametrize(
    ("line", "same"),
    [("help", "--help"), ("help finetune", "finetune --help"), ("help finetune tag", "finetune tag --help"),
     ("help info", "info -h")],
)  # fmt: skip
def test_help_as_a_verb_is_the_flag(line, same, capsys):
    shown = run(capsys, line)
    assert shown == run(capsys, same) and shown[0] == 0 and shown[1].startswith("usage: bothways")
