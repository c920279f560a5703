"""The demo, much shortened: all steps run, and the output is complete."""

import json
import re
import shlex

import pytest

from bothways.cli import demo, main
from bothways.settings import Demo

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shortened(tmp_path_factory):
    """Some paragraphs of each novel, hardly any training, few masks."""
    whole = demo.sample()
    short = [{**book, "text": "\n\n".join(book["text"].split("\n\n")[5:15])} for book in whole]
    patch = pytest.MonkeyPatch()
    patch.setattr(demo, "sample", lambda: short)
    patch.setattr(demo, "NUM_SENTENCES", 9)
    out, told = tmp_path_factory.mktemp("demo") / "a demo", []
    patch.setattr(demo, "print_lines", lambda *lines: told.extend(lines))
    figures = demo.run(Demo(out=out, minutes=0.02, dtype="float32"))
    patch.undo()
    return out, "\n".join(told), figures


def test_all_five_steps_run(shortened):
    _, told, _ = shortened
    assert re.findall(r"^(\d)\. ", told, re.MULTILINE) == ["1", "2", "3", "4", "5"]
    assert "Done in" in told


def test_the_classifier_is_compared_with_baselines_and_has_an_interval(shortened):
    _, told, figures = shortened
    assert re.search(r"this BERT +[\d.]+% \(95 % interval [\d.]+% to [\d.]+%\), one seed", told)
    assert {*figures["baselines"]} >= {"most frequent answer", "TF-IDF + logistic regression"}
    for name, score in figures["baselines"].items():
        assert re.search(rf"{re.escape(name)} +{score:.1%}", told)
    assert re.search(r"   (better|worse|cannot tell whether it is better) than .*% \(.*\) against [\d.]+%", told)
    assert re.search(rf"perplexity {figures['perplexity']:.0f} .*{figures['unigram_perplexity']:.0f}", told)


def test_examples_of_masks_and_new_text_are_shown_with_the_gold_answer(shortened):
    _, told, figures = shortened
    assert "[MASK]" in told and "guesses:" in told and figures["fills"]["masks"] <= 9
    assert told.count(", gold ") == 4 and "windows" in told


def test_held_out_novels_are_not_trained_on(shortened):
    out, _, _ = shortened
    texts = {name: (out / "text" / f"{name}.jsonl").read_text(encoding="utf-8") for name in ("train", "test")}
    train, test = ({json.loads(line)["text"] for line in text.splitlines()} for text in texts.values())
    assert train and test and not train & test
    settings = json.loads((out / "pretrain" / "bothways.json").read_text())["settings"]
    assert settings["corpus"] == [str(out / "text" / "train_books.jsonl")]
    tuned = json.loads((out / "authors" / "bothways.json").read_text())["settings"]
    assert tuned["train"].endswith("train.jsonl") and tuned["test"].endswith("test.jsonl") and tuned["dev"] is None


def test_the_commands_it_prints_work(shortened, capsys):
    from bothways.cli import info

    out, told, figures = shortened
    commands = [shlex.split(line) for line in told.splitlines() if line.startswith("   bothways ")]
    assert [words[1] for words in commands] == ["info", "fill", "predict"]
    for words in commands:
        main.main(words[1:])
    said = capsys.readouterr()
    assert str(out / "pretrain") in said.out and '"label"' in said.out and said.err == ""
    assert info.describe(out)["status"] == "done" and info.describe(out)["run"] == "demo"
    for part in ("pretrain", "authors"):
        assert info.describe(out / part)["status"] == "done"
        assert (out / part / "curves.png").exists() and (out / part / "model" / "model.safetensors").exists()
    assert figures["seconds"] > 0


def test_the_held_out_novels_have_at_least_three_authors():
    books = demo.sample()
    assert len({book["author"] for book in books if book["split"] == "test"}) >= 3
