"""Fine-tuning a reranker on synthetic rankings: the relevant passage of each query has a cat."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers

import bothways
from bothways.base.errors import InputError
from bothways.inference.ranking import rerank_order
from bothways.measure.metrics.intervals import difference_interval
from bothways.model.checkpoint import checkpoint
from bothways.settings import Evaluate, Rerank
from bothways.tasks.losses import list_loss
from bothways.tasks.rerank.decoding import Reranking
from bothways.tasks.rerank.files import read_ranking_tables
from bothways.tasks.rerank.scoring import MRR, NDCG, ranked_scores
from bothways.tasks.rerank.training import RerankTraining
from bothways.training.finetuning.ground.score import Score
from bothways.training.finetuning.refusal import refusal
from bothways.training.finetuning.seeds import SeedResult
from tests.training.finetuning.gallery import FILLERS, finish, forbid_writing, small_settings

PASSAGES = 5


def rank_rows(seed, queries, *, passages=PASSAGES):
    """Queries of common words, each with passages in random places of a search."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(queries):
        query = f"{seed} {number} {rng.choice(FILLERS)}"
        relevant = int(rng.integers(passages))
        for place in range(passages):
            words = [*rng.choice(FILLERS, 4).tolist(), "cat" if place == relevant else "dog"]
            text = f"{' '.join(rng.permutation(words).tolist())} {place}"
            rows.append({"query": query, "passage": text, "label": int(place == relevant), "rank": place + 1})
    return rows


@pytest.fixture(scope="module")
def settings(checkpoint_of, table, tmp_path_factory):
    splits = {name: table(rank_rows(seed, size)) for seed, (name, size) in enumerate(SIZES.items())}
    options = {"model": checkpoint_of(num_hidden_layers=1), "epochs": 6.0, "batch_tokens": None, "batch_size": 8}
    out = tmp_path_factory.mktemp("rerank") / "run"
    return small_settings(Rerank, **splits, **options, out=out, negatives=3, baselines=True)


SIZES = {"train": 90, "dev": 30, "test": 25}


@pytest.fixture(scope="module")
def run(settings):
    done = finish(settings)
    forbid_writing(settings.out)
    return done


@pytest.fixture(scope="module")
def refused(settings, tmp_path_factory):
    """A run that has learned nothing."""
    out = tmp_path_factory.mktemp("refused") / "run"
    done = finish(replace(settings, learning_rate=1e-12, epochs=0.1, out=out))
    forbid_writing(out)
    return done


def task_of(settings):
    return RerankTraining.build(settings, checkpoint.load(settings.model), read_ranking_tables(settings))


# --- what is learned --------------------------------------------------------------------------------------------------


def test_passages_learn_their_order(run):
    result = run.result
    assert (result.task, result.metric, result.split, result.rows) == ("rerank", NDCG, "test", SIZES["test"])
    assert result.mean > 0.95 and result.baselines["no reranking"] < 0.8 and result.not_delivered == ""
    assert run.metadata["figures"]["test"][f"{MRR}_interval"][1] <= 1


def test_the_first_message_has_the_order_without_reranking(run):
    task = task_of(run.settings)
    expected = task.scoring.score_predictions(task.scoring.scored("test", task.scoring.found("test")))[NDCG]
    assert "train: 90 queries with 450 passages, 90 of them relevant" in run.messages[0]
    assert f"test {NDCG} {expected:.4f}" in run.messages[0]
    assert run.result.baselines["no reranking"] == pytest.approx(expected)


def test_the_model_orders_what_a_search_found(run):
    model = run.predictor
    texts = ["the dog ran on", "a cat on the mat", "and the dog"]
    assert model.task == "rerank" and model.reads_pairs
    order, scores = rerank_order(model, "and the", texts)
    assert order[0] == 1 and scores == pytest.approx(model.rerank(["and the"] * 3, texts).tolist())


def test_the_model_has_the_weight_and_the_depth_of_its_measurement(run):
    reranking = Reranking.of(run.predictor.description.metadata)
    assert reranking == Reranking(run.metadata["figures"]["dev"]["weight"], PASSAGES)


def test_evaluate_gives_the_score_of_the_run(run, settings):
    scores = bothways.evaluate(Evaluate(model=settings.out, file=settings.test, dtype="float32"))
    assert scores[NDCG] == pytest.approx(run.result.mean, abs=1e-6) and scores["queries"] == SIZES["test"]
    low, high = scores[f"{MRR}_interval"]
    assert low < scores[MRR] <= high


