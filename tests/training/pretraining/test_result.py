"""Two pre-trainings side by side: perplexities have a difference only on the same held-out text."""

import json

import pytest

import bothways
from bothways.base.errors import InputError


@pytest.fixture
def make_run(tmp_path):
    def make(name, perplexity, text="a"):
        (tmp_path / name).mkdir()
        heldout = {"perplexity": perplexity, "loss": 2.5, "dtype": "float32", "measured_on": "a tenth"}
        metadata = {"verb": "pretrain", "heldout": heldout, "data": {"heldout": {"fingerprint": text, "tokens": 9}}}
        (tmp_path / name / "bothways.json").write_text(json.dumps(metadata))
        return bothways.open_run(tmp_path / name)

    return make


def test_perplexities_of_the_same_text_have_a_difference(make_run):
    comparison = make_run("one", 40.0).compare(make_run("two", 30.0))
    assert comparison.scores[0] == {"metric": "perplexity", "first": 40.0, "second": 30.0, "difference": -10.0}
    assert comparison.scores[1]["difference"] == 0.0 and len(comparison.scores) == 2


def test_perplexities_of_other_texts_have_none(make_run):
    comparison = make_run("one", 40.0).compare(make_run("two", 30.0, text="b"))
    assert comparison.scores[0] == {"metric": "perplexity", "first": 40.0, "second": 30.0}
    assert "held-out texts differ" in comparison.note


def test_the_metrics_of_a_pre_training_are_a_table(make_run):
    assert make_run("one", 40.0).metrics.to_dict("list") == {"metric": ["perplexity", "loss"], "value": [40.0, 2.5]}


def test_a_run_without_scores_is_not_opened(make_run, tmp_path):
    make_run("one", 40.0)
    (tmp_path / "one" / "bothways.json").write_text(json.dumps({"verb": "pretrain"}))
    with pytest.raises(InputError, match="not done"):
        bothways.open_run(tmp_path / "one")
