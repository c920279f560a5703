"""Block-sparse attention: patterns against a slow formula, attention against a mask over all pairs."""

import numpy as np
import pytest
import torch

from bothways.model import block_sparse
from bothways.model.block_patterns import random_blocks, window_blocks
from bothways.model.block_sparse import block_attention, plain_attention
from bothways.model.config import RandomBlocksConfig
from bothways.model.kernels import MAX_SAVED_LENGTH
from bothways.model.layout import Bucketed

CPU = torch.device("cpu")
N, D = 3, 8


def looks(blocks, total):
    """How often each token looks at each other one, [T, T]."""
    times, size = np.zeros((total, total), int), blocks.size
    slots = set(blocks.slots.tolist())
    tokens = blocks.tokens.tolist()
    for rows in blocks.rows:
        hidden = np.broadcast_to(rows.masked.numpy(), (len(rows.queries), size, rows.keys.shape[1] * size))
        for row, query in enumerate(rows.queries.tolist()):
            places = [key * size + inside for key in rows.keys[row].tolist() for inside in range(size)]
            for inside in range(size):
                if query * size + inside in slots:
                    for column in np.flatnonzero(~hidden[row, inside]):
                        times[tokens[query * size + inside], tokens[places[column]]] += 1
    return times


def window_formula(lengths, sides, picked):
    total = sum(lengths)
    text = np.repeat(np.arange(len(lengths)), lengths)
    ahead = np.arange(total) - np.arange(total)[:, None]
    before, behind = (total if side < 0 else side for side in sides)
    near = (ahead >= -before) & (ahead <= behind)
    near[:, picked] = True
    return (near & (text == text[:, None])).astype(int)


CASES = [
    ([50], (4, 4), []),
    ([1, 33, 16, 17, 80], (4, 4), []),
    ([64, 2, 47], (20, 3), []),
    ([40, 3, 70], (0, 0), [0]),
    ([61, 30], (-1, 5), []),
    ([61, 5, 30, 90], (7, 7), [0, 60, 64, 66, 67, 68, 100, 101, 150]),
    ([70], (2, 9), [*range(40)]),  # more than a block of them
]


@pytest.mark.parametrize(("lengths", "sides", "picked"), CASES)
def test_a_window_and_picked_tokens_are_seen_once_and_nothing_else(lengths, sides, picked):
    blocks = window_blocks(lengths, sides, CPU, np.array(picked, np.int64))
    assert np.array_equal(looks(blocks, sum(lengths)), window_formula(lengths, sides, picked))


@pytest.mark.parametrize("number", [1, 2])
def test_blocks_at_random_at_rest(number):
    """Neighbours, first and last once, the first so many times more; short texts, first and last blocks see all."""
    lengths, size = [50, 7, 61, 29], 4
    config = RandomBlocksConfig(size=size, num_random=number)
    times = looks(random_blocks(lengths, config, CPU), sum(lengths))
    start = 0
    for length in lengths:
        in_text = times[start : start + length, start : start + length]
        block, last = np.arange(length) // size, (length - 1) // size
        expected = np.ones((length, length), int)
        if length > config.max_full_length:
            near = (abs(block - block[:, None]) <= 1) | (block == 0) | (block == last)
            expected = near + number * (block == 0)
            expected[(block == 0) | (block == last)] = 1
        assert np.array_equal(in_text, expected)
        start += length
    assert times.sum() == sum(times[a:b, a:b].sum() for a, b in ((0, 50), (50, 57), (57, 118), (118, 147)))


def heads(total, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(total, N, D, generator=generator, dtype=dtype).requires_grad_() for _ in "qkv"]


def by_mask(q, k, v, times):
    """softmax over all pairs, each counted as often as it is looked at."""
    scores = torch.einsum("ind,jnd->nij", q, k) / D**0.5 + torch.from_numpy(times).to(q.dtype).log()
    return torch.einsum("nij,jnd->ind", scores.softmax(-1), v)


