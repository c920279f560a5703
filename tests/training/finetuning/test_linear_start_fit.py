"""Linear models fitted to the optimum, and the frozen features they read."""

from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, Ridge

from bothways.model.heads import ClassificationHead
from bothways.model.linear import linear_head, regressions
from bothways.model.losses import classification_loss, mse_loss
from bothways.settings import Classify
from bothways.tasks import forward, linear_start, training_task
from bothways.tasks.forward import text_scores
from bothways.tasks.losses import multi_label_loss, weighted_class_loss
from bothways.tasks.text_examples import TRAIN_WINDOWS, TextExamples
from bothways.tasks.training_task import text_reader
from bothways.text.data.columns import Table
from tests.token_windows import windows_of_sizes

N, H, C = 90, 7, 3


@pytest.fixture(scope="module")
def data():
    """Features of several scales, one of them constant, and noisy classes."""
    draw = np.random.default_rng(3)
    x_NH = draw.normal(size=(N, H)) * 10.0 ** np.arange(-3, 4) + draw.normal(size=H)
    x_NH[:, 4], x_NH[:, 5] = 2.0, 1e-30 * x_NH[:, 5]
    scores_NC = (x_NH - x_NH.mean(0)) / x_NH.std(0).clip(0.1) @ draw.normal(size=(H, C)) + draw.normal(size=(N, C))
    return torch.from_numpy(x_NH).float(), torch.from_numpy(scores_NC)


def standardized(x_NH):
    x_NH = x_NH.double()
    deviation_H = (x_NH.var(0, correction=0) + x_NH.square().mean(0) / 2**16).sqrt()
    return torch.where(deviation_H > 1e-6 * deviation_H.max(), (x_NH - x_NH.mean(0)) / deviation_H, 0.0).numpy()


@pytest.mark.parametrize("strength", [0.3, 0.01])
def test_classes_are_fitted_to_the_optimum_and_the_scaling_is_folded_back(data, strength):
    x_NH, labels_N = data[0], data[1].argmax(1)
    loss = partial(weighted_class_loss, weights_C=torch.ones(C))
    head = linear_head.fit((x_NH, labels_N), loss, C, strengths=[strength])
    peer = LogisticRegression(C=1 / (strength * N), tol=1e-9, max_iter=5000).fit(standardized(x_NH), labels_N)
    expected = peer.predict_proba(standardized(x_NH))
    assert np.abs(head(x_NH).softmax(-1).numpy() - expected).max() < 1e-3
    assert head.strength == strength and head.weight_CH.shape == (C, H)
    assert head.weight_CH[:, 5].abs().max() == 0  # a dead unit has no effect


def test_weights_of_classes_are_honoured(data):
    x_NH, labels_N = data[0], data[1].argmax(1)
    weights = torch.tensor([0.2, 1.0, 5.0])
    head = linear_head.fit((x_NH, labels_N), partial(weighted_class_loss, weights_C=weights), C, strengths=[0.1])
    peer = LogisticRegression(C=1 / (0.1 * N), tol=1e-9, max_iter=5000, class_weight=dict(enumerate(weights.tolist())))
    expected = peer.fit(standardized(x_NH), labels_N).predict_proba(standardized(x_NH))
    assert np.abs(head(x_NH).softmax(-1).numpy() - expected).max() < 1e-3


def test_a_head_chosen_by_a_metric_is_not_overconfident():
    """With few rows and many features the weakest penalty gives scores of hundreds; scaled down, the same labels."""
    draw = torch.Generator().manual_seed(0)
    x_NH = torch.randn(80, 60, generator=draw)
    labels_N = (x_NH[:, 0] + torch.randn(80, generator=draw) > 0).long()
    unseen_NH = torch.randn(500, 60, generator=draw)
    unseen_N = (unseen_NH[:, 0] + torch.randn(500, generator=draw) > 0).long()
    by_loss = linear_head.fit((x_NH, labels_N), classification_loss, 2, strengths=[1e-5])
    by_metric = linear_head.fit(
        (x_NH, labels_N), classification_loss, 2, strengths=[1e-5], score=lambda scores, targets: 1.0
    )
    assert by_loss(unseen_NH).argmax(1).equal(by_metric(unseen_NH).argmax(1))
    losses = [float(classification_loss(model(unseen_NH), unseen_N)[0]) / 500 for model in (by_loss, by_metric)]
    assert losses[0] > 3 and losses[1] < 1


