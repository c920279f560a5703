"""Shrinking: every form is measured, the best within the loss is kept, and int8 is trained where it loses too much."""

import json
from dataclasses import replace

import pytest

import bothways
from bothways.base.errors import InputError
from bothways.base.log import messages_to
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.int8 import is_int8
from bothways.settings import Shrink
from bothways.shrink.prune import shrink
from tests.pictures import charts_of
from tests.shrink.conftest import with_drops


@pytest.fixture
def settings(model, data, tmp_path):
    return Shrink(model=model, texts=data, out=tmp_path / "out", epochs=0.5, dtype="float32")


def test_each_form_is_measured_and_the_fastest_within_the_loss_is_kept(settings, monkeypatch):
    with_drops(monkeypatch, [0, 0.2, 0.5, 0.9, 3.0], [1, 1.5, 1.4, 2.4, 2.8])
    result = shrink(settings)
    names = [one.name for one in result.measured]
    assert names == [
        "as it was",
        "all layers, int8",
        "2 of 3 layers",
        "2 of 3 layers, int8",
        "1 of 3 layers",
    ]
    assert result.kept == 3 and "<- kept" in result.lines()[4] and result.measured[0].drop.points == 0
    kept = checkpoint.load(result.model)
    assert is_int8(kept.model) and kept.model.config.num_hidden_layers == 2 and kept.metadata["verb"] == "shrink"
    assert bothways.load(result.directory).labels == ("a", "b")
    assert result.measured[1].size < 0.6 * result.measured[0].size
    picture = charts_of((settings.out / "shrink.svg").read_text(encoding="utf-8"))["accuracy against speed"]
    speeds = [speed for style in ("series0 form", "series1 form") for speed, _ in picture.dots(style)]
    assert speeds == pytest.approx([1, 1.4, 2.8, 1.5], abs=0.01)
    assert [speed for speed, _ in picture.dots("series1 form kept")] == pytest.approx([2.4], abs=0.01)
    assert not (settings.out / "cuts").exists()
    assert json.loads(json.dumps(result.to_json()))["kept"] == 3


def test_int8_that_loses_too_much_is_trained(settings, monkeypatch):
    with_drops(monkeypatch, [0, 2.0, 5.0, 0.3], [1, 1.5, 1.4, 1.6])
    result = shrink(settings)
    assert result.measured[-1].name == "all layers, trained for int8" and result.kept == 3
    assert is_int8(checkpoint.load(result.model).model)


def test_a_message_names_a_small_dev_beside_the_drop(settings, monkeypatch):
    with_drops(monkeypatch, [0, 0.2, 5.0], [1, 1.5, 2.0])
    lines = []
    with messages_to(lines.append):
        shrink(settings)
    assert any("dev has 15 rows, where a drop is known to about +- 16.0 points" in line for line in lines)


def test_other_models_are_refused(settings, make_model, tokenizer, tmp_path):
    checkpoint.save(Checkpoint(make_model("bert", {"masked_words": 0}), tokenizer), tmp_path / "other")
    with pytest.raises(InputError, match="a model for fill cannot be pruned here"):
        shrink(replace(settings, model=tmp_path / "other"))
    assert not settings.out.exists()