def test_predictions_of_rows_are_scores(run):
    rows = [row for row in rank_rows(7, 2)]
    scores = run.predictor.rerank([row["query"] for row in rows], [row["passage"] for row in rows])
    assert scores.shape == (2 * PASSAGES,) and isinstance(run.predictor.rerank("a", "the cat"), float)


@pytest.mark.slow
def test_transformers_loads_the_model_with_the_same_scores(run):
    directory = run.result.model_directory
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(directory).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    with torch.no_grad():
        expected = theirs(**tokenizer("the mat", "a cat on the mat", return_tensors="pt")).logits
    assert run.predictor.rerank("the mat", "a cat on the mat") == pytest.approx(float(expected), abs=1e-5)


# --- not delivered ----------------------------------------------------------------------------------------------------


def test_the_message_on_a_model_that_is_no_better_than_no_reranking(refused, settings):
    result = refused.result
    line = result.not_delivered
    assert line.startswith(f"not delivered: on dev, {NDCG} is ") and "% with no reranking (30 queries)" in line
    assert {file.name for file in (result.directory / "model").iterdir()} == {"bothways.json"}
    assert "not delivered" in refused.report and "not delivered" in repr(result)


def test_the_first_printed_line_says_that_nothing_was_delivered(refused):
    lines = [*refused.result.lines()]
    assert lines[0] == refused.result.not_delivered
    assert f"trained model, not delivered, in {refused.result.directory / 'trained'}" in lines


@pytest.mark.parametrize("place", ["", "model"])
def test_the_message_on_loading_what_was_not_delivered(refused, place):
    with pytest.raises(InputError, match="not delivered: on dev, .*; the trained model is in .*trained"):
        bothways.load(refused.result.directory / place)


def test_the_trained_model_that_is_not_delivered_is_kept(refused):
    assert bothways.load(refused.result.directory / "trained", dtype="float32").task == "rerank"


@pytest.mark.parametrize("kind", ["best", "same", "worst"])
def test_a_model_is_delivered_if_its_lead_on_dev_is_clearly_above_none(settings, kind):
    task = task_of(settings)
    rows, found = task.rows["dev"], task.scoring.found("dev")
    values = {"best": rows.labels, "same": found, "worst": [-label for label in rows.labels]}[kind]
    scores = task.scoring.score_predictions(task.scoring.scored("dev", values))
    facts = {"dev": {NDCG: scores[NDCG], "rows": SIZES["dev"]}}
    kept = SeedResult(0, None, facts, {"dev": Score.of_scores("", scores, NDCG)}, None, None, {}, [])
    encoder = SimpleNamespace(kept=kept, scores=SimpleNamespace(folds=None))
    line = refusal(task, encoder, [])
    assert (line == "") == (kind == "best")
    if kind == "same":  # each query agrees with itself: the interval is that of so many queries alone
        low, high = difference_interval(0.0, np.zeros(200), SIZES["dev"])
        assert f"{100 * low:+.1f} to {100 * high:+.1f} points" in line


@pytest.mark.parametrize("learning_rate", [5e-3, 1e-12])
def test_with_folds_all_queries_decide(settings, table, tmp_path, learning_rate):
    options = {"train": table(rank_rows(3, 36)), "dev": None, "test": None, "folds": 2, "out": tmp_path / "run"}
    result = finish(replace(settings, **options, epochs=5.0, learning_rate=learning_rate)).result
    assert (result.not_delivered == "") == (learning_rate > 1e-3) and result.rows == 36
    if result.not_delivered:
        assert (
            result.not_delivered.startswith("not delivered: out-of-fold, ") and "(36 queries)" in result.not_delivered
        )


# --- rows and splits --------------------------------------------------------------------------------------------------


def test_splits_are_divided_by_query_and_near_duplicates_stay_together(settings, table):
    rows = rank_rows(3, 60)
    rows += [{**row, "query": f"{row['query'].upper()}!"} for row in rows]
    tables = read_ranking_tables(replace(settings, train=table(rows), dev=None, test=None))
    keys = {split: {*part.keys} for split, part in tables.items()}
    assert {split: len(one) for split, one in keys.items()} == {"train": 42, "dev": 12, "test": 6}
    assert sum(map(len, tables.values())) == len(rows) and not keys["train"] & (keys["dev"] | keys["test"])


def test_rows_of_an_unjudged_passage_are_read_by_no_step(settings, table):
    rows = [
        {**row, "label": None if row["rank"] == 1 and not row["label"] else row["label"]} for row in rank_rows(4, 9)
    ]
    task = task_of(replace(settings, train=table(rows)))
    for epoch in range(3):
        examples = task.training_examples(0, epoch)
        labels = [examples.texts.targets[row] for rows in examples.lists for row in rows]
        assert not np.isnan(labels).any() and max(examples.num_passages) <= 4


