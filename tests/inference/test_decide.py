"""Options named when one asks: the same answers by every library, whatever else is asked and read."""

import csv
import itertools
import json

import numpy as np
import pytest

from bothways.base.errors import InputError
from bothways.cli.main import main
from bothways.core.library import Absence, find_core
from bothways.evaluation.evaluate import run as evaluate
from bothways.inference.backends.statement_scores import statement_scores
from bothways.inference.load import load
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.checkpoint import save
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.statement_head import StatementHead
from bothways.settings import Evaluate, Predict
from bothways.tasks.decide.questions import Levels, OneOf, YesNo
from tests.random_statements import random_statements

SIZES = {"hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 96}
TEXTS = ["the rate of the cat", "a", "the dog, the cat and the rate of a dog!", "", "a dog", "the rate of the cat"]
OPTIONS = ["a cat", "the dog", "rate", "the cat and the dog", "a rate of cats"]
LIBRARIES = ["torch", "numpy", *([] if isinstance(find_core(), Absence) else ["core"])]
each = pytest.mark.parametrize("library", LIBRARIES)


@pytest.fixture
def directory(make_model, tokenizer, tmp_path):
    """A random model with a head that decides, saved."""
    model = make_model("bert", **SIZES)
    save(Checkpoint(model, tokenizer, statements=random_statements(model.config)), tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def model(directory, library):
    return load(directory, backend=library, dtype="float32")


def test_libraries_agree(directory):
    decisions = [load(directory, backend=library, dtype="float32").decide(TEXTS, OPTIONS) for library in LIBRARIES]
    for others in decisions[1:]:
        for decision, other in zip(decisions[0], others, strict=True):
            assert decision.probabilities == pytest.approx(other.probabilities, abs=1e-5)
            assert decision.none == pytest.approx(other.none, abs=1e-5)


@each
def test_a_decision_is_the_same_bits_whatever_else_is_asked_and_read(model):
    text = TEXTS[2]
    expected = model.decide(text, OPTIONS)
    for order in itertools.permutations(OPTIONS):
        assert model.decide(text, [*order]) == expected

    assert model.decide(TEXTS, OPTIONS)[2] == expected
    assert model.decide([*TEXTS] * 20, OPTIONS)[2] == expected

    questions = [YesNo("is it a dog?"), OneOf.of(OPTIONS), Levels(("a", "the", "rate"), "cat")]
    alone = [model.decide_each([text], [question])[0][0] for question in questions]
    assert model.decide_each([text], questions)[0] == alone
    assert model.decide_each([text], questions[::-1])[0] == alone[::-1]
    assert alone[1] == expected


@each
def test_texts_without_a_statement_are_read_as_the_encoder_reads_them(model):
    """The vector of the text that the head compares is the mean of its hidden states."""
    head = model.description.statements
    states_SH = model.hidden_states(TEXTS[0])
    seen = []

    class Recorder(StatementHead):
        def scores(self, text_H, statements_KH):
            seen.append(text_H)
            return super().scores(text_H, statements_KH)

    object.__setattr__(model.backend.description, "statements", Recorder(**vars(head)))
    model.decide(TEXTS[0], OPTIONS)
    np.testing.assert_allclose(seen[0], states_SH.mean(0), rtol=0, atol=1e-5)


@each
def test_a_long_text_has_the_score_of_the_window_that_fits_best(model):
    long = " ".join(["the cat and the dog of a rate"] * 12)
    windows = model.split([model.tokenizer.encode(long)], {"window": 32, "overlap": 8})[0]
    parts = [model.tokenizer.decode(window.ids[1:-1]) for window in windows]
    assert len({*parts}) > 2

    scores_N1 = statement_scores(model.encoder, parts, ["a cat"], {})
    assert len({*scores_N1[:, 0].tolist()}) > 1
    whole_11 = statement_scores(model.encoder, [long], ["a cat"], {"window": 32, "overlap": 8})
    assert whole_11[0, 0] == scores_N1.max()


@each
def test_what_cannot_be_decided_is_an_error(model):
    with pytest.raises(InputError, match="token"):
        model.decide("a cat", ["cat " * 300, "dog"])
    with pytest.raises(InputError, match="given twice"):
        model.decide("a cat", ["dog", "dog"])
    assert model.decide([], ["dog"]) == []


@each
def test_a_model_without_the_head_says_the_way_out(make_model, tokenizer, tmp_path, library):
    save(Checkpoint(make_model("bert", **SIZES), tokenizer), tmp_path / "plain")
    with pytest.raises(InputError, match="bothways-en"):
        load(tmp_path / "plain", backend=library, dtype="float32").decide("a cat", OPTIONS)


def test_the_head_stays_with_its_encoder_and_leaves_with_another(directory, tmp_path):
    loaded = checkpoint.load(directory)
    assert loaded.statements is not None
    save(loaded, tmp_path / "copy")
    assert load(tmp_path / "copy").decide("a cat", OPTIONS) == load(directory).decide("a cat", OPTIONS)


def test_the_command_line_decides(directory, tmp_path, capsys):
    main([*("decide", str(directory), "a cat"), *("--options", "a cat, the dog"), "--json"])
    decision = json.loads(capsys.readouterr().out)
    assert decision["probabilities"].keys() == {"a cat", "the dog"}
    assert decision["probabilities"] == load(directory).decide("a cat", ["a cat", "the dog"]).probabilities

    (tmp_path / "options.json").write_text(json.dumps({"animal": ["a cat", "the dog"], "number": "a rate"}))
    command = ["decide", str(directory), "a cat", "--options", str(tmp_path / "options.json"), "--no-none"]
    main([*command, "--json"])
    decision = json.loads(capsys.readouterr().out)
    assert decision["probabilities"].keys() == {"animal", "number"}
    assert decision["none"] == 0

    main(command)
    assert "animal" in capsys.readouterr().out


# --- files ------------------------------------------------------------------------------------------------------------

NAMED = "a cat,the dog,rate"


def test_rows_of_a_file_have_the_options_as_labels(directory, tmp_path):
    source = tmp_path / "rows.jsonl"
    source.write_text("\n".join(json.dumps({"text": text}) for text in TEXTS[:3]), encoding="utf-8")
    out = tmp_path / "decided.jsonl"
    main(["predict", str(directory), str(source), "--options", NAMED, "--question", "the", "-o", str(out)])
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    expected = load(directory).decide(TEXTS[:3], NAMED.split(","), question="the")
    for row, decision in zip(rows, expected, strict=True):
        assert row["label"] == decision.label
        assert row["none"] == pytest.approx(decision.none, abs=1e-5)
        assert row["scores"] == pytest.approx(decision.probabilities, abs=1e-5)

    table = tmp_path / "decided.csv"
    main(["predict", str(directory), str(source), "--options", NAMED, "--top", "2", "-o", str(table)])
    assert table.read_text(encoding="utf-8").splitlines()[0] == "row,line,label,score,none,scores"


def test_named_options_are_evaluated_beside_simple_baselines(directory, tmp_path, capsys):
    source = tmp_path / "rows.csv"
    labels = ("rate", "a cat", "weather")
    lines = ["text,label", *(f'"{text}",{label}' for text, label in zip(TEXTS[:3], labels, strict=True)), ""]
    source.write_text("\n".join(lines), encoding="utf-8")
    main(["evaluate", str(directory), str(source), "--options", NAMED, "--json"])
    scores = json.loads(capsys.readouterr().out)["metrics"]
    decisions = load(directory).decide(TEXTS[:3], NAMED.split(","))
    right = [one.label == label for one, label in zip(decisions, ("rate", "a cat", None), strict=True)]
    assert scores["accuracy"] == pytest.approx(np.mean(right))
    assert {"automated", "none_recall", "in_scope_accuracy", "calibration_error", "brier"} <= {*scores}
    assert [*scores["beside"]] == ["most frequent option", "TF-IDF of descriptions", "vectors alone"]


def test_rows_to_label_next_are_those_whose_option_is_uncertain(directory, tmp_path):
    source = tmp_path / "rows.jsonl"
    source.write_text("\n".join(json.dumps({"text": text}) for text in TEXTS[:3]), encoding="utf-8")
    out = tmp_path / "next.csv"
    main(["predict", str(directory), str(source), "--options", NAMED, "--label-next", "2", "-o", str(out)])
    rows = list(csv.DictReader(out.read_text(encoding="utf-8").splitlines()))
    model = load(directory).asking(NAMED.split(","))
    assert [row["text"] for row in rows] == [TEXTS[row] for row in model.label_next(TEXTS[:3], 2)]
    assert all(row["suggested"] in NAMED.split(",") for row in rows)


def test_files_and_options_that_do_not_belong_together_are_refused(directory, tmp_path):
    with pytest.raises(InputError, match="question .* belongs to --options; name the options, or leave it out"):
        Predict(model=directory, question="what?")
    with pytest.raises(InputError, match="options are missing"):
        load(directory).decide("a cat")
    source = tmp_path / "rows.csv"
    source.write_text("text,label\na,weather\nb,sports\n", encoding="utf-8")
    with pytest.raises(InputError, match="no label is an option of the model"):
        evaluate(Evaluate(model=directory, file=(source,), options=NAMED))