def test_several_labels_are_fitted_each_by_itself(data):
    x_NH, labels_NC = data[0], (data[1] > 0).long()
    head = linear_head.fit((x_NH, labels_NC), partial(multi_label_loss, weights_C=torch.ones(C)), C, strengths=[0.1])
    for label in range(C):
        peer = LogisticRegression(C=1 / (0.1 * N), tol=1e-9, max_iter=5000)
        expected = peer.fit(standardized(x_NH), labels_NC[:, label]).predict_proba(standardized(x_NH))[:, 1]
        assert np.abs(head(x_NH).sigmoid()[:, label].numpy() - expected).max() < 1e-3


def test_numbers_are_a_ridge_regression(data):
    x_NH, numbers_N = data[0], data[1][:, 0].float()
    head = linear_head.fit((x_NH, numbers_N), number_loss, 1, strengths=[0.5])
    peer = Ridge(alpha=0.5 * N / 2).fit(standardized(x_NH), numbers_N.double())
    assert np.abs(head(x_NH)[:, 0].numpy() - peer.predict(standardized(x_NH))).max() < 1e-3


def number_loss(scores_N1, numbers_N):
    return mse_loss(scores_N1[:, 0], numbers_N)


def test_the_strength_is_the_one_that_does_best_on_dev_or_in_cross_validation(data):
    """Of labels drawn by chance the strongest penalty, of labels without noise a weak one."""
    draw = np.random.default_rng(0)
    x_NH = torch.from_numpy(draw.normal(size=(300, 20))).float()
    loss = partial(weighted_class_loss, weights_C=torch.ones(2))
    chance_N, clean_N = torch.from_numpy(draw.integers(0, 2, 300)), (x_NH[:, 0] > 0).long()
    for labels_N, rows in ((chance_N, slice(0, 100)), (clean_N, slice(0, 100))):
        train, dev = (x_NH[rows], labels_N[rows]), (x_NH[100:], labels_N[100:])
        strengths = [linear_head.fit(train, loss, 2, dev=held).strength for held in (None, dev)]
        assert all(strength == 3.0 if labels_N is chance_N else strength < 0.1 for strength in strengths)


def test_a_fit_computes_with_one_thread_and_so_gives_equal_bits_with_any_number(data):
    x_NH, labels_N = data[0], data[1].argmax(1)
    before, used = torch.get_num_threads(), set()

    def loss(scores_NC, targets):
        used.add(torch.get_num_threads())
        return weighted_class_loss(scores_NC, targets, torch.ones(C))

    torch.set_num_threads(2)
    linear_head.fit((x_NH, labels_N), loss, C, strengths=[0.1])
    assert used == {1} and torch.get_num_threads() == 2
    torch.set_num_threads(before)


def test_folds_hold_every_row_once_and_every_class_evenly():
    labels_N = torch.tensor([0] * 20 + [1] * 10 + [2] * 5)
    folds = regressions.fold_rows(labels_N.numpy(), np.arange(35), None, linear_head.FOLDS)
    assert sorted(row for _, rows in folds for row in rows.tolist()) == [*range(35)]
    assert all({*others.tolist()} == {*range(35)} - {*rows.tolist()} for others, rows in folds)
    assert all(torch.bincount(labels_N[rows]).tolist() == [4, 2, 1] for _, rows in folds)


def test_copies_of_a_row_are_in_one_fold_so_that_the_strength_is_that_without_copies():
    x_NH = torch.randn(60, 41, generator=torch.Generator().manual_seed(2))
    labels_N = (x_NH[:, 0] + 2 * torch.randn(60, generator=torch.Generator().manual_seed(3)) > 0).long()
    copies = torch.arange(60).repeat(5)
    units = [f"row {row}" for row in copies.tolist()]
    folds = regressions.fold_rows(labels_N[copies].numpy(), np.arange(300), units, linear_head.FOLDS)
    assert all({*copies[others].tolist()}.isdisjoint(copies[rows].tolist()) for others, rows in folds)
    strengths = {}
    for name, rows, groups in (
        ("once", torch.arange(60), None), ("copies", copies, None), ("grouped", copies, units)
    ):  # fmt: skip
        data = x_NH[rows], labels_N[rows]
        strengths[name] = linear_head.fit(data, classification_loss, 2, groups=groups).strength
        peers = regressions.fit(
            tuple(map(np.asarray, data)), (np.zeros((1, 41)), np.zeros(1, int)), "classes", 2, [1e-3, 1e-2, 1.0, 100.0],
            groups=groups,
        )  # fmt: skip
        strengths[f"{name}, baseline"] = peers[2]
    assert strengths["grouped"] == strengths["once"] > 10 * strengths["copies"]
    assert strengths["grouped, baseline"] <= strengths["once, baseline"] < strengths["copies, baseline"]


