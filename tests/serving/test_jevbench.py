"""JevBench's own client and engine ask a server on this machine: the laws that follow from how probabilities are made
hold, whatever the model."""

import pytest

from tests.serving.live import serving

jevbench = pytest.importorskip("jevbench")

CASE = {
    "id": "cats",
    "state": "the cat sat on the mat",
    "questions": {
        "sits": {"type": "noul", "instructions": "the cat sat"},
        "runs": {"type": "noul", "instructions": "a dog ran"},
        "animal": {
            "type": "choice",
            "instructions": "the",
            "criteria": {"cat": "a cat", "dog": "a dog", "mat": "on a mat", "cats": "the cats"},
        },
        "size": {"type": "score", "instructions": "a", "criteria": ["cat", "dog", "mat", "cats"]},
    },
}

# Of two wordings of a question only a model can know that they are one, so the other laws are not here.
GROUPS = ["REP.equivariance", "REP.binding", "REP.type", "BAT.isolation", "CHO.conditioning"]
LAWS = ["key_rename", "option_clone"]


@pytest.fixture(scope="module")
def report(decider, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "decider"
    decider.save(path)
    with serving(f"decider={path}", "--dtype", "float32") as running:
        backend = jevbench.systemone(f"{running.url}/v1/systemone", "decider")
        try:
            yield jevbench.evaluate(
                backend, cases=[jevbench.Case(**CASE)], groups=GROUPS, relations=LAWS, cache=None, min_n=1, bootstrap=0
            )
        finally:
            backend.client.close()


def test_each_request_is_answered(report):
    assert not report.errors, report.errors
    assert not report.scores["incomplete"]


def test_the_laws_that_need_no_model_hold(report):
    assert {"batch_order", "option_permutation", "noul_as_choice", "noul_as_score", "option_clone"} <= {
        *report.relations
    }
    assert report.relations == dict.fromkeys(report.relations, 1.0)


def test_they_hold_far_below_the_tolerance_of_the_benchmark(report):
    largest = max(outcome["deviation"] for outcome in report.result["outcomes"])
    assert largest < 1e-9
