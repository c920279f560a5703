"""Buckets: tokens in their slots and back, padding without effect, few and small buckets."""

import pytest
import torch

from bothways.model import buckets as module
from bothways.model.buckets import build_buckets, round_length

CPU = torch.device("cpu")
N, D = 2, 3


def numbered(tokens):
    """[T, N, D] of different numbers."""
    return torch.arange(tokens * N * D, dtype=torch.float).view(tokens, N, D)


@pytest.mark.parametrize("lengths", [[4], [4, 4, 4], [1, 2, 16], [3, 9, 9, 40, 44, 48, 200, 2], [17] * 5 + [18]])
def test_ungather_is_the_inverse_of_gather(lengths):
    x_TND = numbered(sum(lengths))
    buckets = build_buckets(lengths, CPU)
    assert [bucket.start for bucket in buckets] == [0, *(bucket.end for bucket in buckets[:-1])] and buckets[
        -1
    ].end == len(x_TND)
    assert torch.equal(torch.cat([bucket.ungather(bucket.gather(x_TND)) for bucket in buckets]), x_TND)


def test_a_text_stands_in_its_row_filled_up_with_its_last_token():
    (bucket,) = build_buckets([2, 5], CPU)
    x_TND = numbered(7)
    padded_NnSD = bucket.gather(x_TND)
    assert padded_NnSD.shape == (N, 2, 16, D)
    first, second = padded_NnSD[1]
    assert torch.equal(first[:2], x_TND[:2, 1]) and torch.equal(second[:5], x_TND[2:, 1])
    assert torch.equal(first[2:], x_TND[1:2, 1].expand(14, D)) and torch.equal(second[5:], x_TND[6:, 1].expand(11, D))


def test_the_filling_is_hidden_and_cleared():
    (bucket,) = build_buckets([2, 5], CPU)
    scores_NnSS = bucket.mask_scores(torch.zeros(N, 2, 16, 16))
    is_real_n1S = torch.tensor([[[place < length for place in range(16)]] for length in (2, 5)])
    assert torch.equal(scores_NnSS == 0, is_real_n1S.expand(N, 2, 16, 16))
    assert torch.equal(bucket.key_mask, is_real_n1S[None])
    assert torch.equal(bucket.zero_padding(torch.ones(N, 2, 16, D)) == 1, is_real_n1S.mT.expand(N, 2, 16, D))


def test_equal_lengths_have_no_filling_whatever_they_are():
    (bucket,) = build_buckets([13, 13], CPU)
    assert (bucket.n, bucket.size, bucket.tokens, bucket.key_mask) == (2, 13, None, None)


def test_many_texts_a_length_have_rectangles_of_their_own():
    many, few = (
        [9] * module.MANY_TEXTS + [11] * module.MANY_TEXTS,
        [9] * module.MANY_TEXTS + [11] * (module.MANY_TEXTS - 1),
    )
    assert [(bucket.n, bucket.size) for bucket in build_buckets(many, CPU)] == [
        (module.MANY_TEXTS, 9),
        (module.MANY_TEXTS, 11),
    ]
    assert [(bucket.n, bucket.size) for bucket in build_buckets(few, CPU)] == [(2 * module.MANY_TEXTS - 1, 16)]


def test_lengths_are_near_within_a_quarter_and_sixteen():
    assert [round_length(length) for length in (1, 16, 17, 128, 129, 160, 161, 257, 320, 512, 513)] == [
        16, 16, 32, 128, 160, 160, 192, 320, 320, 512, 640,
    ]  # fmt: skip
    for length in range(1, 5000):
        assert 0 <= round_length(length) - length < max(16, length / 4)


def test_a_rectangle_has_no_more_scores_than_fit_the_cache(monkeypatch):
    monkeypatch.setattr(module, "MAX_SCORES", 3 * 16 * 16)
    buckets = build_buckets([9, 10, 11, 12, 13, 400], CPU)
    assert [(bucket.n, bucket.size) for bucket in buckets] == [(3, 16), (2, 16), (1, 400)]
