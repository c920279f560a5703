"""Attention on a GPU: windows, global tokens, blocks, one direction; dropout; texts do not depend on their batch."""

from copy import deepcopy
from dataclasses import replace
from inspect import signature

import numpy as np
import pytest
import torch

from bothways.model.block_patterns import random_blocks, window_blocks
from bothways.model.block_sparse import block_attention
from bothways.model.config import RandomBlocksConfig
from bothways.model.dropout import Dropout
from bothways.model.layout import Bucketed, Varlen, choose_layout
from tests.gpu.oracle import (
    HALVES,
    apart,
    batch_of,
    copy_to,
    cosines,
    exact,
    flat,
    gradients,
    hidden_states,
)

pytestmark = pytest.mark.gpu

N = 3
LENGTHS = torch.tensor([5, 300, 1, 129, 64, 7, 7, 33])
SIDES = [(-1, -1), (3, 3), (64, 64), (-1, 0), (4, 0), (0, 100)]
TOLERANCES = {torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 3e-2}  # of norms, relative
LONG = (61, 5, 30, 60)
# Models whose tokens attend to some tokens only; gradients of all of them go through the same patterns.
SPARSE = {
    "window of longformer": ("longformer", {}),
    "global [CLS]": ("longformer", {"heads": {"masked_words": 0, "classes": 3}}),
    "global question": ("longformer", {"heads": {"masked_words": 0, "spans": 2}}),
    "blocks": ("big_bird", {}),
    "local layers": ("modernbert", {}),
    "wide window": ("bert", {"attention_window": 20, "full_attention_every": 0}),
    "window in one direction": ("bert", {"direction": "forward", "attention_window": 5, "full_attention_every": 2}),
    "forward": ("bert", {"direction": "forward"}),
    "two halves": (
        "bert",
        {"direction": "halves", "hidden_size": 32, "num_attention_heads": 4, "embedding_size": 16},
    ),
}


def rows(head_size, lengths=LENGTHS, seed=0):
    """Queries, keys and values [T, N, D], float64 on the CPU, and weights of the attention's sum."""
    generator = torch.Generator().manual_seed(seed)
    shape = int(sum(lengths)), N, head_size
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for _ in ("q", "k", "v", "weights")]


def text_by_text(q, k, v, sides, lengths=LENGTHS):
    """softmax(q k^T / sqrt(D)) v of each text by itself."""
    before, behind = sides
    attended = []
    for q_SND, k_SND, v_SND in zip(*(part.split(list(lengths)) for part in (q, k, v)), strict=True):
        ahead = torch.arange(len(q_SND)) - torch.arange(len(q_SND))[:, None]
        seen = ((before < 0) | (-ahead <= before)) & ((behind < 0) | (ahead <= behind))
        scores = torch.einsum("ind,jnd->nij", q_SND, k_SND) / q.shape[-1] ** 0.5
        weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
        attended.append(torch.einsum("nij,jnd->ind", weights, v_SND))
    return torch.cat(attended)


def with_gradients(attend, parts, weights):
    """attend(q, k, v), and its gradients in q, k and v."""
    parts = [part.detach().requires_grad_() for part in parts]
    attended = attend(*parts)
    return [attended.detach(), *torch.autograd.grad((attended * weights.to(attended)).sum(), parts)]


# --- windows ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
@pytest.mark.parametrize("head_size", [8, 64])
@pytest.mark.parametrize("sides", SIDES)
def test_the_layout_of_the_device_equals_attention_text_by_text(sides, head_size, dtype, gpu):
    """With gradients: in half precision by the ragged kernel, where torch has this window for it."""
    *parts, weights = rows(head_size)
    rounded = [part.to(gpu, dtype) for part in parts]
    layout = choose_layout(LENGTHS, gpu, dtype)
    actual = with_gradients(lambda q, k, v: layout.attend(q, k, v, sides=sides, dropout=0.0), rounded, weights)
    lengths = LENGTHS.tolist()
    expected = with_gradients(
        lambda q, k, v: text_by_text(q, k, v, sides, lengths), [part.cpu().double() for part in rounded], weights
    )
    tolerance = TOLERANCES[dtype]
    distances = [apart(one, other) for one, other in zip(actual, expected, strict=True)]
    assert max(distances) < tolerance, distances


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
@pytest.mark.parametrize("kind", ["window", "picked tokens", "random blocks"])
def test_attention_by_blocks_equals_that_of_a_mask(kind, dtype, gpu):
    lengths, config = [61, 5, 30, 90], RandomBlocksConfig(size=4, num_random=2)
    picked = np.array([0, 60, 64, 100] if kind == "picked tokens" else [], np.int64)

    def blocks_on(device):
        if kind == "random blocks":
            return random_blocks(lengths, config, device, [5, 6, 7, 8])
        return window_blocks(lengths, (7, 7), device, picked)

    *parts, weights = rows(8, lengths)
    rounded = [part.to(gpu, dtype) for part in parts]
    actual = with_gradients(lambda q, k, v: block_attention(q, k, v, blocks_on(gpu)), rounded, weights)
    times = seen_by_blocks(blocks_on(torch.device("cpu")), sum(lengths))

    def by_mask(q, k, v):
        scores = torch.einsum("ind,jnd->nij", q, k) / 8**0.5 + times.log()
        return torch.einsum("nij,jnd->ind", scores.softmax(-1), v)

    expected = with_gradients(by_mask, [part.cpu().double() for part in rounded], weights)
    tolerance = TOLERANCES[dtype]
    distances = [apart(one, other) for one, other in zip(actual, expected, strict=True)]
    assert max(distances) < tolerance, distances


