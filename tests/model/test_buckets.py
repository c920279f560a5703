"""Texts side by side: every token in its place and back, nothing of the filling seen, few and small rectangles."""

import pytest
import torch

from bothways.model import buckets as module
from bothways.model.buckets import rectangles, rounded

CPU = torch.device("cpu")
N, D = 2, 3


def numbered(tokens):
    """[T, N, D] of different numbers."""
    return torch.arange(tokens * N * D, dtype=torch.float).view(tokens, N, D)


@pytest.mark.parametrize("lengths", [[4], [4, 4, 4], [1, 2, 16], [3, 9, 9, 40, 44, 48, 200, 2], [17] * 5 + [18]])
def test_tokens_come_back_to_where_they_were_taken_from(lengths):
    x_TND = numbered(sum(lengths))
    parts = rectangles(lengths, CPU)
    assert [part.start for part in parts] == [0, *(part.end for part in parts[:-1])] and parts[-1].end == len(x_TND)
    assert torch.equal(torch.cat([part.give(part.take(x_TND)) for part in parts]), x_TND)


def test_a_text_stands_in_its_row_filled_up_with_its_last_token():
    (part,) = rectangles([2, 5], CPU)
    x_TND = numbered(7)
    taken_NnSD = part.take(x_TND)
    assert taken_NnSD.shape == (N, 2, 16, D)
    first, second = taken_NnSD[1]
    assert torch.equal(first[:2], x_TND[:2, 1]) and torch.equal(second[:5], x_TND[2:, 1])
    assert torch.equal(first[2:], x_TND[1:2, 1].expand(14, D)) and torch.equal(second[5:], x_TND[6:, 1].expand(11, D))


def test_the_filling_is_hidden_and_cleared():
    (part,) = rectangles([2, 5], CPU)
    scores_NnSS = part.hide(torch.zeros(N, 2, 16, 16))
    seen_n1S = torch.tensor([[[place < length for place in range(16)]] for length in (2, 5)])
    assert torch.equal(scores_NnSS == 0, seen_n1S.expand(N, 2, 16, 16))
    assert torch.equal(part.seen(), seen_n1S[None])
    assert torch.equal(part.clear(torch.ones(N, 2, 16, D)) == 1, seen_n1S.mT.expand(N, 2, 16, D))


def test_equal_lengths_have_no_filling_whatever_they_are():
    (part,) = rectangles([13, 13], CPU)
    assert (part.n, part.size, part.tokens, part.seen()) == (2, 13, None, None)


def test_many_texts_a_length_have_rectangles_of_their_own():
    many, few = [9] * module.MANY + [11] * module.MANY, [9] * module.MANY + [11] * (module.MANY - 1)
    assert [(part.n, part.size) for part in rectangles(many, CPU)] == [(module.MANY, 9), (module.MANY, 11)]
    assert [(part.n, part.size) for part in rectangles(few, CPU)] == [(2 * module.MANY - 1, 16)]


def test_lengths_are_near_within_a_quarter_and_sixteen():
    assert [rounded(length) for length in (1, 16, 17, 128, 129, 160, 161, 257, 320, 512, 513)] == [
        16, 16, 32, 128, 160, 160, 192, 320, 320, 512, 640,
    ]  # fmt: skip
    for length in range(1, 5000):
        assert 0 <= rounded(length) - length < max(16, length / 4)


def test_a_rectangle_has_no_more_scores_than_fit_the_cache(monkeypatch):
    monkeypatch.setattr(module, "MOST_SCORES", 3 * 16 * 16)
    parts = rectangles([9, 10, 11, 12, 13, 400], CPU)
    assert [(part.n, part.size) for part in parts] == [(3, 16), (2, 16), (1, 400)]
