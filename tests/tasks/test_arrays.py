"""Functions of score arrays, compared with those of torch."""

import numpy as np
import pytest
import torch

from bothways.tasks.arrays import cosines, normalize, sigmoid, softmax, top_k

SCORES = np.random.default_rng(0).standard_normal((50, 7), np.float32) * 30
SCORES[:2] = [[3e4, -3e4, 0, 1, 2, 3, 4], [0] * 7]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (softmax, lambda scores: scores.softmax(-1)),
        (sigmoid, torch.sigmoid),
        (normalize, torch.nn.functional.normalize),
        (lambda x: cosines(x, x[::-1]), lambda x: torch.cosine_similarity(x, x.flip(0))),
    ],
)
def test_they_are_those_of_torch_to_the_last_bits(ours, theirs):
    with np.errstate(all="raise", under="ignore"):
        result = ours(SCORES)
    assert result.dtype == np.float32 and np.abs(result - theirs(torch.from_numpy(SCORES)).numpy()).max() < 1e-6


def test_the_highest_scores_come_first_and_equal_ones_in_their_order():
    scores = np.array([[1, 3, 2, 3, 0, 2, 2], [5, 5, 5, 5, 5, 5, 5]], np.float32)
    assert top_k(scores, 4).tolist() == [[1, 3, 2, 5], [0, 1, 2, 3]]
    assert top_k(scores, 9).tolist() == [[1, 3, 2, 5, 6, 0, 4], [0, 1, 2, 3, 4, 5, 6]]
    scores[0, 2] = np.nan
    assert top_k(scores, 3).shape == (2, 3)
    assert np.array_equal(top_k(SCORES, 3)[2:], torch.from_numpy(SCORES).topk(3).indices[2:].numpy())
