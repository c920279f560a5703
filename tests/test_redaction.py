"""The recipe for redaction in examples/: exact copies, one placeholder for a name, refusals, and what is missed."""

import json
import os
import re
import runpy
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import bothways
from bothways.cli import main
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint
from bothways.search.readers import read_parts
from bothways.tasks.tag.decoding import word_probabilities

EXAMPLES = Path(__file__).parent.parent / "examples"
FOLDER = runpy.run_path(str(EXAMPLES / "redact_folder.py"))
MEASURE = runpy.run_path(str(EXAMPLES / "measure_redaction.py"))
LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
PLACEHOLDER = re.compile(r"\[[A-Z]+_[0-9]+\]")
FILES = {
    "a.txt": "the cat sat on a mat\n\nand the dog ran é \U0001f600 a cat",
    "b.md": "---\nauthor: cat\n---\n# dog\r\n\r\na cat ran on the mat\r\n",
    "more/c.csv": 'name,note\na cat,"the dog sat\non the mat"\nthe dog,a cat ran\n',
    "more/page.html": "<h1>dog</h1><p>the cat &amp; the dog</p>",
}


@pytest.fixture(scope="module")
def tagger(make_model, tokenizer, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "tagger"
    model = make_model("bert", {"tokens": len(LABELS)}, max_position_embeddings=512)
    checkpoint.save(Checkpoint(model, tokenizer, labels=LABELS), path)
    return path


@pytest.fixture
def documents(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        file = Path("documents", name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8", newline="")
    return Path("documents")


def write_facts(*facts, path="facts.jsonl"):
    """A table as `extract` writes it, of (file, label, text, group) where the text is found first."""
    with Path(path).open("w", encoding="utf-8") as file:
        for name, label, text, group in facts:
            read = FILES[name].replace("\r\n", "\n")
            start = read.index(text)
            fact = {"path": f"documents/{name}", "kind": "entity", "name": label, "text": text, "group": group}
            place = {"start": start, "end": start + len(text), "page": None}
            place["line"] = 1 + read.count("\n", 0, start)
            file.write(json.dumps(fact | place) + "\n")
    return Path(path)


def test_copies_differ_from_what_was_read_by_their_placeholders_alone(tagger, documents, tmp_path):
    main.main(["extract", str(documents), "--tag", str(tagger), "-o", "facts.jsonl"])
    facts = [*map(json.loads, Path("facts.jsonl").read_text(encoding="utf-8").splitlines())]
    FOLDER["redact"](Path("facts.jsonl"), documents, tmp_path / "redacted")
    group_by_placeholder = {}
    for name in FILES:
        copy = tmp_path / "redacted" / (name if name in ("a.txt", "b.md") else f"{name}.txt")
        text = copy.read_bytes().decode()
        found = [fact for fact in facts if fact["path"] == str(documents / name)]
        assert found

        placeholders = PLACEHOLDER.findall(text)
        for fact, placeholder in zip(found, placeholders, strict=True):
            assert group_by_placeholder.setdefault(placeholder, fact["group"]) == fact["group"]
            text = text.replace(placeholder, fact["text"], 1)
        assert text == "\n\n".join(part.text for part in read_parts(documents / name)) + "\n"
    names = json.loads(Path("facts.names.json").read_text(encoding="utf-8"))
    assert names == {group: placeholder for placeholder, group in group_by_placeholder.items()}


def test_a_name_has_one_placeholder_in_all_files_and_in_later_runs(documents):
    facts = write_facts(("a.txt", "ANIMAL", "cat", "cat"), ("a.txt", "THING", "mat", "mat"))
    FOLDER["redact"](facts, documents, Path("one"))
    assert Path("one/a.txt").read_text(encoding="utf-8").startswith("the [ANIMAL_1] sat on a [THING_1]\n")

    # New names get new numbers, and a name with another label is the same name.
    write_facts(("b.md", "ANIMAL", "dog", "dog"), ("b.md", "THING", "a cat", "cat"))
    FOLDER["redact"](facts, documents, Path("two"))
    assert Path("two/b.md").read_text() == "# [ANIMAL_2]\n\n[ANIMAL_1] ran on the mat\n"


def touch_later(documents):
    os.utime(documents / "more/page.html", (4e9, 4e9))


def change_before(documents):
    """Only its offsets tell, since the table is newer."""
    (documents / "a.txt").write_text(" " + FILES["a.txt"], encoding="utf-8")
    os.utime("facts.jsonl", (4e9, 4e9))


def move_old_file_in(documents):
    time.sleep(0.05)  # more than a tick of the times of files
    Path("old.txt").write_text("a cat")
    os.utime("old.txt", (1, 1))
    Path("old.txt").rename(documents / "old.txt")


def remove_facts(documents):
    Path("facts.jsonl").unlink()


def remove_file(documents):
    (documents / "a.txt").unlink()


def make_out(documents):
    Path("redacted").mkdir()


@pytest.mark.parametrize("change", [touch_later, change_before, move_old_file_in, remove_facts, remove_file, make_out])
def test_nothing_is_written_over_other_files_or_from_files_that_changed(change, documents):
    facts = write_facts(("a.txt", "ANIMAL", "cat", "cat"))
    change(documents)
    with pytest.raises(SystemExit) as stopped:
        FOLDER["redact"](facts, documents, Path("redacted"))
    assert isinstance(stopped.value.code, str)  # a line for people, and status 1
    assert not [*Path().rglob("redacted/*")]
    assert not Path("facts.names.json").exists()


def test_a_file_that_cannot_be_read_has_no_copy(documents):
    (documents / "bad.docx").write_bytes(b"no archive")
    FOLDER["redact"](write_facts(("a.txt", "ANIMAL", "cat", "cat")), documents, Path("redacted"))
    assert sorted(path.name for path in Path("redacted").rglob("*.*")) == [
        "a.txt",
        "b.md",
        "c.csv.txt",
        "page.html.txt",
    ]


# --- what is missed ---------------------------------------------------------------------------------------------------


@dataclass
class Found:
    start: int
    end: int


@dataclass
class FixedTagger:
    """Finds the same spans in each text."""

    spans: list

    def tag(self, texts):
        return [[Found(*span) for span in self.spans] for _ in texts]


CONLL = "Ada B-PER\nLovelace I-PER\nsaw O\nNew B-LOC\nYork I-LOC\n\n"


@pytest.mark.parametrize(
    ("spans", "missed", "hidden"),
    [
        ([], ["PER", "LOC"], [False]),
        ([(0, 12)], ["LOC"], [False]),
        ([(0, 3), (4, 12), (17, 25)], [], [False]),  # the space between two placeholders hides nothing
        ([(0, 11), (17, 25)], ["PER"], [False]),  # one letter is visible
        ([(0, 25)], [], [True]),
        ([(14, 25)], ["PER"], [False]),  # of "saw", "s" is visible
    ],
)
def test_an_entity_is_missed_if_one_of_its_letters_is_visible(spans, missed, hidden, tmp_path):
    rows = tmp_path / "rows.conll"
    rows.write_text(CONLL)
    entities, needless = MEASURE["measure"](FixedTagger(spans), MEASURE["read_documents"](rows))
    assert [label for is_missed, _, label, _ in entities if is_missed] == missed
    assert needless == hidden


def test_rows_of_characters_and_of_words_are_the_same_entities(tmp_path):
    text = "Ada Lovelace saw New York"
    entities = [{"start": 0, "end": 12, "label": "PER"}, {"start": 17, "end": 25, "label": "LOC"}]
    (tmp_path / "rows.jsonl").write_text(json.dumps({"text": text, "entities": entities}))
    (tmp_path / "rows.conll").write_text(CONLL)
    for name in ("rows.jsonl", "rows.conll"):
        (document,) = MEASURE["read_documents"](tmp_path / name)
        assert document.text == text + "\n"
        assert document.entities == [("PER", 0, 12), ("LOC", 17, 25)]
        assert document.outside == [(13, 16)]


@pytest.mark.parametrize("threshold", [0.2, 0.5, 0.7])
def test_a_label_wins_from_its_threshold_beside_outside_on(threshold, tagger, tmp_path):
    words = FILES["a.txt"].split()
    original = bothways.load(tagger, dtype="float32")
    windows, scores = original._tag_scores([" ".join(words)], {})
    probability_WC = word_probabilities(windows[0], scores[0], words)
    outside_W = probability_WC[:, 0]
    label_W = probability_WC[:, 1:].max(1)
    with np.errstate(invalid="ignore"):  # words that the tokenizer drops have no probabilities
        expected = label_W / (label_W + outside_W) > threshold

    model = MEASURE["load_tagger"](tagger, threshold)
    assert [tag != "O" for tag in model.tag_words(words)] == expected.tolist()
    model.save(tmp_path / "redactor")
    assert bothways.load(tmp_path / "redactor", dtype="float32").tag_words(words) == model.tag_words(words)


def test_what_is_printed_falls_with_the_threshold_and_a_tagger_is_written(tagger, tmp_path, capsys):
    (tmp_path / "rows.conll").write_text("the O\ncat B-PER\nsat O\non O\na O\nmat B-LOC\n\ndog B-PER\nran O\n\n" * 3)
    MEASURE["main"](str(tagger), str(tmp_path / "rows.conll"))
    table = re.findall(r"^ *(0\.\d+) +(\d+\.\d) % missed \((\d.*) to (\d.*)\)", capsys.readouterr().out, re.MULTILINE)
    assert [float(threshold) for threshold, *_ in table] == [*MEASURE["THRESHOLDS"]]
    missed = [float(share) for _, share, _, _ in table]
    assert missed == sorted(missed, reverse=True)
    assert missed[0] > missed[-1]
    assert all(float(low) <= float(share) <= float(high) for _, share, low, high in table)

    MEASURE["main"](str(tagger), str(tmp_path / "rows.conll"), "0.9", str(tmp_path / "redactor"))
    printed = capsys.readouterr().out
    assert len(re.findall(r">(?:cat|mat|dog)<", printed)) == round(9 * missed[0] / 100)
    assert bothways.load(tmp_path / "redactor").labels == LABELS


@pytest.mark.parametrize(
    ("rows", "threshold"),
    [("a O\n", None), ("a NOUN\nb VERB\n", None), (CONLL, "0"), (CONLL, "1.5"), (CONLL, "all"), (CONLL, "nan")],
)
def test_rows_without_entities_and_impossible_thresholds_are_refused(rows, threshold, tagger, tmp_path):
    (tmp_path / "rows.conll").write_text(rows)
    with pytest.raises(SystemExit) as stopped:
        MEASURE["main"](str(tagger), str(tmp_path / "rows.conll"), threshold, str(tmp_path / "out"))
    assert isinstance(stopped.value.code, str)
    assert not (tmp_path / "out").exists()