def test_each_epoch_draws_other_negatives_and_each_step_has_a_relevant_passage(settings):
    task = task_of(settings)
    first, again, second = (task.training_examples(0, epoch).lists for epoch in (0, 0, 1))
    assert first == again != second
    assert all(sum(task.data["train"].texts.targets[rows] > 0) == 1 and len(rows) == 4 for rows in first)


def test_relevant_passages_take_at_most_half_of_the_places_unless_others_are_few(settings, table):
    many = [
        {"query": "a", "passage": f"the cat {place}", "label": int(place < 8), "rank": place + 1} for place in range(10)
    ]
    task = task_of(replace(settings, train=table(many), negatives=5))
    (rows,) = task.training_examples(0, 0).lists
    assert sum(task.data["train"].texts.targets[rows] > 0) == 4 and len(rows) == 6


def test_queries_from_which_nothing_can_be_learned_are_left_out_with_a_warning(settings, table):
    alone = [{"query": "only cats", "passage": "a cat", "label": 1, "rank": 1}]
    task = task_of(replace(settings, train=table([*rank_rows(5, 8), *alone])))
    assert len(task.data["train"].lists) == 8
    assert any(warning.startswith("1 query of train are left out") for warning in task.report.warnings)


def test_without_ranks_the_baseline_is_an_order_of_words(settings, table):
    splits = {
        name: table([{key: row[key] for key in ("query", "passage", "label")} for row in rank_rows(seed, 12)])
        for seed, name in enumerate(("train", "dev", "test"))
    }
    task = task_of(replace(settings, **splits))
    assert task.scoring.weights == (1.0,) and task.reranking == Reranking()
    assert sorted(task.ranks("dev")[:PASSAGES]) == [1, 2, 3, 4, 5]
    assert any("no column has the rank or the score of a search" in line for line in task.report.warnings)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train": None}, "train is missing: name rows of query, passage and label"),
        ({"train": None, "negatives_from": "there"}, "train is missing"),
        ({"negatives_from": "there"}, "negatives_from \\(there\\) needs --pairs"),
        ({"pairs": "clicks.jsonl"}, "pairs \\(clicks.jsonl\\) stands in for --train"),
        ({"teacher": "there"}, "teacher \\(there\\) has no use for a reranker"),
    ],
)
def test_the_message_on_options_that_do_not_fit(settings, options, message):
    with pytest.raises(InputError, match=message):
        replace(settings, **options)


# --- formulas ---------------------------------------------------------------------------------------------------------


def test_the_loss_is_the_cross_entropy_of_each_list():
    scores, labels = torch.tensor([0.5, -1.0, 2.0, 0.25, 3.0]), torch.tensor([1.0, 0.0, 3.0, 0.0, math.nan])
    total, number = list_loss(scores, labels, [2, 3])
    first = -math.log(math.exp(0.5) / (math.exp(0.5) + math.exp(-1)))
    second = -math.log(math.exp(2) / (math.exp(2) + math.exp(0.25)))
    assert number == 2 and float(total) == pytest.approx(first + second)


def test_graded_labels_are_the_target_distribution():
    scores, labels = torch.tensor([1.0, 2.0, -1.0]), torch.tensor([1.0, 3.0, 0.0])
    total, _ = list_loss(scores, labels, [3])
    logs = torch.log_softmax(scores, 0)
    assert float(total) == pytest.approx(float(-(logs[0] / 4 + 3 * logs[1] / 4)))


def test_a_list_without_a_relevant_passage_adds_nothing():
    assert float(list_loss(torch.tensor([1.0, 2.0]), torch.tensor([0.0, math.nan]), [2])[0]) == 0


def test_a_relevant_passage_that_the_search_did_not_find_counts_against_every_order():
    labels, units = [1.0, 1.0, 0.0, None], ["q"] * 4
    scores = ranked_scores(labels, [2.0, None, 3.0, 1.0], units)["q"]
    ideal = 1 + 1 / math.log2(3)
    assert scores[NDCG] == pytest.approx((1 / math.log2(3)) / ideal) and scores[MRR] == 0.5


