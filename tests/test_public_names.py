"""The public interface: `dir` lists it, annotations of `train` are typed, reprs help."""

import ast
import typing
from dataclasses import is_dataclass
from pathlib import Path

import pytest

import bothways
from bothways import api
from bothways.base.errors import InputError, format_count
from bothways.cli.verbs import VERBS
from bothways.model.checkpoint.contents import Checkpoint
from bothways.settings import Classify
from bothways.tasks.scores import Scores
from bothways.training.callbacks import Callback, call_with_row, list_callbacks
from bothways.training.run import Run


def test_dir_lists_the_public_names_and_all_can_be_imported():
    assert set(dir(bothways)) == {*bothways.__all__, "__version__"}
    assert all(getattr(bothways, name) is not None for name in bothways.__all__)
    assert bothways.__all__ == sorted(bothways.__all__)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = bothways.no_such_name


def test_type_checkers_see_each_public_name_in_the_module_that_is_imported():
    (block,) = (node for node in ast.parse(Path(bothways.__file__).read_text()).body if isinstance(node, ast.If))
    imported = {
        alias.asname: f"{node.module}.{alias.name}"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    modules = {name: f"bothways.{module}.{name}" for name, module in bothways._MODULES.items()}
    assert imported == {**modules, "settings": "bothways.settings"}


def test_every_public_class_defines_a_repr():
    for name in bothways.__all__:
        value = getattr(bothways, name)
        if isinstance(value, type) and not issubclass(value, Exception):
            assert is_dataclass(value) or value.__repr__ is not object.__repr__, name


def test_train_is_typed_by_the_class_of_settings():
    from bothways import settings

    scope = {name: getattr(settings, name) for name in ("Pretrain", "Distill", "FineTune")} | {
        "PretrainingResult": bothways.PretrainingResult
    }
    scope |= {"FineTuneResult": bothways.FineTuneResult, "Callbacks": object}
    hints = [typing.get_type_hints(overload, scope) for overload in typing.get_overloads(api.train)]
    assert [(hint["settings"], hint["return"]) for hint in hints] == [
        (settings.Pretrain | settings.Distill, bothways.PretrainingResult),
        (settings.FineTune, bothways.FineTuneResult),
    ]  # fmt: skip
    trained = [verb.settings_class for verb in VERBS.values() if verb.trains]
    assert all(issubclass(cls, (settings.TextTraining, settings.FineTune)) for cls in trained) and len(trained) == 9


def test_callbacks_are_functions_or_objects():
    calls = []

    class Recorder(Callback):
        def on_step(self, row):
            calls.append(("step", row["step"]))

        def on_evaluate(self, row):
            calls.append(("evaluate", row["step"]))

    for split in ("train", "heldout"):
        call_with_row([Recorder(), Callback(), lambda row: calls.append(row["split"])], {"split": split, "step": 3})
    assert calls == [("step", 3), "train", ("evaluate", 3), "heldout"]
    assert repr(Recorder()) == "Recorder()"


def test_a_single_callback_needs_no_list():
    recorder = Callback()
    assert list_callbacks(print) == (print,) and list_callbacks(recorder) == (recorder,)
    assert list_callbacks([print, recorder]) == (print, recorder) and list_callbacks(()) == ()


@pytest.mark.parametrize("callbacks", [3, None, [print, "log"], "log", Callback, [Callback]])
def test_callbacks_that_cannot_be_called_are_refused_before_any_work(callbacks, tmp_path):
    settings = Classify(model=tmp_path / "no model", train=tmp_path / "no.csv", out=tmp_path / "run")
    with pytest.raises(InputError, match="^callbacks") as caught:
        bothways.train(settings, callbacks=callbacks)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="^callbacks"):
        Run(settings.out, "finetune classify", settings, callbacks=callbacks)
    assert not list(tmp_path.iterdir())


def test_a_count_agrees_with_its_noun():
    assert [format_count(count, "row") for count in (0, 1, 1024)] == ["0 rows", "1 row", "1,024 rows"]
    assert [format_count(count, "entry", "entries") for count in (1, 2)] == ["1 entry", "2 entries"]


def test_scores_are_a_mapping_with_a_primary_score():
    scores = Scores.with_intervals("f1", {"f1": 0.5, "accuracy": 1.0}, {"f1": (0.25, 0.75)}, counts={"texts": 4})
    assert dict(scores) == {"f1": 0.5, "f1_interval": [0.25, 0.75], "accuracy": 1.0, "texts": 4}
    assert scores == dict(scores) and scores[scores.primary] == 0.5 and scores.percentages == {"f1": 50.0}
    assert repr(scores).startswith("Scores(f1=0.5, f1_interval=[0.25, 0.75]") and len(scores) == 4


def test_checkpoints_and_encodings_print_as_one_line(make_model, tokenizer):
    model = Checkpoint(make_model("bert", {"classes": 3}), tokenizer, labels=("x", "y", "z"))
    assert repr(model).startswith("Checkpoint(bert, ") and "heads: classes, 3 labels, tokenizer: " in repr(model)
    assert "\n" not in repr(model) and len(repr(model)) < 150
    assert repr(tokenizer.encode("a cat")) == "Encoding(4 tokens: [CLS], a, cat, [SEP])"
    assert repr(tokenizer.encode("a cat " * 99)).endswith(", ...)") and len(repr(tokenizer.encode("a cat " * 99))) < 80
