"""Settings created in Python: paths as text, lists, NumPy's numbers; wrong types give a one-line error."""

import dataclasses
import pickle
from pathlib import Path

import numpy as np
import pytest

import bothways
from bothways import settings
from bothways.base.errors import InputError
from bothways.cli import main
from bothways.settings import Classify, Evaluate, Predict, Pretrain, Regress, Tag, TrainEmbed
from bothways.settings.conversion import convert, declared_types

NEEDED = {"model": "m", "train": "t.csv", "out": "o"}
KINDS = [kind for kind in vars(settings).values() if dataclasses.is_dataclass(kind)]


def test_values_are_converted_as_on_the_command_line():
    settings = Classify(**NEEDED, dev=Path("d.csv"), epochs=3, seeds=np.int64(2), learning_rate=np.float32(0.5))
    assert settings == Classify(
        model=Path("m"), train=Path("t.csv"), out=Path("o"), dev=Path("d.csv"), epochs=3.0, seeds=2, learning_rate=0.5
    )
    assert [type(value) for value in (settings.model, settings.epochs, settings.seeds, settings.learning_rate)] == [
        type(Path()), float, int, float,
    ]  # fmt: skip
    assert Pretrain(corpus="a.txt", out="o").corpus == Pretrain(corpus=["a.txt"], out="o").corpus == (Path("a.txt"),)
    assert TrainEmbed(**NEEDED, matryoshka_dims=[64, 128]).matryoshka_dims == (64, 128)
    assert Predict(model="m", file=Path("t.txt")).file == "t.txt"
    assert Evaluate(model="gold.csv", predictions="p.csv").predictions == Path("p.csv")


def test_the_command_line_takes_only_paths(capsys):
    settings = main.parse("finetune classify", ["--model", "m", "--train", "t.csv", "--dev", "d.csv", "--out", "o"])
    assert settings == Classify(**NEEDED, dev="d.csv")
    assert main.parse("evaluate", ["m", "a.csv", "b.csv"]).file == (Path("a.csv"), Path("b.csv"))
    with pytest.raises(SystemExit):
        main.parse("finetune classify", ["--help"])
    output = capsys.readouterr().out
    assert "--train PATH" in output and "--dev PATH" in output and "MemoryTable" not in output


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (Classify, {"model": 3}, "model (3) must be a path"),
        (Classify, {"model": ""}, "model ('') must be a path"),
        (Classify, {"dev": [5]}, "dev ([5]) must be a path or a table in memory or None"),
        (Classify, {"epochs": "3"}, "epochs ('3') must be a number or None"),
        (Classify, {"seeds": 2.5}, "seeds (2.5) must be a whole number"),
        (Classify, {"seeds": True}, "seeds (True) must be a whole number"),
        (Classify, {"resume": "yes"}, "resume ('yes') must be True or False"),
        (Classify, {"pooling": "maen"}, "pooling ('maen') must be one of auto, cls, mean, pair"),
        (Classify, {"metric": 1}, "metric (1) must be one of accuracy, f1, f1_macro, f1_micro, matthews or None"),
        (Regress, {"text_column": 0}, "text_column (0) must be text or None, the name of a column, such as '0'"),
        (Classify, {"label_column": 1}, "label_column (1) must be text or None, the name of a column, such as '1'"),
        (Classify, {"group_column": True}, "group_column (True) must be text or None"),
        (TrainEmbed, {"matryoshka_dims": "64"}, "matryoshka_dims ('64') must be a list, each a whole number"),
        (TrainEmbed, {"matryoshka_dims": [64, "x"]}, "matryoshka_dims ([64, 'x']) must be a list, each a whole number"),
        (Classify, {"train": [5] * 99}, "train ([5, 5, "),
    ],
)
def test_a_value_of_another_type_is_named_in_one_line(kind, values, expected):
    with pytest.raises(InputError) as raised:
        kind(**{**NEEDED, **values})
    assert str(raised.value).startswith(expected) and "\n" not in str(raised.value) and len(str(raised.value)) < 200


@pytest.mark.parametrize("number", [1, -1, np.int64(3)])
def test_columns_of_words_and_tags_are_numbers_or_names(number):
    tag = Tag(train="t.conll", out="out", words_column=0, tags_column=number)
    assert (tag.words_column, tag.tags_column) == ("0", str(number))
    assert Evaluate(model="m", file=("t.conll",), tags_column=number).tags_column == str(number)
    with pytest.raises(InputError, match=r"words_column \(1\.5\) must be text or None$"):
        Tag(train="t.conll", out="out", words_column=1.5)


def test_every_setting_has_a_type_that_can_be_checked():
    for kind in KINDS:
        for field in dataclasses.fields(kind):
            if field.default is not dataclasses.MISSING:
                value = convert(field.name, field.default, declared_types(kind)[field.name])
                assert value == field.default and type(value) is type(field.default), (kind, field.name)
            with pytest.raises(InputError, match=rf"{field.name} \(<object object at .*\) must be "):
                convert(field.name, object(), declared_types(kind)[field.name])


def test_training_takes_paths_as_text_and_names_what_is_missing(tmp_path):
    with pytest.raises(InputError, match=f"{tmp_path / 'no-model'}: no such directory"):
        bothways.train(Classify(model=str(tmp_path / "no-model"), train="t.csv", out=str(tmp_path / "o")))
    with pytest.raises(InputError, match="dict .* Pretrain, Distill, Classify"):
        bothways.train({"model": "m"})


def test_an_error_has_the_option_and_its_value():
    for options in ({"seeds": 0}, {"seeds": "two"}):
        with pytest.raises(InputError) as raised:
            Classify(**NEEDED, **options)
        again = pickle.loads(pickle.dumps(raised.value))
        assert (raised.value.option, raised.value.value) == (again.option, again.value) == ("seeds", options["seeds"])