@pytest.mark.parametrize("weight", [1.0, 0.5, 0.25])
def test_the_combined_order_is_that_of_the_weighted_sum(weight):
    reranking = Reranking(weight)
    scores = np.random.default_rng(0).normal(size=9).tolist()
    sums = [weight * score - (1 - weight) * math.log(rank) for rank, score in enumerate(scores, 1)]
    assert reranking.order(scores) == np.argsort(-np.array(sums), kind="stable").tolist()
    assert reranking.combined(scores[0], None) == scores[0]


def test_equal_scores_stay_in_the_order_of_the_search():
    assert Reranking(1.0).order([1.0, 2.0, 1.0, 2.0]) == [1, 3, 0, 2]


# --- kill and resume --------------------------------------------------------------------------------------------------


def test_a_stopped_run_resumes_to_the_same_model(settings, tmp_path):
    short = replace(settings, epochs=1.0, baselines=False, checkpoint_every=3, out=tmp_path / "whole")
    whole = finish(short).result
    stopped = replace(short, out=tmp_path / "stopped")

    def stop(row):
        if row["split"] == "train" and row["step"] == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bothways.train(stopped, callbacks=[stop])
    again = finish(replace(stopped, resume=True)).result
    places = [one.directory / ("trained" if one.not_delivered else "model") for one in (whole, again)]
    weights = [(place / "model.safetensors").read_bytes() for place in places]
    assert weights[0] == weights[1] and whole.scores == again.scores


@pytest.fixture(scope="module")
def clicks(table):
    """A folder of notes, and queries with the note that was read."""
    rows = rank_rows(8, 24)
    notes = table([{"text": row["passage"]} for row in rows], "notes.csv").parent
    return notes, table([{"query": row["query"], "passage": row["passage"]} for row in rows if row["label"]])


def mined(settings, clicks, out):
    notes, pairs = clicks
    options = {"train": None, "dev": None, "test": None, "pairs": pairs, "negatives_from": notes, "passages": 6}
    return replace(settings, **options, epochs=1.0, baselines=False, out=out)


def test_pairs_are_mined_from_a_folder_then_learned(settings, clicks, tmp_path):
    result = finish(mined(settings, clicks, tmp_path / "run")).result
    rows = [json.loads(line) for line in (tmp_path / "run" / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len({row["query"] for row in rows}) == 24 and {0.0, 1.0} <= {row["label"] for row in rows}
    assert result.directory == tmp_path / "run" and sum(row["label"] == 1 for row in rows) >= 24


def test_a_finished_file_of_mined_rows_is_used_again(settings, clicks, tmp_path, monkeypatch):
    run = mined(settings, clicks, tmp_path / "run")

    def stop(row):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bothways.train(run, callbacks=[stop])
    before = (tmp_path / "run" / "rows.jsonl").read_bytes()
    monkeypatch.setattr("bothways.search.mining.open_pairs", lambda *settings: pytest.fail("mined again"))
    finish(replace(run, resume=True))
    assert (tmp_path / "run" / "rows.jsonl").read_bytes() == before
    with pytest.raises(InputError, match="was mined with passages 6, not 4"):
        bothways.train(replace(run, resume=True, passages=4))


def test_mined_rows_stay_if_the_run_stops_before_its_first_step(settings, clicks, tmp_path, monkeypatch):
    run = mined(settings, clicks, tmp_path / "run")

    def stop(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("bothways.training.finetuning.finetune.train_seeds", stop)
        with pytest.raises(KeyboardInterrupt):
            bothways.train(run)
    assert {file.name for file in run.out.glob("rows*")} == {"rows.jsonl", "rows.json"}
    monkeypatch.setattr("bothways.search.mining.open_pairs", lambda *settings: pytest.fail("mined again"))
    assert finish(replace(run, resume=True)).result.directory == run.out


def test_a_mining_that_was_stopped_leaves_no_rows(settings, clicks, tmp_path, monkeypatch):
    run = mined(settings, clicks, tmp_path / "run")
    done = []

    def stop(*arguments):
        done.append(arguments)
        if len(done) == 7:
            raise KeyboardInterrupt
        return []

    with monkeypatch.context() as patched:
        patched.setattr("bothways.search.negatives.query_rows", stop)
        with pytest.raises(KeyboardInterrupt):
            bothways.train(run)
    assert not [*(tmp_path / "run").glob("rows*")]
    assert finish(replace(run, resume=True)).result.directory == tmp_path / "run"


def test_a_directory_with_a_run_is_refused_before_anything_is_mined(settings, clicks, run, monkeypatch):
    monkeypatch.setattr("bothways.search.mining.open_pairs", lambda *settings: pytest.fail("mined again"))
    with pytest.raises(InputError, match="already contains a run"):
        bothways.train(mined(settings, clicks, settings.out))
