"""`make figures`: pages say what follows from the predictions in docs/measurements."""

import re
import tomllib

import numpy as np
import pytest

from benchmarks import measurements
from benchmarks.figures import scores
from benchmarks.figures.__main__ import Check
from benchmarks.figures.pages import read_pages, tables_of, with_tables, wrong_cells, wrong_numbers
from bothways.measure.metrics import classification, classification_intervals

ROOT = measurements.ROOT


@pytest.fixture(scope="module")
def described():
    return tomllib.loads((measurements.FOLDER / "pages.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def texts():
    return read_pages(ROOT)


@pytest.fixture(scope="module")
def check(texts, described):
    return Check(texts, described)


def with_digit_changed(number: str) -> str:
    """The number with another last digit."""
    return number[:-1] + str((int(number[-1]) + 1) % 10)


def test_the_pages_say_what_was_measured_and_each_table_is_covered_or_named(check):
    assert [*check.mistakes()] == []


def test_all_pages_that_are_described_exist(texts, described):
    assert described["sentences"].keys() | described["tables"].keys() <= texts.keys()


def test_one_digit_in_a_table_that_is_changed_is_found_with_its_line_and_the_right_value(check, texts, described):
    page = "docs/RESULTS.md"
    table = next(table for table in tables_of(texts[page]) if table.source == "few-examples/frozen")
    number = re.search(r"\d+\.\d", table.lines[2])[0]
    lines = texts[page].split("\n")
    lines[table.line + 1] = lines[table.line + 1].replace(number, with_digit_changed(number), 1)

    changed = Check({page: "\n".join(lines)}, described)

    (mistake,) = changed.mistakes()
    assert mistake.startswith(f"{page}:{table.line + 2}: {with_digit_changed(number)}")
    assert f"should be {number}" in mistake


def test_one_digit_in_a_sentence_that_is_changed_is_found_with_its_line_and_the_right_value(check, texts, described):
    page = "README.md"
    right = f"{check.values['few-examples/mean:ours']:.1f}"
    changed = texts[page].replace(f"`finetune` {right}", f"`finetune` {with_digit_changed(right)}")
    assert changed != texts[page]
    line = changed[: changed.index(f"`finetune` {with_digit_changed(right)}")].count("\n") + 1

    (mistake,) = Check({page: changed}, described).mistakes()

    assert mistake.startswith(f"{page}:{line}: {with_digit_changed(right)}, should be {right}")


def test_a_sentence_that_is_gone_is_a_mistake():
    (mistake,) = wrong_numbers("page", "Nothing is said.", "It has {a|.1f} points.", {"a": 3.0})
    assert mistake == "page: no such sentence: It has {a|.1f} points."


def test_a_sentence_may_be_wrapped():
    assert [*wrong_numbers("page", "It has\n3.0 points.", "It has {a|.1f} points.", {"a": 3.04})] == []


def test_a_new_table_must_be_computed_or_named(texts, described):
    page = "docs/RESULTS.md"
    changed = {page: texts[page] + "\n## A new section\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"}
    (mistake,) = Check(changed, described).mistakes()
    assert "A new section" in mistake


def test_tables_are_written_into_a_page():
    page = "# A\n\n<!-- figures: one/two -->\n| x |\n|---|\n| 1 |\n\nText.\n"
    written = with_tables(page, {"one/two": ["| y |", "|---|", "| 2 |", "| 3 |"]})
    assert written == "# A\n\n<!-- figures: one/two -->\n| y |\n|---|\n| 2 |\n| 3 |\n\nText.\n"
    (table,) = tables_of(written)
    assert [*wrong_cells("page", table, ["| y |", "|---|", "| 2 |", "| 3 |"])] == []


def test_tables_in_blocks_of_code_are_no_tables():
    assert [*tables_of("```text\n| a |\n```\n")] == []


def test_scores_of_several_draws_are_those_of_the_package_with_rows_resampled_together():
    generator = np.random.default_rng(0)
    gold = generator.integers(0, 3, 90)
    draws = [np.where(generator.random(90) < 0.7, gold, generator.integers(0, 3, 90)) for _ in range(2)]

    whole = np.tile(gold, 2).tolist()
    predicted = np.concatenate(draws).tolist()
    bounds = classification_intervals(whole, predicted, groups=[*range(90)] * 2)
    for metric in ("f1_macro", "accuracy"):
        stated = scores.of_labels(gold, draws, metric)
        assert stated.value == classification(whole, predicted)[metric]
        assert (stated.low, stated.high) == pytest.approx(bounds[metric], abs=1e-12)


def test_a_measurement_is_read_as_it_was_written_and_names_no_folder_of_the_machine(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["x", "-o", str(tmp_path / "secret" / "out")])
    arrays = {"gold": measurements.codes(["a", None, "b", "c"], ["a", "b"])}
    measurements.write("one", arrays, model="bothways-en", seeds=[3], folder=tmp_path)

    found = measurements.read("one", tmp_path)

    assert found["gold"].tolist() == [0, -1, 1, -1]
    assert found.about["seeds"] == [3]
    assert "secret" not in (tmp_path / "one.json").read_text(encoding="utf-8")
