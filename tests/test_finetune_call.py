"""`bothways.finetune`: a fine-tuned model in one call."""

import csv
from pathlib import Path

import pandas
import pytest

import bothways
from bothways.base.errors import InputError
from tests.pictures import charts_of


@pytest.fixture
def rows():
    words = ["the", "sat", "on", "mat", "and", "ran"]
    return [
        {"message": f"{words[row % 6]} {('dog', 'cat')[row % 2]} {'on ' * (row // 12)}", "kind": ("d", "c")[row % 2]}
        for row in range(120)
    ]


@pytest.mark.slow
def test_one_call_fine_tunes_on_a_table_and_the_result_loads(rows, make_model, tokenizer, tmp_path, monkeypatch):
    from bothways.model.checkpoint import checkpoint
    from bothways.model.checkpoint.contents import Checkpoint

    checkpoint.save(Checkpoint(make_model("bert", {"masked_words": 0}), tokenizer), tmp_path / "start")
    monkeypatch.chdir(tmp_path)
    options = {"text": "message", "label": "kind", "model": tmp_path / "start", "baselines": False, "epochs": 3.0}
    result = bothways.finetune(rows, **options, learning_rate=5e-3, dtype="float32")
    assert result.directory == Path("classify-1") and result.mean > 0.8
    assert result.load(dtype="float32").classify("the cat on").label in ("c", "d")
    assert "accuracy on test" in result._repr_html_() and f"{result.mean:.4f}" in result._repr_html_()
    picture = result.plot(tmp_path / "curves.svg")
    panels = charts_of(picture._repr_svg_())
    assert [*panels] == ["Loss", "accuracy, dev", "Learning rate"] and "baseline" in panels["accuracy, dev"].legend
    for file in (tmp_path / "curves.svg", result.directory / "curves.svg"):
        assert file.read_text(encoding="utf-8") == picture.svg
    with (result.directory / "predictions.csv").open(encoding="utf-8-sig", newline="") as file:
        predictions = [*csv.DictReader(file)]
    assert [*predictions[0]] == ["file", "row", "text", "gold", "predicted", "probability_c", "probability_d"]
    assert len(predictions) == result.rows and predictions[0]["text"] in {row["message"] for row in rows}
    correct = [row["gold"] == row["predicted"] for row in predictions]
    assert sum(correct) / len(correct) == pytest.approx(result.mean)
    for row in predictions:
        probabilities = {name: float(row[f"probability_{name}"]) for name in "cd"}
        assert sum(probabilities.values()) == pytest.approx(1)
        assert max(probabilities, key=probabilities.get) == row["predicted"]
    assert '<a href="predictions.csv">' in (result.directory / "report.html").read_text(encoding="utf-8")
    columns = [[row[name] for row in rows] for name in ("message", "kind")]
    options = {"model": tmp_path / "start", "baselines": False, "epochs": 0.2}
    again = bothways.finetune(*columns, **options)
    assert again.directory == Path("classify-2")
    frame = pandas.DataFrame({"text": columns[0], "label": columns[1]})
    same = bothways.finetune(train=frame, **options)
    assert (same.directory, same.mean) == (Path("classify-3"), again.mean)
    scores = bothways.evaluate("classify-3", frame, dtype="float32")
    assert 0 <= scores["accuracy"] <= 1
    with pytest.raises(InputError, match="no option of evaluate.*device"):
        bothways.evaluate("classify-3", frame, devise="cpu")


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((["a", "b"], "kind"), {}, "label='kind'"),
        ((["a", "b"], [0, 1]), {"task": "tag"}, "for tag, pass a table"),
        (("train.csv", [0, 1]), {}, "leave out labels"),
        ((pandas.DataFrame({"text": ["a"]}), [0]), {}, "leave out labels"),
    ],
)
def test_labels_that_do_not_go_with_the_texts_lead_to_the_right_call(arguments, options, message):
    with pytest.raises(InputError, match=message):
        bothways.finetune(*arguments, **options)


@pytest.mark.parametrize("path", [None, 3, ["a"]])
def test_a_model_that_is_no_path_is_named(path):
    with pytest.raises(InputError, match="must be a path or a name.*bothways-en"):
        bothways.load(path)


def test_mistakes_are_named_as_python_callers_write_them(rows):
    with pytest.raises(InputError, match=r"task \('classfy'\).* classify"):
        bothways.finetune(rows, task="classfy")
    with pytest.raises(InputError, match="epoch: no option of classify; did you mean epochs?"):
        bothways.finetune(rows, epoch=3)
    with pytest.raises(InputError, match="pair: no option of tag"):
        bothways.finetune(rows, task="tag", pair="second")
