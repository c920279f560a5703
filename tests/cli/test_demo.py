"""The demo, much shortened: all steps run, the output and the page are complete."""

import json
import re
import shlex

import numpy as np
import pytest

from bothways.cli import demo, main
from bothways.measure.report.demo_sections import WordSenses
from bothways.settings import Demo

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shortened(tmp_path_factory):
    """The starts of some paragraphs of each novel, two kinds of messages, hardly any training, few gaps."""
    novels, read_sample = demo.sample(), demo.read_sample
    short = [{**book, "text": "\n\n".join(part[:150] for part in book["text"].split("\n\n")[5:9])} for book in novels]
    patch = pytest.MonkeyPatch()
    patch.setattr(demo, "sample", lambda: short)
    kinds = {"billing", "praise"}
    patch.setattr(
        demo, "read_sample", lambda name: [row for row in read_sample(name) if row.get("label", "praise") in kinds]
    )
    for name, value in {"NUM_GAPS": 9, "SHOTS": 4, "PARAGRAPHS": 24, "TEST_PARAGRAPHS": 12}.items():
        patch.setattr(demo, name, value)
    out, printed = tmp_path_factory.mktemp("demo") / "a demo", []
    patch.setattr(demo, "print_lines", lambda *lines: printed.extend(lines))
    figures = demo.run(Demo(out=out, minutes=0.02, dtype="float32"))
    patch.undo()
    return out, "\n".join(printed), figures


def test_all_steps_run(shortened):
    _, printed, figures = shortened
    assert re.findall(r"^(\d)\. ", printed, re.MULTILINE) == [*"12345678"]
    assert "Done in" in printed and figures["seconds"] > 0


def test_gaps_and_examples_are_shown_with_the_written_word(shortened):
    _, printed, figures = shortened
    assert all(text in printed for text in demo.read_texts()["gaps"])
    assert printed.count("(written: ") == demo.NUM_SHOWN and figures["gaps"]["number"] == 9
    assert 0 <= figures["gaps"]["first"] <= figures["gaps"]["five"] <= 1


def test_a_word_has_more_similar_vectors_within_a_sense_than_across(shortened):
    _, printed, figures = shortened
    for word in demo.read_texts()["senses"]:
        same, different = (figures[f"senses of {word}"][key] for key in ("same", "different"))
        assert same > different and f"{same:.2f} within a sense, {different:.2f} across" in printed


def test_cosines_of_senses_are_means_over_pairs_of_different_sentences():
    angles = np.array([0.0, 0.5, 2.0])
    vectors = np.stack([np.cos(angles), np.sin(angles)], 1)
    same, different = WordSenses("w", ["a", "b", "c"], ["x", "x", "y"], vectors).mean_cosines
    assert same == pytest.approx(np.cos(0.5)) and different == pytest.approx((np.cos(2.0) + np.cos(1.5)) / 2)


def test_following_sentences_and_passages_are_found(shortened):
    _, printed, figures = shortened
    assert figures["next"] == {"right": len(demo.read_texts()["next"]), "pairs": len(demo.read_texts()["next"])}
    assert figures["search"]["questions"] == 7 and figures["search"]["right"] > figures["search"]["by words"]
    assert printed.count("right: ") + printed.count("WRONG: ") >= 7


def test_every_classifier_is_compared_with_baselines_and_has_an_interval(shortened):
    _, printed, figures = shortened
    assert len(re.findall(r"this model +[\d.]+% \(95 % interval [\d.]+% to [\d.]+%\), \d+ texts", printed)) == 3
    for name in ("few", "all", "authors"):
        for baseline, score in figures[name]["baselines"].items():
            assert re.search(rf"{re.escape(baseline)} +{score:.1%}", printed)
        assert {*figures[name]["baselines"]} >= {"TF-IDF + logistic regression", "frozen vectors + logistic regression"}


def test_rows_of_training_and_test_are_apart(shortened):
    out, _, _ = shortened
    messages = demo.read_sample("support.jsonl")
    groups = ({row["group"] for row in messages if row["split"] == split} for split in ("train", "test"))
    assert not set.intersection(*groups)
    rows = json.loads((out / "few" / "bothways.json").read_text())["rows"]
    assert rows["train"] + rows["dev"] == 8
    settings = json.loads((out / "pretrain" / "bothways.json").read_text())["settings"]
    assert settings["corpus"] == [str(out / "text" / "train_books.jsonl")]


def test_rows_are_taken_by_label_in_an_order_that_depends_on_the_seed():
    rows = [{"label": label, "text": f"{label}{index}"} for label in "ab" for index in range(30)]
    taken = demo.take(rows, 5, 0)
    assert [row["label"] for row in taken] == [*"aaaaabbbbb"] and taken == demo.take(rows, 5, 0) != demo.take(
        rows, 5, 1
    )
    assert len({row["text"] for row in taken}) == 10 and len(demo.take(rows, 50, 0)) == 60


def test_the_page_has_all_results_and_loads_nothing(shortened):
    out, _, figures = shortened
    page = (out / "demo.html").read_text(encoding="utf-8")
    for text in ("One word, several senses", "Search by meaning", "Which sentence follows?", "Masked words"):
        assert text in page
    assert (
        page.count("<svg") == len(demo.read_texts()["senses"])
        and "<script" not in page
        and "http:" not in page
        and "https:" not in page
    )
    assert f"{figures['few']['accuracy']:.1%}" in page and "this model" in page
    assert "How this was made" in page and "How this model was trained" not in page


def test_the_commands_it_prints_work(shortened, capsys):
    from bothways.cli import info

    out, printed, _ = shortened
    is_command = re.compile(r"   \S*bothways (fill|predict|info) ")
    commands = [shlex.split(line) for line in printed.splitlines() if is_command.match(line)]
    assert [words[1] for words in commands] == ["fill", "predict", "info"]
    for words in commands:
        main.main(words[1:])
    output = capsys.readouterr().out
    assert str(out / "all") in output and '"label"' in output
    assert info.describe(out)["status"] == "done" and info.describe(out)["run"] == "demo"
    for part in ("pretrain", "few", "all", "authors"):
        assert info.describe(out / part)["status"] == "done"


def test_the_held_out_novels_have_at_least_three_authors():
    books = demo.sample()
    assert len({book["author"] for book in books if book["split"] == "test"}) >= 3
