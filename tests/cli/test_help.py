"""`bothways VERB --help`: groups, the first page and all options, an example that parses."""

import re
import shlex
from dataclasses import fields
from pathlib import Path

import pytest

from bothways.cli import main, parser
from bothways.cli.verbs import VERBS
from bothways.settings.fields import GROUPS
from bothways.settings.options import options


@pytest.fixture
def shown(capsys):
    """shown(verb, flag) -> the lines of its help."""

    def show(verb, flag="--help"):
        with pytest.raises(SystemExit) as stopped:
            main.main([*verb.split(), flag])
        assert stopped.value.code == 0
        return capsys.readouterr().out.splitlines()

    return show


def flags(lines):
    return [re.findall(r"--?[a-zA-Z][a-z0-9-]*", line[: parser.INDENT] if line[2:3] == "-" else "") for line in lines]


@pytest.mark.parametrize("verb", VERBS)
def test_help_all_has_every_option_once_in_the_order_of_the_groups(verb, shown):
    lines = shown(verb, "--help-all")
    titles = [line[:-1] for line in lines if line.endswith(":") and not line.startswith(" ") and line[:-1] in GROUPS]
    assert titles == sorted(titles, key=GROUPS.index)
    text = "\n".join(lines)
    for option in options(VERBS[verb].settings_class):
        name = option.metavar if option.mark.is_argument else ", ".join(option.flags)
        assert len(re.findall(rf"^  {re.escape(name)}(?=[ ,]|$)", text, re.MULTILINE)) == 1, option.name
        assert not option.negative or option.default is False or option.negative in text
    assert all(len(line) <= 100 for line in lines if not line.startswith(("  -", "example:")))


@pytest.mark.parametrize("verb", VERBS)
def test_help_is_one_page_and_its_example_parses(verb, shown):
    lines = shown(verb)
    listed = [
        line for line in lines if (line.startswith("  ") and line[2:3] in ("-", "[")) or re.match("  [A-Z]", line)
    ]
    assert 1 <= len(listed) <= 18
    hidden = len(fields(VERBS[verb].settings_class)) - len(listed)
    assert (f"{hidden} more options: bothways {verb} --help-all" in lines) == (hidden > 0)
    settings = main.parse(verb, shlex.split(lines[-1].removeprefix(f"example: bothways {verb} ")))
    assert type(settings) is VERBS[verb].settings_class


def test_help_says_the_default_of_an_option(shown):
    text = " ".join(" ".join(shown("finetune classify", "--help-all")).split())
    assert "--warmup X Fraction of the steps in which the learning rate rises. (default: 0.1)" in text
    assert (
        "--seed N Random seed; with --seeds N, the runs use this seed and the N - 1 that follow it. (default: 0)"
        in text
    )
    assert "--lr, --learning-rate X Peak learning rate. (default: 5e-5 * (768 / hidden size)^1.5, at most 5e-4)" in text
    assert "--class-weights none|balanced " in text and "--unlabelled PATH ... " in text
    assert "-o, --out PATH Run directory. (required)" in text
    assert "--multi-label Each text may have several labels or none. --" in text


def test_the_width_of_help_is_that_of_the_terminal(shown, monkeypatch):
    monkeypatch.setenv("COLUMNS", "70")
    narrow = shown("embed", "--help-all")
    assert max(map(len, narrow)) <= 70 and len(narrow) > len(shown("embed"))


CLASSIFY = ("finetune classify", "--train t.csv -o out")


@pytest.mark.parametrize(
    ("verb", "words", "expected"),
    [
        (*CLASSIFY, {"train": Path("t.csv"), "out": Path("out")}),
        ("finetune classify", "--train=t.csv --out=o --lr=1e-3", {"learning_rate": 1e-3}),
        (CLASSIFY[0], f"{CLASSIFY[1]} --patience None --seed 0", {"patience": None, "seed": 0}),
        (CLASSIFY[0], f"{CLASSIFY[1]} --keep-layers 0 2 5", {"keep_layers": (0, 2, 5)}),
        (CLASSIFY[0], f"{CLASSIFY[1]} --no-linear-start --multi-label", {"linear_start": False, "multi_label": True}),
        (CLASSIFY[0], f"{CLASSIFY[1]} --json --no-json", {"json": False}),
        ("pretrain", "a b -o o --no-lowercase", {"corpus": (Path("a"), Path("b")), "lowercase": False}),
        ("pretrain", "-o o --heldout h --dropout 0 a b", {"heldout": (Path("h"),), "corpus": (Path("a"), Path("b"))}),
        ("predict", "m --json t.txt", {"model": Path("m"), "file": "t.txt", "json": True}),
        ("predict", "m", {"model": Path("m"), "file": "-"}),
        ("distill", "m t -o o --relations -1 --for words", {"relations": -1.0, "purpose": "words"}),
        ("search", "q -g a -g b -l -C 2", {"glob": ("a", "b"), "files_with_matches": True, "context": 2}),
        ("fill", "[MASK]", {"text": "[MASK]", "model": Path("bothways-en")}),
    ],
)  # fmt: skip
def test_words_become_settings(verb, words, expected):
    settings = main.parse(verb, words.split())
    assert {name: getattr(settings, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("verb", "words", "message"),
    [
        ("info", "m --jsn", "unknown option --jsn; did you mean --json?"),
        ("info", "m --xyzzy=3", "unknown option --xyzzy; bothways info --help-all lists all"),
        ("cache", "a", "unexpected argument 'a' (see bothways cache --help)"),
        ("fill", "a --top x", "--top: 'x' is not a whole number (see bothways fill --help)"),
        ("pretrain", "-o o --heldout h a b", "corpus is empty; name at least one file"),  # all are of --heldout
        (CLASSIFY[0], f"{CLASSIFY[1]} --epochs many", "--epochs: 'many' is not a number (see "),
        ("pretrain", "a -o o --model minii", "--model: 'minii' is not one of tiny, mini, small, medium, base, large"),
        ("vocab", "t", "-o/--out is missing: Output directory: vocab.txt, tokenizer.json"),
        ("fill", "", "the following arguments are required: TEXT (see bothways fill --help)"),
        ("fill", "a --top", "--top: expected one argument (see "),
        ("vocab", "t -o o --strip-accents --keep-accents", "--keep-accents: not allowed with argument --strip-accents"),
    ],
)  # fmt: skip
def test_wrong_usage_is_one_line_that_says_the_way_out(verb, words, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        main.main([*verb.split(), *words.split()])
    printed = capsys.readouterr()
    assert stopped.value.code == 2 and printed.out == "" and printed.err.count("\n") == 1
    assert printed.err.startswith(f"bothways {verb}: error: {message}")
