"""Messages for callers in Python name arguments instead of flags."""

import logging

import pytest

import bothways
from bothways.cli.main import main
from bothways.errors import InputError, MissingFile, command_line
from bothways.log import logger
from bothways.settings import Classify
from bothways.training.signals import Stopped


@pytest.fixture(autouse=True)
def command_line_wording():
    """As in Python, unlike in the other tests."""
    with command_line(False):
        yield


MESSAGES = {  # of the package
    "stays frozen; --epochs 10 trains the encoder too": "stays frozen; epochs=10 trains the encoder too",
    "a width of 128 (--learning-rate)": "a width of 128 (learning_rate)",
    "the label is a list; texts with several labels need --multi-label": (
        "the label is a list; texts with several labels need multi_label=True"
    ),
    "gives a text one label, unlike the student (--multi-label)": (
        "gives a text one label, unlike the student (multi_label=True)"
    ),
    "read sentences one by one (--no-context), or add more": "read sentences one by one (context=False), or add more",
    "on the frozen encoder: --learning-rate 0 --pooling mean --epochs 1": (
        'on the frozen encoder: learning_rate=0, pooling="mean", epochs=1'
    ),
    "delete it, or add --resume": "delete it, or add resume=True",
    "continue with --resume, or delete x": "continue with resume=True, or delete x",
    "cross-validate with --folds 5 (finetune), which scores every row": (
        "cross-validate with folds=5 (finetune), which scores every row"
    ),
    "--folds 5 scores every row": "folds=5 scores every row",
    "or skip such rows with --on-error skip": 'or skip such rows with on_error="skip"',
    "leave out --masking and --mask-rate": "leave out masking and mask_rate",
    "leave out --shard or --muon-learning-rate": "leave out shard or muon_learning_rate",
    "drop options such as --learning-rate and --family, or train": (
        "drop options such as learning_rate and family, or train"
    ),
    "rename yours or use --text-column": "rename yours or use text_column",
    "name it with --text-column or --pair-column": "name it with text_column or pair_column",
    "--pair-column names the column": "pair_column names the column",
    "such as --words-column 1": 'such as words_column="1"',
    "if that is right, give --encoding windows-1252, else": 'if that is right, give encoding="windows-1252", else',
    "give the right --encoding, or convert it first": "give the right encoding, or convert it first",
    "give its encoding with --encoding (such as shift_jis)": "give its encoding with encoding (such as shift_jis)",
    "fix the label, or train with --merge-labels": "fix the label, or train with merge_labels=True",
    "lengthen (512) needs --from, the checkpoint to lengthen": (
        "lengthen (512) needs from_checkpoint, the checkpoint to lengthen"
    ),
    "is for a new model; --from (bert) has its own": "is for a new model; from_checkpoint (bert) has its own",
    "leave it out, or use --for words": 'leave it out, or use purpose="words"',
    "(raise --batch-tokens, or give --batch-size)": "(raise batch_tokens, or give batch_size)",
    "restart with a lower --learning-rate or --dtype float32": (
        'restart with a lower learning_rate or dtype="float32"'
    ),
    "accents are kept (--strip-accents if that is wrong)": "accents are kept (strip_accents=True if that is wrong)",
    "lower-case vocabulary (--no-lowercase: cased)": "lower-case vocabulary (lowercase=False: cased)",
    "use --pairs none": 'use pairs="none"',
    "use --family deberta": 'use family="deberta"',
    "the texts (--keep-columns text)": 'the texts (keep_columns="text")',
    "4 processes (--nproc-per-node)": "4 processes (--nproc-per-node)",
    "use it instead: bothways embed m FILE --text-column COLUMN -o V.npy; or --folds 5": (
        "use it instead: bothways embed m FILE --text-column COLUMN -o V.npy; or folds=5"
    ),
    "on the same data first (finetune tag --model m)": "on the same data first (finetune tag --model m)",
    "a--folds/--seeds.csv: row 3": "a--folds/--seeds.csv: row 3",
}


@pytest.mark.parametrize("message", MESSAGES)
def test_flags_become_arguments_outside_the_command_line(message):
    assert str(InputError(message)) == MESSAGES[message]
    with command_line():
        assert str(InputError(message)) == message


def test_every_kind_of_message_speaks_python(caplog):
    assert str(MissingFile("no such file; give --dev")) == "no such file; give dev"
    assert str(Stopped("go on with --resume")) == "go on with resume=True"
    with caplog.at_level(logging.INFO, logger="bothways"):
        logger.info("%d labels; --folds %d scores all", 3, 5)
        with command_line():
            logger.warning("give --dev")
    assert caplog.messages == ["3 labels; folds=5 scores all", "give --dev"]
    with pytest.raises(InputError, match="leave out dev,"):
        Classify(train="t.csv", out="o", dev="d.csv", folds=3)


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
