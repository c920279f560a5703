"""Each script in examples/ that takes no arguments runs as it is, leaves no files behind, and prints a result that
untrained weights or no prediction at all would not give."""

import os
import re
import runpy
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

import bothways
from bothways.cli.demo import read_sample

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def packaged():
    """The model in the package, read once; not to be changed."""
    return bothways.load()


EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
IN_SOAK = ("distill_small", "labels_to_model", "pretrain_tiny")  # soak/test_examples.py
TRACKERS = ("log_with_mlflow", "log_with_trackio", "log_with_wandb")  # tests/test_trackers.py
WITH_ARGUMENTS = ("measure_redaction", "redact_folder")  # tests/test_redaction.py


def check_classify_dataframe(output, packaged):
    accuracy = re.search(r"^accuracy (\d\.\d\d) on 187 messages; .+ against .+ 187 rows", output)
    assert float(accuracy[1]) > 2 / 7  # twice chance
    labels = re.findall(r"^(\w+) \(\d\.\d\d\): .+\.$", output, re.MULTILINE)
    assert len(labels) == 2 and {*labels} <= {row["label"] for row in read_sample("support.jsonl")}


def check_labels_to_model(output, packaged):
    head, *first = output.splitlines()[:4]
    assert head.startswith("file,row,")
    assert any(re.match(r"train,3,.*,praise,delivery,", line) for line in first)  # the wrong one
    assert re.search(r"^to label next: \['.+'\]$", output, re.MULTILINE)
    assert re.search(r"^accuracy +0\.\d+ +0\.\d+  difference [+-]0\.\d+ \(95 % interval", output, re.MULTILINE)
    assert output.endswith("['delivery', 'billing']\n")


def check_tag_entities(output, packaged):
    assert re.search(r"^F1 of entities \d\.\d\d on 3 sentences; .+", output)
    entities = re.findall(r"^(?:PER|LOC) (.+) \(\d\.\d\d\)$", output, re.MULTILINE)
    assert entities and all(text in "In spring Karen Jones travelled from Boston to Prague." for text in entities)


def check_answer_questions(output, packaged):
    assert re.search(r"^F1 \d+% on 3 questions after a few steps; .+ shares most words", output)
    passage = "Lena moved to Bern in 2019. She works for a bank."
    answers = re.findall(r"^'(.+)' \(characters (\d+) to (\d+), 0\.\d\d\)$", output, re.MULTILINE)
    assert len(answers) == 3 and all(passage[int(start) : int(end)] == text for text, start, end in answers)


def check_search_folder(output, packaged):
    assert output.startswith("5 passages of 3 files\n")
    found = re.findall(r"^  (\S+):(\d+)  (.*)$", output, re.MULTILINE)
    assert [(file, line) for file, line, _ in found] == [("terms.md", "8"), ("minutes.txt", "1"), ("mail.csv", "2")]
    assert "{'row': 0, 'year': 2009}" in found[2][2]


def check_embed_and_search(output, packaged):
    rows = read_sample("passages.jsonl")
    questions = [row["question"] for row in rows if "question" in row]
    shown = re.findall(r"^(.+)\n  (-?\d\.\d\d)  (.+)$", output, re.MULTILINE)
    assert [question for question, *_ in shown] == questions
    id_by_passage = {row["text"]: row["id"] for row in rows if "text" in row}
    expected = [row["id"] for row in rows if "question" in row]
    correct = sum(id_by_passage[text] == answer for (*_, text), answer in zip(shown, expected, strict=True))
    assert output.endswith(f"{correct} of 7 questions have the right passage first\n")
    assert all(0 < float(cosine) < 1 for _, cosine, _ in shown)


def check_pretrain_tiny(output, packaged):
    perplexity, unigram = re.search(r"^perplexity (\d+); (\d+) by word frequencies alone\n", output).groups()
    assert int(perplexity) < 0.7 * int(unigram)
    assert len(re.findall(r"^0\.\d\d \S+$", output, re.MULTILINE)) == 3


def check_distill_small(output, packaged):
    rows = re.findall(r"^step (\d+): cosine (0\.\d+), perplexity (\d+)$", output, re.MULTILINE)
    assert [step for step, *_ in rows] == ["2", "4"]
    assert 0.5 < float(rows[0][1]) < float(rows[1][1]) < 1  # the student comes closer to its teacher
    similar, different = re.search(r"(-?\d\.\d\d) \(similar\), (-?\d\.\d\d) \(different\)$", output.strip()).groups()
    assert float(similar) > float(different)


def check_serve_openai(output, packaged):
    """The cosines are those of the model in this process; each question finds its text."""
    pairs = {
        "When does the boat leave?": "The ferry departs at noon.",
        "What do kittens do all the time?": "Cats sleep most of the day.",
        "Did borrowing money become expensive?": "Interest rates rose again last month.",
    }
    shown = re.findall(r"^(.+)\n  (-?\d\.\d\d)  (.+)$", output, re.MULTILINE)
    assert {question: text for question, _, text in shown} == pairs
    for question, cosine, text in shown:
        first, second = packaged.embed([question, text])
        assert float(cosine) == pytest.approx(float(first @ second), abs=0.02)
    assert output.endswith(" tokens; the server ended with status 0\n")


def check_serve_requests(output, packaged):
    assert re.match(r"3 vectors of 384 numbers, space [0-9a-f]{32}\n", output)
    scored = re.findall(r"^(-?\d\.\d\d)  (.+)$", output, re.MULTILINE)
    ranks, guesses = scored[:3], scored[3:]
    assert ranks[0][1] == "The ferry departs at noon." and float(ranks[0][0]) > 2 * float(ranks[1][0])
    expected = packaged.fill("The [MASK] was built in the 19th century.", top=3)[0]
    assert [text for _, text in guesses] == [guess.text for guess in expected]
    for (score, _), guess in zip(guesses, expected, strict=True):
        assert float(score) == pytest.approx(guess.score, abs=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [script.stem for script in EXAMPLES if script.stem not in IN_SOAK + TRACKERS + WITH_ARGUMENTS]
)
def test_an_example_prints_a_result_and_leaves_no_files(name, packaged, tmp_path, monkeypatch, capsys):
    assert_prints_a_result_and_leaves_no_files(name, packaged, tmp_path, monkeypatch, capsys)


def assert_prints_a_result_and_leaves_no_files(name, packaged, tmp_path, monkeypatch, capsys):
    script = ROOT / "examples" / f"{name}.py"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(script)])
    with patch.dict(os.environ):  # in which torch, too, leaves something
        runpy.run_path(str(script), run_name="__main__")
    globals()[f"check_{name}"](capsys.readouterr().out, packaged)
    assert not [*tmp_path.iterdir()]


def test_an_example_is_short_and_says_how_to_run_it():
    assert len(EXAMPLES) == 10 + len(TRACKERS) + len(WITH_ARGUMENTS)
    for script in EXAMPLES:
        lines = script.read_text(encoding="utf-8").splitlines()
        has_arguments = script.stem in WITH_ARGUMENTS
        assert 20 <= len(lines) <= (150 if has_arguments else 45)
        calls = [line.split()[2:] for line in lines if line.startswith(f"    python examples/{script.name}")]
        assert calls and all(bool(arguments) == has_arguments for arguments in calls)
