"""Losses of pairs as (sum, count), against slow formulas and sentence-transformers."""

import math

import pytest
import torch

from bothways.tasks.losses import cosine_loss, matryoshka_loss, non_negatives, ranking_loss

N, H = 5, 7


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def distinct(texts):
    return torch.arange(texts * N).view(texts, N)


def cosine(a, b):
    return float(a @ b) / math.sqrt(float(a @ a) * float(b @ b))


class FixedVectors(torch.nn.Module):
    """Stands for a model of sentence-transformers: returns its input vectors."""

    def forward(self, features):
        return dict(features)

    def get_embedding_dimension(self):
        return H


def theirs(loss, vectors_RNH, labels=None):
    return loss([{"sentence_embedding": part.clone()} for part in vectors_RNH], labels).item()


@pytest.mark.parametrize("texts", [2, 3])
def test_each_text_finds_its_pair_among_all_by_cross_entropy(texts):
    vectors_RNH = draw(texts, N, H)
    value, number = ranking_loss(vectors_RNH, distinct(texts), temperature=0.2)
    expected = 0.0
    for row in range(N):
        scores = [cosine(vectors_RNH[0, row], other) / 0.2 for part in vectors_RNH[1:] for other in part]
        expected += math.log(sum(map(math.exp, scores))) - scores[row]
    assert (value.item(), number) == (pytest.approx(expected, rel=1e-5), N)


@pytest.mark.parametrize("texts", [2, 3])
def test_ranking_equals_that_of_sentence_transformers(texts):
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    vectors_RNH = draw(texts, N, H, seed=1)
    value, number = ranking_loss(vectors_RNH, distinct(texts), temperature=0.05)
    expected = theirs(MultipleNegativesRankingLoss(FixedVectors(), scale=20.0), vectors_RNH)
    assert value.item() / number == pytest.approx(expected, rel=1e-5)


def test_cosines_to_scores_equal_those_of_sentence_transformers():
    from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss

    vectors_RNH, scores_N = draw(2, N, H, seed=2), torch.tensor([0.0, 0.3, 1.0, 0.8, -0.5])
    value, number = cosine_loss(vectors_RNH, scores_N)
    assert number == N
    assert value.item() / number == pytest.approx(
        theirs(CosineSimilarityLoss(FixedVectors()), vectors_RNH, scores_N), rel=1e-5
    )


def test_several_sizes_equal_the_mean_of_those_of_sentence_transformers():
    from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss, MultipleNegativesRankingLoss

    vectors_RNH, sizes = draw(2, N, H, seed=3), [2, 3, H]
    value, number = matryoshka_loss(lambda part: ranking_loss(part, distinct(2), temperature=0.05), vectors_RNH, sizes)
    model = FixedVectors()
    expected = theirs(MatryoshkaLoss(model, MultipleNegativesRankingLoss(model, scale=20.0), sizes), vectors_RNH)
    assert number == N
    assert value.item() / number == pytest.approx(expected / len(sizes), rel=1e-5)  # theirs is the sum


def test_every_size_is_normalised_anew():
    vectors_RNH, scores_N = draw(2, N, H, seed=4), draw(N, seed=5)
    value, number = matryoshka_loss(lambda part: cosine_loss(part, scores_N), vectors_RNH, [3, 5])
    expected = sum(
        (cosine(vectors_RNH[0, row, :size], vectors_RNH[1, row, :size]) - scores_N[row].item()) ** 2
        for row in range(N)
        for size in (3, 5)
    )
    assert (value.item(), number) == (pytest.approx(expected / 2, rel=1e-5), N)


def test_the_same_text_or_pair_twice_is_no_rival():
    # texts a b a c, pairs p q r p, negatives x p y a
    ids_RN = torch.tensor([[0, 1, 0, 2], [3, 4, 5, 3], [6, 3, 7, 0]])
    expected = [
        [0, 0, 1, 1, 0, 1, 0, 1],  # a's other pair; p again, twice; a itself
        [0, 0, 0, 0, 0, 0, 0, 0],
        [1, 0, 0, 0, 0, 0, 0, 1],  # a's other pair; a itself
        [1, 0, 0, 0, 0, 1, 0, 0],
    ]
    assert non_negatives(ids_RN).int().tolist() == expected


def test_non_negatives_change_neither_loss_nor_gradient():
    vectors_RNH = draw(2, N, H, seed=6)
    ids_RN = distinct(2)
    ids_RN[1, 3] = ids_RN[1, 0]  # pairs 0 and 3 are the same text
    vectors_RNH[1, 3] = vectors_RNH[1, 0]
    vectors_RNH.requires_grad_()
    value, _ = ranking_loss(vectors_RNH, ids_RN, temperature=0.1)
    expected = torch.zeros(())
    for row in range(N):
        own = [column for column in range(N) if column == row or {row, column} != {0, 3}]
        scores = torch.cosine_similarity(vectors_RNH[0, row], vectors_RNH[1, own]) / 0.1
        expected = expected + scores.logsumexp(0) - scores[own.index(row)]
    assert value.item() == pytest.approx(expected.item(), rel=1e-5)
    (actual,), (reference,) = (torch.autograd.grad(loss, vectors_RNH, retain_graph=True) for loss in (value, expected))
    assert torch.isfinite(actual).all() and torch.allclose(actual, reference, atol=1e-5)


def test_matches_of_other_rows_change_neither_loss_nor_gradient():
    vectors_RNH = draw(3, N, H, seed=8).requires_grad_()
    matches_NRN = torch.zeros((N, 2, N), dtype=torch.bool)
    matches_NRN[:, 0].fill_diagonal_(True)  # the positives themselves stay
    matches_NRN[1, 0, 4] = matches_NRN[1, 1, 2] = matches_NRN[3, 1, 3] = True
    value, number = ranking_loss(vectors_RNH, distinct(3), 0.1, matches_NRN)
    expected = torch.zeros(())
    for row in range(N):
        own = [column for column in range(2 * N) if column == row or not matches_NRN.flatten(1)[row, column]]
        scores = torch.cosine_similarity(vectors_RNH[0, row], vectors_RNH[1:].flatten(0, 1)[own]) / 0.1
        expected = expected + scores.logsumexp(0) - scores[own.index(row)]
    assert (value.item(), number) == (pytest.approx(expected.item(), rel=1e-5), N)
    (actual,), (reference,) = (torch.autograd.grad(loss, vectors_RNH, retain_graph=True) for loss in (value, expected))
    assert torch.allclose(actual, reference, atol=1e-5)


def test_a_pair_alone_has_nothing_to_learn():
    vectors_RNH = draw(2, 1, H).requires_grad_()
    value, number = ranking_loss(vectors_RNH, torch.tensor([[0], [1]]), temperature=0.05)
    value.backward()
    assert (value.item(), number) == (0.0, 1) and not vectors_RNH.grad.any()


def test_losses_are_computed_in_float32():
    vectors_RNH = draw(2, N, H, seed=7).bfloat16()
    for loss in (lambda part: ranking_loss(part, distinct(2), 0.05), lambda part: cosine_loss(part, draw(N))):
        value, _ = loss(vectors_RNH)
        assert value.dtype is torch.float32 and value.item() == loss(vectors_RNH.float())[0].item()
