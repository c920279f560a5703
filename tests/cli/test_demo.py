"""The demo, much shortened: all steps run, the output and the page are complete."""

import html
import json
import re
import shlex

import numpy as np
import pytest

from bothways.cli import demo, main
from bothways.measure.report.demo_sections import SenseMap, WordSenses
from bothways.settings import Demo

pytestmark = pytest.mark.slow
KINDS = {"billing", "praise"}


def html_text(out):
    return html.unescape((out / "demo.html").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def shortened(tmp_path_factory):
    """The starts of some paragraphs of each novel, two kinds of messages, hardly any training, few gaps."""
    novels, read_sample = demo.sample(), demo.read_sample
    short = [{**book, "text": "\n\n".join(part[:150] for part in book["text"].split("\n\n")[5:9])} for book in novels]
    patch = pytest.MonkeyPatch()
    patch.setattr(demo, "sample", lambda: short)
    patch.setattr(
        demo, "read_sample", lambda name: [row for row in read_sample(name) if row.get("label", "praise") in KINDS]
    )
    for name, value in {"NUM_GAPS": 9, "NUM_READ": 20}.items():
        patch.setattr(demo, name, value)
    out, printed = tmp_path_factory.mktemp("demo") / "a demo", []
    patch.setattr(demo, "print_lines", lambda *lines: printed.extend(lines))
    figures = demo.run(Demo(out=out, minutes=0.02, dtype="float32"))
    patch.undo()
    return out, "\n".join(printed), figures


def test_all_steps_run_and_are_printed(shortened):
    _, printed, figures = shortened
    assert re.findall(r"^(\d)\. ", printed, re.MULTILINE) == [*"1234567"]
    assert "Done in" in printed and figures["seconds"] > 0


def test_figures_are_printed_as_they_were_measured(shortened):
    _, printed, figures = shortened
    for word in demo.read_texts()["senses"]:
        same, different = (figures[f"senses of {word}"][key] for key in ("same", "different"))
        assert f"{same:.2f} within a sense, {different:.2f} across" in printed
    assert len(re.findall(r"^      \* \S", printed, re.MULTILINE)) == figures["search"]["among three"]
    assert 1 <= len(re.findall(r"^ {3}[* ] .+\n {8}labelled \w+, suggested \w+$", printed, re.MULTILINE)) <= 5
    assert len(re.findall(r"this model +[\d.]+% \(95 % interval [\d.]+% to [\d.]+%\)", printed)) == 1
    for baseline, score in figures["all"]["baselines"].items():
        assert re.search(rf"{re.escape(baseline)} +{score:.1%}", printed)


def test_gaps_and_examples_are_shown_with_the_written_word(shortened):
    _, printed, figures = shortened
    assert all(text in printed for text in demo.read_texts()["gaps"])
    assert printed.count("(written: ") == demo.NUM_SHOWN and figures["gaps"]["number"] == 9
    assert 0 <= figures["gaps"]["first"] <= figures["gaps"]["five"] <= 1


def test_a_word_has_more_similar_vectors_within_a_sense_than_across(shortened):
    _, _, figures = shortened
    for word in demo.read_texts()["senses"]:
        assert figures[f"senses of {word}"]["same"] > figures[f"senses of {word}"]["different"]


def test_cosines_of_senses_are_means_over_pairs_of_different_sentences():
    angles = np.array([0.0, 0.5, 2.0])
    vectors = np.stack([np.cos(angles), np.sin(angles)], 1)
    same, different = WordSenses("w", ["a", "b", "c"], ["x", "x", "y"], vectors).mean_cosines
    assert same == pytest.approx(np.cos(0.5)) and different == pytest.approx((np.cos(2.0) + np.cos(1.5)) / 2)


def test_the_picture_names_each_sense_once():
    vectors = np.random.default_rng(0).normal(size=(6, 5))
    word = WordSenses("right", [f"sentence {row}" for row in range(6)], ["direction", "correct"] * 3, vectors)
    drawn = str(SenseMap([word]).body())
    for sense in ("direction", "correct"):
        assert len(re.findall(f"<text[^>]*>{sense}</text>", drawn)) == 1
    assert drawn.count("<circle") == 6 + 2  # the sentences, and a sample of each sense
    assert "direction: sentence 4" in drawn and "correct: sentence 5" in drawn


def test_following_sentences_and_passages_are_found(shortened):
    _, _, figures = shortened
    assert figures["next"] == {"right": len(demo.read_texts()["next"]), "pairs": len(demo.read_texts()["next"])}
    found = figures["search"]
    assert (
        found["questions"] == 7 and found["first"] <= found["among three"] and found["among three"] > found["by words"]
    )


def test_wrong_labels_are_planted_and_found(shortened):
    _, _, figures = shortened
    errors = figures["label errors"]
    assert 0 < errors["found"] <= errors["planted"] == 12 and errors["read"] <= 20


def test_every_classifier_is_compared_with_baselines_and_has_an_interval(shortened):
    _, _, figures = shortened
    low, high = figures["all"]["interval"]
    assert 0 <= low <= figures["all"]["accuracy"] <= high <= 1
    names = {*figures["all"]["baselines"]}
    assert "TF-IDF + logistic regression" in names
    assert any(name.startswith("frozen vectors") and name.endswith("+ logistic regression") for name in names)


def test_rows_of_training_and_test_are_apart(shortened):
    out, _, _ = shortened
    messages = demo.read_sample("support.jsonl")
    groups = ({row["group"] for row in messages if row["split"] == split} for split in ("train", "test"))
    assert not set.intersection(*groups)
    rows = json.loads((out / "all" / "bothways.json").read_text())["rows"]
    assert rows["train"] + rows.get("dev", 0) == sum(
        row["split"] == "train" for row in messages if row["label"] in KINDS
    )
    settings = json.loads((out / "pretrain" / "bothways.json").read_text())["settings"]
    assert settings["corpus"] == [str(out / "text" / "train_books.jsonl")]


def test_the_page_has_all_results_and_loads_nothing(shortened):
    out, _, figures = shortened
    page = (out / "demo.html").read_text(encoding="utf-8")
    for text in ("One word, several senses", "Search by meaning", "Which sentence follows?", "Gaps"):
        assert text in page
    assert page.count("<svg") >= len(demo.read_texts()["senses"])
    assert not any(part in page for part in ("<script", "http:", "https:"))
    assert f"{figures['all']['accuracy']:.1%}" in page and "this model" in page
    assert page.index("One word, several senses") < page.index("Where it fails") < page.index("Go on")
    links = re.findall(r'<a href="([^#"]+)"', page)
    assert links and all((out / link).exists() for link in links)
    assert "How this was made" in page and "How this model was trained" not in page


def test_the_commands_it_prints_work(shortened, capsys):
    from bothways.cli import info

    out, printed, _ = shortened
    is_command = re.compile(r"   \S*bothways (predict|check|serve) ")
    commands = [shlex.split(line) for line in printed.splitlines() if is_command.match(line)]
    assert [words[1] for words in commands] == ["predict", "check", "serve"]
    main.main(commands[0][1:])
    label = json.loads(capsys.readouterr().out)["label"]
    python = printed[printed.rindex("   import bothways") :].splitlines()
    exec("\n".join(line.strip() for line in python))
    assert capsys.readouterr().out == f"{label}\n"
    assert commands[2][2] == str(out / "all") and "\n".join(line.strip() for line in python[:2]) in html_text(out)
    assert info.describe(out)["status"] == "done" and info.describe(out)["run"] == "demo"
    for part in ("pretrain", "all"):
        assert info.describe(out / part)["status"] == "done"


def test_the_held_out_novels_have_at_least_three_authors():
    books = demo.sample()
    assert len({book["author"] for book in books if book["split"] == "test"}) >= 3
