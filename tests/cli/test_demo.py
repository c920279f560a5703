"""The demo, much shortened: it walks to its end and says what it promises."""

import json
import re
import shlex

import pytest

from bothways.cli import demo, main
from bothways.settings import Demo


@pytest.fixture(scope="module")
def shortened(tmp_path_factory):
    """The novels cut to some paragraphs each, hardly any training, few gaps."""
    whole = demo.sample()
    short = [{**book, "text": "\n\n".join(book["text"].split("\n\n")[5:15])} for book in whole]
    patch = pytest.MonkeyPatch()
    patch.setattr(demo, "sample", lambda: short)
    patch.setattr(demo, "NUM_GAPS", 9)
    out, told = tmp_path_factory.mktemp("demo") / "a demo", []
    patch.setattr(demo, "print_lines", lambda *lines: told.extend(lines))
    figures = demo.run(Demo(out=out, minutes=0.02, dtype="float32"))
    patch.undo()
    return out, "\n".join(told), figures


def test_it_walks_through_all_five_parts(shortened):
    _, told, _ = shortened
    assert re.findall(r"^(\d)\. ", told, re.MULTILINE) == ["1", "2", "3", "4", "5"]
    for part in ("Learn a vocabulary", "Pre-train a small BERT", "Fill gaps", "Fine-tune it", "Ask it about new text"):
        assert part in told
    assert "Done in" in told


def test_it_compares_itself_with_baselines_and_gives_an_interval(shortened):
    _, told, figures = shortened
    assert re.search(r"this BERT +[\d.]+% \(95 % interval [\d.]+% to [\d.]+%\), one seed", told)
    assert {*figures["baselines"]} >= {"most frequent answer", "TF-IDF + logistic regression"}
    for name, score in figures["baselines"].items():
        assert re.search(rf"{re.escape(name)} +{score:.1%}", told)
    assert re.search(r"   (not better|better) than .*% \(.*\) against [\d.]+%", told)
    assert re.search(r"perplexity \d+; by word frequency alone \d+", told)


def test_it_shows_gaps_and_new_text_with_the_truth_beside(shortened):
    _, told, figures = shortened
    assert "[MASK]" in told and "guessed:" in told and figures["fills"]["gaps"] <= 9
    assert told.count("it was ") == 4 and "windows" in told


def test_unread_books_stay_unread(shortened):
    out, _, _ = shortened
    texts = {name: (out / "text" / f"{name}.jsonl").read_text(encoding="utf-8") for name in ("train", "test")}
    train, test = ({json.loads(line)["text"] for line in text.splitlines()} for text in texts.values())
    assert train and test and not train & test
    settings = json.loads((out / "pretrain" / "bothways.json").read_text())["settings"]
    assert settings["corpus"] == [str(out / "text" / "train_books.jsonl")]
    tuned = json.loads((out / "authors" / "bothways.json").read_text())["settings"]
    assert tuned["train"].endswith("train.jsonl") and tuned["test"].endswith("test.jsonl") and tuned["dev"] is None


def test_its_commands_for_later_work_work_as_printed(shortened, capsys):
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


def test_the_novels_themselves_have_what_the_demo_needs():
    books = demo.sample()
    assert len({book["author"] for book in books if book["split"] == "test"}) >= 3
