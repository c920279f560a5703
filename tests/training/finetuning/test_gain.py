"""A model for vectors is delivered only if its gain on dev is clear; else the model before training is."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import bothways
from bothways.measure import metrics
from bothways.model.checkpoint import checkpoint
from bothways.tasks.scores import Predictions, Scores
from bothways.training.finetuning import gain, seeds
from tests.training.finetuning.gallery import finish, pair_rows


def weights_of(directory):
    return checkpoint.load(directory).model.encoder.state_dict()


def are_equal(one, other):
    return all(torch.equal(value, other[name]) for name, value in one.items())


def mismatched(seed, number):
    """Texts with the pairs of others."""
    rows = pair_rows(seed, number)
    return [{**row, "pair": other["pair"]} for row, other in zip(rows, [*rows[1:], rows[0]], strict=True)]


@pytest.fixture(scope="module")
def harmful(gallery, table, tmp_path_factory):
    """A model that finds pairs, trained on wrong ones."""
    return replace(
        gallery.settings("embed"),
        model=gallery.embed.result.model_directory,
        train=table(mismatched(0, 96), "wrong.jsonl"),
        epochs=1.0,
        baselines=False,
        out=tmp_path_factory.mktemp("harmful") / "run",
    )


@pytest.fixture(scope="module")
def harmed(harmful):
    return finish(harmful)


def test_a_training_that_harms_delivers_the_model_before_it(harmed, harmful):
    result, dev = harmed.result, harmed.metadata["figures"]["dev"]
    assert result.frozen and dev["best_step"] == 0 and dev["ndcg@10"] == dev["baseline"]
    assert are_equal(weights_of(result.model_directory), weights_of(harmful.model))
    assert (result.model.embed("cat b c d") == bothways.load(harmful.model).embed("cat b c d")).all()


def test_the_trained_model_stays_in_the_run_and_opens(harmed, harmful):
    trained = harmed.result.directory / "trained"
    assert not are_equal(weights_of(trained), weights_of(harmful.model))
    scores = bothways.evaluate(trained, harmful.dev, dtype="float32")
    assert f"{scores['ndcg@10']:.2%} after it" in harmed.result.not_delivered


def test_the_first_line_says_that_the_trained_model_is_not_delivered(harmed):
    first, second, *_ = harmed.result.lines()
    assert first.startswith("not delivered: training was not clearly better on dev than the model before training: ")
    assert "(95 % interval, 45 rows)" in first and str(harmed.result.directory / "trained") in first
    assert second.startswith("test ndcg@10 ") and "no better than the simplest" not in second
    assert "not delivered" in repr(harmed.result) and "not delivered" in harmed.report


def test_the_json_names_the_reason_only_where_there_is_one(harmed, gallery):
    for run, is_there in ((harmed, True), (gallery.embed, False)):
        assert ("not_delivered" in run.result.to_json()) is is_there


def test_a_training_that_helps_is_delivered_without_another_model(gallery):
    result = gallery.embed.result
    assert result.not_delivered == "" and not result.frozen and not (result.directory / "trained").exists()
    assert bothways.open_run(result.directory).not_delivered == ""


def test_the_option_without_a_start_delivers_the_trained_model_anyway(harmful, tmp_path):
    result = finish(replace(harmful, linear_start=False, out=tmp_path / "run")).result
    assert result.not_delivered == "" and not result.frozen
    assert not are_equal(weights_of(result.model_directory), weights_of(harmful.model))


def test_scored_pairs_whose_scores_mean_nothing_deliver_the_model_before_training(harmful, table, tmp_path):
    draw = np.random.default_rng(0)
    rows = [{**row, "label": int(draw.integers(4))} for row in pair_rows(0, 90)]
    settings = replace(harmful, train=table(rows[:60], "s.jsonl"), dev=table(rows[60:], "d.jsonl"), test=None)
    run = finish(replace(settings, out=tmp_path / "run"))
    assert run.result.metric == "spearman" and "spearman" in run.result.not_delivered
    assert are_equal(weights_of(run.result.model_directory), weights_of(harmful.model))


@pytest.mark.parametrize(
    "place", [(gain, "write_trained"), (seeds, "score"), (gain, "load_file"), (gain, "finalize_all")]
)
def test_a_run_that_is_interrupted_resumes_to_the_same_files(place, harmed, harmful, tmp_path, monkeypatch):
    settings = replace(harmful, out=tmp_path / "run")

    def stop(*arguments, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(*place, stop)
        finish(settings)
    resumed = finish(replace(settings, resume=True)).result
    assert resumed.not_delivered == harmed.result.not_delivered.replace(str(harmful.out), str(settings.out))
    names = [{str(file.relative_to(out)) for file in out.rglob("*")} for out in (settings.out, harmful.out)]
    assert names[0] == names[1]
    for name in ("model", "trained"):
        one, other = ((out / name / "model.safetensors").read_bytes() for out in (settings.out, harmful.out))
        assert one == other


# --- the rule ---------------------------------------------------------------------------------------------------------


class FakeScoring:
    """Of one weight, by which all queries, or some, become better."""

    metric = "score"

    def __init__(self, slopes):
        self.slopes = np.array(slopes)

    def outputs(self, model, split):
        return model.weight.item()

    def compared_outputs(self, outputs):
        return [outputs]

    def predictions(self, split, weight):
        where = [f"query {row}" for row in range(len(self.slopes))]
        values = (0.5 + self.slopes * (weight if weight <= 0.5 else 1 - weight)).tolist()
        return Predictions(where, [None] * len(where), values, where, [None] * len(where))

    def score_predictions(self, predictions):
        values = {"score": predictions.predicted}
        mean = {"score": float(np.mean(predictions.predicted))}
        return Scores.with_intervals("score", mean, metrics.mean_intervals(values, predictions.groups))


@pytest.mark.parametrize(
    ("slopes", "kept"),
    [
        ([0.6] * 40, 0.5),  # all gain: the best point on the way
        ([-0.6] * 40, 0.0),
        ([0.0] * 40, 0.0),
        ([0.9] * 21 + [-0.9] * 19, 0.0),  # a gain that may be luck
        ([0.9] * 38 + [-0.9] * 2, 0.5),
        ([0.9] * 3, 0.0),  # too few queries to know
    ],
)
def test_the_best_point_is_kept_if_the_interval_of_its_gain_is_above_0(slopes, kept, tmp_path):
    model = torch.nn.utils.skip_init(torch.nn.Linear, 1, 1, bias=False)
    torch.nn.init.ones_(model.weight)
    task = SimpleNamespace(scoring=FakeScoring(slopes), initial_model="the start", metric="score")
    plan = SimpleNamespace(task=task, inference_copy=lambda model: model, quantizes=False)
    assert gain.select_gain(plan, model, {"weight": torch.zeros(1, 1)}, tmp_path) == kept
    assert model.weight.item() == kept
    stored = gain.Gain.read(tmp_path)
    assert stored.is_clear is (kept > 0) and stored.low <= stored.after - stored.before <= stored.high
    assert (tmp_path / gain.WEIGHTS).exists() is (kept == 0)


def test_with_several_sizes_of_vectors_the_gain_is_that_of_their_mean(gallery):
    from bothways.tasks.embed.files import read_pairs
    from bothways.tasks.embed.training import Embedding

    settings = replace(gallery.settings("embed"), matryoshka_dims=(2, 5))
    task = Embedding.build(settings, checkpoint.load(settings.model), read_pairs(settings))
    outputs = task.scoring.outputs(task.pretrained.model, "dev")
    score = gain.dev_score(SimpleNamespace(task=task), outputs)
    values = task.scoring.compute_metrics("dev", outputs)
    assert score.value == pytest.approx(np.mean([values[name] for name in ("ndcg@10_2", "ndcg@10_5", "ndcg@10")]))