def seen_by_blocks(blocks, total):
    """How often each token attends to each other one, [T, T] (tests/model/test_block_sparse.py tests the blocks)."""
    times, inside = torch.zeros(total, total, dtype=torch.float64), torch.arange(blocks.size)
    is_slot = torch.zeros(len(blocks.tokens), dtype=torch.bool)
    is_slot[blocks.slots] = True
    for part in blocks.rows:
        query_slots = part.queries[:, None] * blocks.size + inside  # [R, b]
        key_slots = (part.keys[:, :, None] * blocks.size + inside).flatten(1)  # [R, J * b]
        seen = ~part.masked.expand(len(part.queries), blocks.size, -1) & is_slot[query_slots][:, :, None]
        row, query, key = seen.nonzero().unbind(1)
        places = blocks.tokens[query_slots[row, query]], blocks.tokens[key_slots[row, key]]
        times.index_put_(places, torch.ones(len(row), dtype=torch.float64), accumulate=True)
    return times


@pytest.mark.parametrize("kind", SPARSE)
def test_sparse_and_one_way_models_equal_those_of_a_cpu(kind, gpu, make_model):
    """In training, too, where BigBird's random blocks are drawn from the text."""
    family, changes = SPARSE[kind]
    model = make_model(family, **{"heads": {"masked_words": 0}, **changes})
    batch = batch_of(LONG)
    for mode in (model.eval(), model.train()):
        actual, expected = hidden_states(copy_to(mode, gpu), batch), hidden_states(exact(mode), batch)
        assert float((actual - expected).abs().max()) < 1e-4
    assert apart(flat(gradients(copy_to(model, gpu), batch)), flat(gradients(exact(model), batch))) < 1e-4
    for dtype in HALVES:
        actual = hidden_states(copy_to(model.eval(), gpu, dtype), batch)
        assert float(cosines(actual, hidden_states(exact(model), batch)).min()) > 0.999


def test_global_tokens_of_the_batch_are_taken(gpu, make_model):
    model, batch = make_model("longformer"), batch_of(LONG)
    is_global = torch.zeros(batch.num_tokens, dtype=torch.bool)
    is_global[[0, 60, 61, 100]] = True
    marked = replace(batch, global_tokens=is_global)
    expected = hidden_states(exact(model), marked)
    assert float((hidden_states(copy_to(model, gpu), marked) - expected).abs().max()) < 1e-4
    assert float((hidden_states(copy_to(model, gpu), batch) - expected).abs().max()) > 1e-2


# --- independence of the batch ----------------------------------------------------------------------------------------


def test_the_attention_of_a_text_is_the_same_bit_for_bit_in_every_batch(gpu, monkeypatch):
    """Where the kernel has num_splits, which is then 1. On a CPU a slow kernel stands for it."""
    if gpu.type == "cpu":
        monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", slow_kernel)
        dtypes = [torch.float64]
    else:
        from torch.nn.attention.varlen import varlen_attn

        if "num_splits" not in signature(varlen_attn).parameters:
            pytest.skip(f"varlen_attn of PyTorch {torch.__version__} has no num_splits")
        dtypes = HALVES
    for dtype in dtypes:
        first = [part.to(gpu, dtype) for part in rows(64, [129])[:3]]
        for others in ([], [1], [300, 7], [500, 64, 64, 5]):
            parts = [torch.cat(pair) for pair in zip(first, others_of(others, gpu, dtype), strict=True)]
            layout = Varlen(torch.tensor([129, *others]), gpu)
            for sides in ((-1, -1), (3, 3), (-1, 0)):
                together = layout.attend(*parts, sides=sides, dropout=0.0)[:129]
                alone = Varlen(torch.tensor([129]), gpu).attend(*first, sides=sides, dropout=0.0)
                assert torch.equal(together, alone), (dtype, others, sides)


def others_of(lengths, gpu, dtype):
    return [part.to(gpu, dtype) for part in rows(64, [*lengths, 0], seed=1)[:3]]


def slow_kernel(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *, window_size=(-1, -1), num_splits=None):
    assert num_splits == 1 and max_q >= int(cu_seq_q.diff().max())
    return text_by_text(query, key, value, window_size, cu_seq_q.diff().tolist())