@pytest.mark.parametrize("form", [block_attention, plain_attention])
@pytest.mark.parametrize("case", [*range(len(CASES)), "random", "drawn"])
def test_attention_by_blocks_equals_a_mask_gradients_too(form, case, monkeypatch, global_seed):
    monkeypatch.setattr(block_sparse, "MAX_SCORES", 3 * 16 * 48)  # so that several rounds are needed
    if isinstance(case, int):
        lengths, sides, picked = CASES[case]
        blocks = window_blocks(lengths, sides, CPU, np.array(picked, np.int64))
    else:
        lengths = [50, 7, 61, 29]
        blocks = random_blocks(
            lengths, RandomBlocksConfig(size=4, num_random=2), CPU, None if case == "random" else [5, 6, 7, 8]
        )
    ours, slow = heads(sum(lengths)), heads(sum(lengths))
    weights = torch.randn(sum(lengths), N, D, dtype=torch.float64)
    actual, expected = form(*ours, blocks), by_mask(*slow, looks(blocks, sum(lengths)))
    assert torch.allclose(actual, expected, atol=1e-12)
    (actual * weights).sum().backward()
    (expected * weights).sum().backward()
    for one, other in zip(ours, slow, strict=True):
        # Keys' and values' gradients are added up in float32.
        assert float((one.grad - other.grad).norm() / other.grad.norm()) < 1e-6


def test_the_backward_pass_drops_the_same_weights(global_seed):
    """Beside torch's slots operations with the weights that were drawn."""
    blocks = window_blocks([70, 30], (20, 20), CPU)
    ours, slow = heads(100, dtype=torch.float32), heads(100, dtype=torch.float32)
    weights = torch.randn(100, N, D)
    drawn = []
    plain = block_sparse.draw_keep_mask
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block_sparse, "draw_keep_mask", lambda *arguments: drawn.append(plain(*arguments)) or drawn[-1])
        actual = block_attention(*ours, blocks, 0.3)
    (actual * weights).sum().backward()

    q, k, v = (blocks.gather(x) for x in slow)
    total = torch.zeros(q.shape)
    for rows, kept in zip(block_sparse._chunks(blocks), drawn, strict=True):
        q_part, k_part, v_part = block_sparse._heads(rows, blocks, q, k, v)
        scores = (q_part @ k_part.mT / D**0.5).unflatten(0, (N, -1)).masked_fill(rows.masked, -1e30).flatten(0, 1)
        left = scores.softmax(-1) * torch.from_numpy(kept).view(scores.shape) / 0.7
        total = total.index_copy(1, rows.queries, (left @ v_part).view(N, len(rows.queries), -1))
    expected = blocks.ungather(total)
    (expected * weights).sum().backward()
    assert torch.allclose(actual, expected, atol=1e-5)
    assert 0.6 < float(np.concatenate(drawn).mean()) < 0.8
    for one, other in zip(ours, slow, strict=True):
        assert float((one.grad - other.grad).norm() / other.grad.norm()) < 1e-5


def test_nothing_of_the_scores_size_is_kept_for_the_way_back():
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()) or x, lambda x: x):
        q, k, v = heads(2048, dtype=torch.float32)
        block_attention(q, k, v, window_blocks([2048], (64, 64), CPU)).sum().backward()
    assert max(kept) <= 2048 * N * D


@pytest.mark.slow
def test_dropout_over_all_of_a_very_long_text_keeps_nothing_of_its_square(global_seed):
    """Training with dropout at any length in bounded memory; and what is dropped is a tenth."""
    layout = Bucketed(torch.tensor([MAX_SAVED_LENGTH + 500]), CPU)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()) or x, lambda x: x):
        q, k, v = heads(MAX_SAVED_LENGTH + 500, dtype=torch.float32)
        dropped = layout.attend(q, k, v, sides=(-1, -1), dropout=0.1)
        dropped.sum().backward()
    assert max(kept) <= q.numel()
    with torch.no_grad():
        plain = layout.attend(q, k, v, sides=(-1, -1), dropout=0.0)
    assert 0 < float((dropped.detach() - plain).abs().mean() / plain.abs().mean()) < 0.5


def test_the_work_grows_with_the_text_and_not_with_its_square():
    def pairs(length, **options):
        blocks = window_blocks([length], (64, 64), CPU, **options)
        return sum(rows.keys.numel() * blocks.size**2 for rows in blocks.rows)

    assert pairs(16384) < 17 * pairs(1024)
    assert pairs(16384, global_tokens=np.array([0])) < 1.4 * pairs(16384)
    wide = [
        sum(rows.keys.numel() for rows in random_blocks([n], RandomBlocksConfig(), CPU, [1]).rows)
        for n in (2048, 16384)
    ]
    assert wide[1] < 9 * wide[0]


@pytest.mark.parametrize(("reach", "size"), [(0, 16), (1, 16), (4, 16), (17, 32), (64, 64), (256, 64), (-1, 256)])
def test_sizes_of_blocks(reach, size):
    assert block_sparse.choose_block_size(reach) == size