# --- features ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def texts(make_predictor, tmp_path_factory):
    predictor = make_predictor(heads={"classes": 2}, labels=("no", "yes"))
    table = Table(["the cat sat", "dog " * 80, "a dog ran and sat"], None, ["no", "yes", "no"], ["1", "2", "3"])
    folder = tmp_path_factory.mktemp("features")
    settings = Classify(model=folder, train=folder / "t.jsonl", out=folder / "run", window=32)
    policy = text_reader(settings.windows, predictor.checkpoint)[1]
    return predictor.module, TextExamples.encode(table, np.array([0, 1, 0]), predictor.tokenizer, policy)


def test_head_inputs_are_the_inputs_of_the_last_layer(texts, global_seed):
    model, examples = texts
    batch = examples.batch([0, 1, 2])
    with torch.inference_mode():
        read_NH = text_scores(forward.without_last_layer(model, "classes"), batch)
        head = model.heads["classes"]
        assert isinstance(head, ClassificationHead)
        assert torch.allclose(head.output(read_NH), text_scores(model, batch), atol=1e-6)


def test_frozen_texts_are_states_and_means_averaged_over_windows(texts):
    model, examples = texts
    frozen = linear_start.FrozenFeatures(model, {"train": examples})
    windows = examples.windows
    assert windows.num_windows[1] > 1
    for row, (start, end) in enumerate(pairwise(windows.bounds)):
        with torch.inference_mode():
            hidden = [model(windows.batch([window])) for window in range(start, end)]
        means = torch.stack([x_SH.mean(0) for x_SH in hidden]).mean(0)
        firsts = torch.stack([x_SH[0] for x_SH in hidden]).mean(0)
        assert torch.allclose(frozen["train"]["mean"][row], means, atol=1e-5)
        assert torch.allclose(frozen["train"]["head"][row], firsts, atol=1e-5)
    assert frozen["train"] is frozen["train"]  # computed once


def test_frozen_vectors_of_long_texts_are_of_some_windows_and_of_training_texts_of_few(texts, monkeypatch):
    model, examples = texts
    long = TextExamples(windows_of_sizes([[30] * 36] * 3), examples.targets, examples.units)
    most, few = linear_start.MAX_WINDOWS, TRAIN_WINDOWS
    assert long.windows.num_windows[0] > most > few

    def numbers():
        frozen = linear_start.FrozenFeatures(model, {"train": long, "dev": long})
        return [{*frozen.sample(split).windows.num_windows.tolist()} for split in ("train", "dev")]

    assert numbers() == [{most}, {most}]
    monkeypatch.setattr(linear_start, "FEW_TOKENS", 100)
    assert numbers() == [{few}, {most}]


def test_rows_are_drawn_until_there_are_enough():
    counts = [5] * 40
    rows = training_task.sample_rows(counts, 23, seed=0)
    assert len(rows) == 5 and rows == sorted(rows) and rows == training_task.sample_rows(counts, 23, seed=0)
    assert rows != training_task.sample_rows(counts, 23, seed=1) and training_task.sample_rows(
        counts, 10_000, seed=0
    ) == [*range(40)]


def test_the_strength_is_the_one_of_the_highest_score_and_of_equal_ones_the_lowest_loss():
    x_NH = torch.randn(300, 5, generator=torch.Generator().manual_seed(0))
    labels_N = (x_NH[:, 0] + torch.randn(300, generator=torch.Generator().manual_seed(1)) > 1.2).long()

    def chosen(score=None):
        return linear_head.fit(
            (x_NH, labels_N), classification_loss, 2, strengths=[10.0, 1.0, 0.1, 0.01], score=score
        ).strength

    assert chosen(lambda scores_NC, targets: float(scores_NC.abs().mean())) == 0.01
    assert chosen(lambda scores_NC, targets: -float((scores_NC[:, 0] - scores_NC[:, 1]).std())) == 10.0
    assert chosen(lambda scores_NC, targets: 1.0) == chosen()
