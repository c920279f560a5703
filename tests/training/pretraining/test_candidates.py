"""Candidates: the softmax of a micro-batch runs over its labels and words drawn by their frequency. V=97, E=5, M=13."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import bothways
from bothways.measure.report.training_curves import draw_curves
from bothways.model.config import SIZES
from bothways.model.families import FAMILIES
from bothways.model.vocabulary_scores import WordCandidates, candidate_cross_entropy, linear_cross_entropy
from bothways.settings import Pretrain
from bothways.text.batch import Batch
from bothways.text.corpus.candidates import CandidateRule, draw_candidates
from bothways.training.distributed import SINGLE_PROCESS
from bothways.training.pretraining import pretrain, recipes
from bothways.training.pretraining.objectives import (
    OneWay,
    PretrainingObjective,
    ReplacedTokens,
    candidates_of,
    samples_words,
)
from bothways.training.progress import loss_name, training_flops
from bothways.training.run import read_metrics
from tests.pictures import charts_of

V, E, M = 97, 5, 13
COUNTS_V = np.random.default_rng(3).zipf(1.5, V) % 1000
WORDS = "the cat sat on a mat and the dog ran to the barn while an owl looked over old red roofs at night".split()


def batch_of(labels_M):
    zeros_M = torch.zeros_like(labels_M)
    return Batch(
        input_ids=zeros_M,
        segment_ids=zeros_M,
        position_ids=zeros_M,
        lengths=torch.tensor([len(labels_M)]),
        masked_positions=torch.arange(len(labels_M)),
        masked_labels=labels_M,
    )


def leaves():
    generator = torch.Generator().manual_seed(7)
    shapes = ((M, E), (V, E), (V,))
    return [torch.randn(shape, generator=generator).requires_grad_() for shape in shapes]


LABELS_M = torch.arange(M) ** 2 % V


def test_all_words_as_candidates_give_the_full_loss_and_gradients():
    rule = CandidateRule.from_frequencies(COUNTS_V, V)
    drawn = candidates_of(draw_candidates(batch_of(LABELS_M), rule, seed=1, step=2, micro_batch=3))
    assert drawn.words_K.tolist() == list(range(V))

    ours, full = leaves(), leaves()
    loss = candidate_cross_entropy(*ours, drawn)
    expected = linear_cross_entropy(*full, LABELS_M)
    (3 * loss).backward()
    (3 * expected).backward()
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=1e-6)
    for value, other in zip(ours, full, strict=True):
        torch.testing.assert_close(value.grad, other.grad, rtol=1e-6, atol=1e-6)


def test_the_loss_over_candidates_is_of_the_slow_formula_and_its_gradient_is_dense():
    words_K = torch.tensor([2, 5, 30, 31, 96])
    corrections_K = torch.tensor([-0.5, 0.0, -2.0, -1.0, -0.25])
    labels_M = torch.arange(M) % 5
    ours, slow = leaves(), leaves()
    loss = candidate_cross_entropy(*ours, WordCandidates(words_K, corrections_K, labels_M))
    x_ME, weight_VE, bias_V = slow
    scores_MK = (x_ME @ weight_VE.t() + bias_V)[:, words_K] - corrections_K
    expected = F.cross_entropy(scores_MK, labels_M, reduction="sum")
    loss.backward()
    expected.backward()
    torch.testing.assert_close(loss, expected)
    for value, other in zip(ours, slow, strict=True):
        torch.testing.assert_close(value.grad, other.grad)
    others_V = np.setdiff1d(np.arange(V), words_K.numpy())
    assert ours[1].grad.layout is torch.strided and not ours[1].grad[others_V].any()


def test_words_are_drawn_as_often_as_their_probabilities_say_and_labels_always():
    rule = CandidateRule.from_frequencies(COUNTS_V, 21)
    assert rule.probabilities_V.sum() == pytest.approx(21)
    order_V = COUNTS_V.argsort(kind="stable")
    assert (np.diff(rule.probabilities_V[order_V]) >= 0).all()
    np.testing.assert_allclose(rule.corrections_V, 0.5 * np.log(rule.probabilities_V), rtol=1e-6)

    draws = 3000
    counts_V = np.zeros(V)
    label = int(order_V[0])
    for step in range(draws):
        drawn = draw_candidates(batch_of(torch.tensor([label])), rule, seed=0, step=step, micro_batch=1)
        counts_V[drawn.candidates.numpy()] += 1
        assert drawn.candidates[drawn.candidate_labels].tolist() == [label]

    assert counts_V[label] == draws
    p_V = np.delete(rule.probabilities_V, label)
    error_V = np.delete(counts_V, label) / draws - p_V
    assert (np.abs(error_V) < 4.5 * np.sqrt(p_V * (1 - p_V) / draws) + 1e-12).all()


def test_a_draw_depends_on_seed_step_and_micro_batch_alone():
    rule = CandidateRule.from_frequencies(COUNTS_V, 21)

    def words(seed, step, micro_batch):
        drawn = draw_candidates(batch_of(LABELS_M), rule, seed=seed, step=step, micro_batch=micro_batch)
        return tuple(drawn.candidates.tolist())

    addresses = [(seed, step, part) for seed in (0, 1) for step in (0, 5) for part in (0, 1)]
    first = [words(*address) for address in addresses]
    assert first[::-1] == [words(*address) for address in addresses[::-1]]
    assert len(set(first)) == len(addresses)


SETTINGS = Pretrain(corpus=("text.txt",), out="run", objective="masked", pairs="none", family="modernbert")


@pytest.mark.parametrize(
    ("changes", "vocab_size", "expected"),
    [
        ({}, 30_522, 4096),
        ({"model": "small"}, 30_522, 4096),
        ({"model": "medium"}, 30_522, 0),
        ({"model": "base"}, 30_522, 0),
        ({"model": "base", "objective": "forward"}, 30_522, 0),
        ({"model": "large"}, 30_522, 0),
        ({}, 8192, 0),
        ({"mask_rate": 0.02}, 30_522, 0),
        ({"recipe": "paper"}, 30_522, 0),
        ({"objective": "replaced"}, 30_522, 0),
        ({"objective": "forward"}, 30_522, 4096),
    ],
)
def test_candidates_are_for_models_whose_head_is_a_large_part_of_a_step(changes, vocab_size, expected):
    settings = replace(SETTINGS, **changes)
    config = FAMILIES[settings.family].new_config(SIZES[settings.model]).replace(vocab_size=vocab_size)
    complete = recipes.complete_settings(settings, config, 10**9)
    assert complete.candidates == expected
    assert ("4,096 candidates" in recipes.summary(settings, complete, config)) == (expected > 0)


def test_an_objective_of_ones_own_samples_words_only_if_its_class_says_so():
    class Silent(PretrainingObjective):
        pass

    class Willing(PretrainingObjective):
        samples_words = True

    assert samples_words(PretrainingObjective()) and samples_words(OneWay(halves=True)) and samples_words(Willing())
    assert not samples_words(Silent()) and not samples_words(ReplacedTokens())


class Stop(Exception):
    pass


@pytest.fixture
def train(tmp_path, monkeypatch):
    """Trains a tiny model, which has candidates in spite of its size."""
    lines = [" ".join(WORDS[start:] + WORDS[:start]) + ".\n\n" for start in range(21)]
    (tmp_path / "corpus.txt").write_text("".join(lines))
    monkeypatch.setattr(recipes, "CANDIDATES", 9)
    monkeypatch.setattr(recipes, "LEAST_SAVED", 0.0)
    sizes = dict(model="tiny", steps=20, batch_tokens=64, max_length=16, checkpoint_every=5, evaluate_every=20)

    def run(name, *, callbacks=(), **changes):
        options = {"corpus": tmp_path / "corpus.txt", "device": "cpu", **sizes, **changes}
        bothways.train(Pretrain(out=tmp_path / name, **options), callbacks=callbacks)
        return [row for row in read_metrics(tmp_path / name) if row["split"] == "train"]

    return run


def losses_of(rows):
    return [(row["step"], row["loss"], row["norm"], row.get("candidates")) for row in rows]


def test_a_resumed_run_draws_the_same_and_the_last_tenth_runs_over_all_words(train, monkeypatch):
    drawn = []

    def spy(batch, rule, **address):
        drawn.append(address["step"])
        return draw_candidates(batch, rule, **address)

    def stop(row):
        if row["step"] == 13:
            raise Stop

    monkeypatch.setattr(pretrain, "draw_candidates", spy)
    whole = train("whole")
    assert {*drawn} == {*range(18)}
    assert [row.get("candidates") for row in whole] == [9] * 18 + [None] * 2

    with pytest.raises(Stop):
        train("stopped", callbacks=[stop])
    assert losses_of(train("stopped", resume=True)) == losses_of(whole)

    drawn.clear()
    paper = train("paper", recipe="paper")
    assert not drawn and not any("candidates" in row for row in paper)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"objective": "boundary", "masking": "spans"},
        {"family": "deberta", "objective": "enhanced"},
        {"objective": "forward"},
    ],
    ids=lambda options: options.get("objective", "masked"),
)
def test_objectives_learn_the_same_over_all_words_as_candidates(options, train, monkeypatch):
    monkeypatch.setattr(recipes, "num_candidates", lambda *_: 0)
    full = train("full", steps=3, **options)
    monkeypatch.setattr(recipes, "num_candidates", lambda *_: 10**6)
    over_candidates = train("candidates", steps=3, **options)
    assert "candidates" in over_candidates[0]
    for row, other in zip(full, over_candidates, strict=True):
        assert row["loss"] == pytest.approx(other["loss"], abs=2e-5)
        assert row["norm"] == pytest.approx(other["norm"], rel=1e-4)


@pytest.fixture
def built(train, monkeypatch):
    """The set-up of a run, and its text."""
    kept = []

    def keep(*arguments):
        kept.extend(arguments)
        raise Stop

    monkeypatch.setattr(pretrain, "train", keep)
    with pytest.raises(Stop):
        train("kept", gradient_accumulation=2)
    setup, data, *_ = kept
    return setup, data


def test_two_processes_and_processes_that_build_ahead_draw_as_one(built):
    setup, data = built

    def batches(rank, world_size, first=0, device="cpu", builders=0):
        options = replace(setup.options, device=torch.device(device))
        made = replace(setup, builders=builders)
        steps = pretrain.build_steps(made, data, options, SimpleNamespace(rank=rank, world_size=world_size))(first)
        found = [[batch.candidates.tolist() for batch in next(steps)] for _ in range(3)]
        steps.close()
        return found

    alone = batches(0, 1)
    assert [len(step) for step in alone] == [2] * 3
    assert len({str(words) for step in alone for words in step}) == 6
    both = zip(batches(0, 2), batches(1, 2), strict=True)
    assert [first + second for first, second in both] == alone
    assert batches(0, 1, first=2)[0] == alone[2]
    assert batches(0, 1, device="meta", builders=2) == alone


def test_the_steps_of_some_minutes_are_weighed_by_how_many_run_over_candidates(built, monkeypatch):
    setup, data = built

    def timed(*_, steps, **__):
        is_over_candidates = {batch.candidates is not None for batch in next(steps(30))}
        return 0.5 if is_over_candidates == {True} else 1.0

    monkeypatch.setattr(pretrain, "seconds_per_step", timed)
    assert pretrain.mean_seconds_per_step(setup, data, SINGLE_PROCESS) == pytest.approx(0.55)
    full = replace(setup, candidates=None)
    assert pretrain.mean_seconds_per_step(full, data, SINGLE_PROCESS) == 1.0


def test_products_of_the_head_are_counted_over_the_candidates():
    config = SIZES["mini"]
    batch = batch_of(LABELS_M)
    fewer = replace(batch, candidates=torch.arange(21))
    saved = training_flops(config, batch) - training_flops(config, fewer)
    assert saved == 6 * M * config.hidden_size * (config.vocab_size - 21)


def test_no_line_of_the_curves_leads_from_losses_over_candidates_to_losses_over_all_words():
    rows = [{"split": "train", "step": step, "loss": 3.0 + step % 2, "learning_rate": 1e-3} for step in range(1, 21)]
    over_candidates = [{**row, "candidates": 9} if row["step"] <= 18 else row for row in rows]
    whole, divided = (
        next(iter(charts_of(draw_curves(drawn, title="run", levels={}).svg).items()))
        for drawn in (rows, over_candidates)
    )
    assert (whole[0], divided[0]) == ("Loss", "Loss (training: first over candidates, at last over all words)")
    for style in ("train", "series0"):  # the records, and the smoothed line
        assert [len(line) for line in whole[1].lines(style)] == [20]
        assert [len(line) for line in divided[1].lines(style)] == [18, 2]


def test_a_loss_over_candidates_is_named():
    assert loss_name({"split": "train", "candidates": 9}) == "loss over candidates"
    assert loss_name({"split": "train"}) == "loss"
    assert loss_name({"split": "heldout"}) == "held-out loss"
