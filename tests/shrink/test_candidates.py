"""Candidates: the rule that chooses among them, the measures of a toy source, and one form of table and JSON."""

import json
import math
from pathlib import Path

import pytest

from bothways.evaluation.before_after import Drop
from bothways.model.int8 import is_int8
from bothways.settings import Shrink
from bothways.shrink import prune
from bothways.shrink.candidates import SOURCES, Choice, Rule, choose
from bothways.shrink.measuring import Candidate, Measured, num_bytes
from tests.pictures import SVG, charts_of, is_standalone


def measured(name, size=100, speed=1.0, drop=0.0, error=0.1):
    loss = Drop("accuracy", drop, error)
    return Measured(name, size, 1.0, speed, 10 * speed, {"accuracy": 90 - drop}, (80.0, 95.0), loss, loss)


FORMS = [measured("a"), measured("b", 30, 1.2, 0.8), measured("c", 60, 1.9, 0.9), measured("d", 9, 3.0, 4.0)]


@pytest.mark.parametrize(
    ("rule", "index"),
    [
        (Rule(1.0, "speed"), 2),
        (Rule(1.0, "size"), 1),
        (Rule(1.0, "last"), 2),
        (Rule(0.1, "speed"), 0),
        (Rule(math.inf, "last"), 3),
        (Rule(1.0, "last", by_interval=True), 1),  # 0.9 +- 0.2 may be more than 1
        (Rule(100.0, "last", by_interval=True), 3),
    ],
)
def test_the_best_within_the_loss_is_chosen(rule, index):
    assert choose(FORMS, rule) == index


def test_a_loss_that_is_no_number_is_not_allowed():
    assert choose([FORMS[0], measured("e", drop=math.nan)], Rule(5.0)) == 0


def test_a_choice_has_one_table_and_one_json(tmp_path):
    choice = Choice(tmp_path, tmp_path / "model", "test", 300, Rule(1.0, "speed"), FORMS, 2, ("a note",))
    lines = choice.lines()
    assert lines[0].split() == ["MB", "weights", "texts/s", "speed", "accuracy", "lost", "95", "%", "interval"]
    assert [*lines[3].split()] == "c 0.0 100% 19 1.90 89.10 0.90 0.70 to 1.10 <- kept".split()
    assert lines[5:8] == [
        "scores: accuracy on test (300 rows)",
        "chosen on dev, where at most 1 points may be lost",
        "a note",
    ]
    read = json.loads(json.dumps(choice.to_json()))
    assert {name: read[name] for name in ("metric", "split", "max_drop", "kept", "fastest", "picture")} == {
        "metric": "accuracy", "split": "test", "max_drop": 1.0, "kept": 2, "fastest": "d", "picture": None,
    }  # fmt: skip
    assert read["measured"][1]["drop"] == {"metric": "accuracy", "points": 0.8, "standard_error": 0.1}
    assert read["directory"] == str(tmp_path) and read["notes"] == ["a note"]
    unlimited = Choice(Path("out"), Path("out"), "dev", 1, Rule(math.inf), FORMS, 3)
    assert unlimited.to_json()["max_drop"] is None and not any("chosen" in line for line in unlimited.lines())


def drawn(tmp_path, rule, forms, kept):
    choice = Choice(tmp_path, tmp_path / "model", "test", 300, rule, forms, kept)
    assert choice.draw(tmp_path / "one.svg") == tmp_path / "one.svg"
    svg = (tmp_path / "one.svg").read_text(encoding="utf-8")
    assert is_standalone(svg)
    return charts_of(svg)["accuracy against speed"]


def test_the_picture_shows_speed_score_size_and_what_is_kept(tmp_path):
    forms = [*FORMS[:3], measured("d, int8", 9, 3.0, 4.0)]
    picture = drawn(tmp_path, Rule(1.0, "speed"), forms, 2)
    assert picture.x_name == "speed, relative to the model as it was" and picture.y_name == "accuracy on test (%)"
    close = [(pytest.approx(one.speed, abs=0.01), pytest.approx(one.score, abs=0.02)) for one in forms]
    assert picture.dots("series0 form") == close[:2]
    assert picture.dots("series0 form kept") == close[2:3] and picture.dots("series1 form") == close[3:]
    dots = picture.node.iterfind(f"{SVG}circle")
    radii = {dot.findtext(f"{SVG}title").partition(":")[0]: float(dot.get("r")) for dot in dots}
    areas = [(radii[one.name] / radii["a"]) ** 2 for one in forms]
    assert areas == pytest.approx([one.size / forms[0].size for one in forms], abs=0.01)
    words = [text for text, _, _ in picture.texts]
    assert {"a", "b", "c", "d"} <= {*words} and [text for text in words if "kept" in text] == ["0 MB, kept"]
    assert picture.legend == ["floating point", "int8", "largest loss allowed"]
    (limit,) = picture.node.iterfind(f"{SVG}line[@class='even']")
    heights = [picture.value((0, float(limit.get(name))))[1] for name in ("y1", "y2")]
    assert heights == pytest.approx([89, 89], abs=0.02)


def test_the_picture_has_a_place_for_one_form_and_none_for_a_score_that_is_no_number(tmp_path):
    picture = drawn(tmp_path, Rule(math.inf, "last"), FORMS[:1], 0)
    assert picture.dots("series0 form kept") == [(pytest.approx(1, abs=0.01), pytest.approx(90, abs=0.01))]
    assert picture.legend == ["floating point", "int8"] and not picture.dots("series0 form")
    for ticks, value in ((picture.x_ticks, 1), (picture.y_ticks, 90)):  # it is not at the edge
        assert ticks[0][0] <= value - 1 and ticks[-1][0] >= value + 1
    undefined = [measured("a", drop=math.nan), measured("b", 30, 1.2, 0.8)]
    picture = drawn(tmp_path, Rule(1.0), undefined, 0)
    assert picture.dots("series0 form") == [(pytest.approx(1.2, abs=0.01), pytest.approx(89.2, abs=0.01))]


def toy(plan, measured):
    """The int8 model again, under another name."""
    assert [one.name for one in measured][:2] == ["as it was", "all layers, int8"]
    yield Candidate("toy", plan.original, num_bytes(plan.original.model) // 10)


def test_a_source_is_one_function_and_one_entry(model, data, tmp_path, monkeypatch):
    monkeypatch.setitem(SOURCES, "shrink", (*SOURCES["shrink"], f"{__name__}:toy"))
    settings = Shrink(
        model=model, texts=data, out=tmp_path / "out", epochs=0.3, dtype="float32", best="size", max_drop=0.0
    )
    result = prune.shrink(settings)
    assert result.measured[-1].name == "toy" and result.best.name == "toy" and result.best.drop.points == 0
    assert result.best.interval[0] <= result.best.score <= result.best.interval[1]
    assert not is_int8(prune.plan(settings.pruning).original.model)