def test_a_token_attends_only_to_its_text(gpu):
    """What other texts hold is not even read: values that are not finite do not spread."""
    dtype = torch.float32 if gpu.type == "cpu" else torch.bfloat16
    q, k, v = (part.to(gpu, dtype) for part in rows(64, [30, 40, 20])[:3])
    layout = choose_layout(torch.tensor([30, 40, 20]), gpu, dtype)
    clean = layout.attend(q, k, v, sides=(-1, -1), dropout=0.0)
    v = v.clone()
    v[30:70] = torch.nan
    spoiled = layout.attend(q, k, v, sides=(-1, -1), dropout=0.0)
    assert bool(spoiled[30:70].isnan().all())
    assert torch.equal(spoiled[:30], clean[:30]) and torch.equal(spoiled[70:], clean[70:])


def test_the_ragged_kernel_takes_any_number_of_texts(gpu, needs_cuda):
    needs_cuda("the kernel for texts of different lengths is CUDA's")
    lengths = torch.tensor([1] * 5000 + [777, 2, 3])
    parts = [part.to(gpu, torch.bfloat16) for part in rows(64, lengths.tolist())[:3]]
    ragged, bucketed = (kind(lengths, gpu).attend(*parts, sides=(-1, -1), dropout=0.0) for kind in (Varlen, Bucketed))
    assert torch.equal(ragged[:5000], parts[2][:5000])  # a token that attends only to itself
    assert apart(ragged, bucketed) < 1e-2


# --- dropout ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_dropout_has_the_gradients_of_its_own_mask(dtype, gpu):
    """Attention is linear in the values: with the mask of one seed, the gradient in them gives the output again."""
    lengths = torch.tensor([64, 17, 40])
    q, k, v, weights = (part.to(gpu, dtype) for part in rows(8, lengths.tolist()))
    v.requires_grad_()
    torch.manual_seed(0)
    attended = choose_layout(lengths, gpu, dtype).attend(q, k, v, sides=(-1, -1), dropout=0.3)
    (gradient,) = torch.autograd.grad((attended * weights).sum(), v)
    products = [(one.double() * other.double()).sum().item() for one, other in ((attended, weights), (v, gradient))]
    assert products[0] == pytest.approx(products[1], rel=0.02, abs=1.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["full", "window", "blocks"])
def test_attention_dropout_keeps_the_mean(kind, dtype, gpu):
    """Of values that are all 1: sums of weights, of which 30 % are dropped and the others are scaled up."""
    lengths = torch.tensor([64] * 20)
    q, k, _, _ = (part.to(gpu, dtype) for part in rows(8, lengths.tolist()))
    layout = choose_layout(lengths, gpu, dtype)
    ones, sides = torch.ones_like(q), (-1, -1) if kind == "full" else (20, 20)
    blocks = window_blocks(lengths.tolist(), sides, gpu)

    def drop(seed):
        torch.manual_seed(seed)
        if kind == "blocks":
            return block_attention(q, k, ones, blocks, 0.3).double()
        return layout.attend(q, k, ones, sides=sides, dropout=0.3).double()

    sums, again, repeated = drop(0), drop(1), drop(0)
    assert float(sums.mean()) == pytest.approx(1, abs=0.02)
    assert 0.02 < float(sums[..., 0].std()) < 0.6
    assert torch.equal(sums, repeated) and not torch.equal(sums, again)


def test_dropout_of_activations_keeps_the_mean_and_follows_the_seed(gpu):
    x, dropout = torch.ones(100, 1000, device=gpu, requires_grad=True), Dropout(0.25).train()
    torch.manual_seed(1)
    dropped = dropout(x)
    torch.manual_seed(1)
    assert torch.equal(dropout(x), dropped)
    assert sorted(dropped.detach().unique().tolist()) == pytest.approx([0, 4 / 3])
    assert float(dropped.detach().mean()) == pytest.approx(1, abs=0.01)
    dropped.sum().backward()
    assert torch.equal(x.grad, dropped.detach())
    assert torch.equal(Dropout(0.25).eval()(x), x)


def test_attention_dropout_in_a_model_is_used_in_training_alone(gpu, make_model):
    model = make_model("bert", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.2)
    on_gpu, batch = copy_to(model, gpu), batch_of()
    expected = hidden_states(exact(model), batch)
    assert float((hidden_states(on_gpu, batch) - expected).abs().max()) < 1e-4
    training = deepcopy(on_gpu).train()
    torch.manual_seed(0)
    first, second = hidden_states(training, batch), hidden_states(training, batch)
    torch.manual_seed(0)
    assert torch.equal(hidden_states(training, batch), first) and not torch.equal(first, second)
    states = torch.stack([hidden_states(training, batch) for _ in range(20)])
    assert apart(states.mean(0), expected) < 0.5 * apart(first, expected)
