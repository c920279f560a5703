"""Layouts against a slow formula: each text separately, each pair of tokens."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from bothways.model.layout import Bucketed, Padded, Varlen, choose_layout, window_mask

N, D = 3, 8
LENGTHS = torch.tensor([5, 5, 1, 29, 7, 7, 7, 5])
CPU = torch.device("cpu")


def rows(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(int(LENGTHS.sum()), N, D, generator=generator) for _ in "qkv"]


def is_seen(ahead, sides):
    """Whether a token attends to another at this distance."""
    before, behind = sides
    return (before < 0 or -ahead <= before) and (behind < 0 or ahead <= behind)


def slow(q, k, v, sides):
    """Text by text, head by head, token by token."""
    attended = []
    for q_SND, k_SND, v_SND in zip(*(part.split(LENGTHS.tolist()) for part in (q, k, v)), strict=True):
        for place in range(len(q_SND)):
            seen = [other for other in range(len(q_SND)) if is_seen(other - place, sides)]
            scores_NK = torch.einsum("nd,knd->nk", q_SND[place], k_SND[seen]) / D**0.5
            attended.append(torch.einsum("nk,knd->nd", scores_NK.softmax(-1), v_SND[seen]))
    return torch.stack(attended)


ONE_WAY = [(-1, 0), (0, -1), (4, 0), (0, 3), (2, 100)]


@pytest.mark.parametrize("sides", [(-1, -1), (1, 1), (3, 3), (4, 4), (6, 6), (28, 28), (100, 100), *ONE_WAY])
def test_a_token_sees_its_own_text_and_no_further_than_it_may(sides):
    q, k, v = rows()
    attended = Bucketed(LENGTHS, CPU).attend(q, k, v, sides=sides, dropout=0.0)
    assert float((attended - slow(q, k, v, sides)).abs().max()) < 1e-6


@pytest.mark.parametrize("side", ["right", "left", "both"])
@pytest.mark.parametrize("sides", [(-1, -1), (1, 1), (3, 3), (100, 100), *ONE_WAY])
def test_padding_is_not_attended_to(sides, side):
    q, k, v = rows()
    size = 31
    real = torch.zeros(len(LENGTHS), size, dtype=torch.long)
    for row, length in enumerate(LENGTHS.tolist()):
        start = {"right": 0, "left": size - length, "both": (size - length) // 2}[side]
        real[row, start : start + length] = 1
    kept_T = real.bool().flatten()
    spread = []
    for part in (q, k, v):
        wide = torch.full((kept_T.numel(), N, D), 50.0)  # values in the padding must not matter
        wide[kept_T] = part
        spread.append(wide)
    layout = Padded(real)
    attended = layout.attend(*spread, sides=sides, dropout=0.0)
    assert float((attended[kept_T] - slow(q, k, v, sides)).abs().max()) < 1e-6
    assert bool(attended.isfinite().all())
    assert layout.position_ids[kept_T].tolist() == [place for length in LENGTHS.tolist() for place in range(length)]
    assert layout.first_tokens.tolist() == [int(row.nonzero()[0]) + size * i for i, row in enumerate(real)]


@pytest.mark.parametrize("sides", [(-1, -1), (250, 0)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_texts_that_share_a_rectangle_take_the_fused_kernel(sides, dtype, global_seed):
    """Not the slow form in which torch writes all scores out: with that one forbidden it still runs."""
    lengths = torch.tensor([300, 310, 320])
    q, k, v = torch.randn(3, int(lengths.sum()), N, D, dtype=dtype).unbind()
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        Bucketed(lengths, CPU).attend(q, k, v, sides=sides, dropout=0.0)


def test_neighbours_of_near_lengths_are_one_rectangle():
    layout = Bucketed(LENGTHS, CPU)
    assert [(part.n, part.size) for part in layout.buckets] == [(3, 16), (1, 29), (4, 16)]
    assert layout.first_tokens.tolist() == [0, 5, 10, 11, 40, 47, 54, 61]


def test_windows_are_limited_by_distance():
    assert window_mask(4, (1, 1), CPU).int().tolist() == [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]]
    for size, sides in ((1, (1, 1)), (7, (2, 2)), (13, (5, 1)), (5, (9, 9)), (7, (-1, 0)), (5, (0, -1))):
        mask = window_mask(size, sides, CPU)
        assert all(bool(mask[a, b]) == is_seen(b - a, sides) for a in range(size) for b in range(size))


@pytest.mark.parametrize(
    ("device", "capability", "dtype", "has_bias", "kind"),
    [
        ("cpu", None, torch.float32, False, Bucketed),
        ("cpu", None, torch.bfloat16, False, Bucketed),
        ("cuda", (9, 0), torch.float32, False, Bucketed),
        ("cuda", (9, 0), torch.bfloat16, True, Bucketed),
        ("cuda", (9, 0), torch.bfloat16, False, Varlen),
        ("cuda", (8, 0), torch.float16, False, Varlen),
        ("cuda", (7, 5), torch.float16, False, Bucketed),
    ],
)
def test_the_varlen_kernel_is_chosen_if_torch_supports_it(device, capability, dtype, has_bias, kind, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    for layout_class in (Bucketed, Varlen):
        monkeypatch.setattr(layout_class, "__init__", lambda self, lengths, device: None)
    assert type(choose_layout(LENGTHS, torch.device(device), dtype, has_bias)) is kind


def attend_2_10(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, is_causal=False, return_aux=None):
    """torch's kernel as in 2.10; with windows 2.11; with num_splits 2.13."""
    assert max_q == max_k == 32 and cu_seq_q is cu_seq_k and cu_seq_q.tolist()[-1] == len(query)
    return slow(query, key, value, (-1, 0) if is_causal else (-1, -1))


def attend_2_11(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *, scale=None, window_size=(-1, -1)):
    return slow(query, key, value, window_size)


def attend_2_13(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *, window_size=(-1, -1), num_splits=None):
    assert num_splits == 1  # so that a text's attention does not depend on the others
    return slow(query, key, value, window_size)


@pytest.mark.parametrize("kernel", [attend_2_10, attend_2_11, attend_2_13])
@pytest.mark.parametrize("sides", [(-1, -1), (-1, 0), (3, 3)])
def test_the_ragged_kernel_is_called_as_each_version_of_torch_has_it(kernel, sides, monkeypatch):
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", kernel)
    q, k, v = rows()
    attended = Varlen(LENGTHS, CPU).attend(q, k, v, sides=sides, dropout=0.0)
    assert torch.allclose(attended, slow(q, k, v, sides), atol=1e-5)


def test_the_ragged_kernel_has_the_bounds_of_texts_and_refuses_a_bias():
    layout = Varlen(LENGTHS, CPU)
    assert layout.starts.tolist() == [0, 5, 10, 11, 40, 47, 54, 61, 66]
    assert layout.first_tokens.tolist() == [0, 5, 10, 11, 40, 47, 54, 61] and layout.max_length == 32
    with pytest.raises(ValueError, match="Varlen"):
        layout.attend(*rows(), sides=(-1, -1), dropout=0.0, bias=torch.matmul)


@pytest.mark.parametrize("sides", [(-1, -1), (3, 3)])
def test_the_kernel_under_torchs_function_takes_dropout_as_an_argument(sides):
    """Its schema, on tensors without data: tests/gpu/test_attention.py has what it computes."""
    meta = torch.device("meta")
    q, k, v = (part.bfloat16().to(meta).requires_grad_() for part in rows())
    attended = Varlen(LENGTHS, meta).attend(q, k, v, sides=sides, dropout=0.1)
    assert attended.shape == q.shape and attended.dtype is torch.bfloat16
    attended.sum().backward()
    assert q.grad is not None and q.grad.shape == q.shape


@pytest.mark.gpu
@pytest.mark.parametrize("sides", [(-1, -1), (1, 1), (3, 3), (100, 100), *ONE_WAY])
def test_the_ragged_kernel_equals_the_slow_formula(sides):
    q, k, v = (part.bfloat16() for part in rows())
    attended = Varlen(LENGTHS, torch.device("cuda")).attend(q.cuda(), k.cuda(), v.cuda(), sides=sides, dropout=0.0)
    expected = slow(q.float(), k.float(), v.float(), sides)
    assert float((attended.float().cpu() - expected).abs().max()) < 0.03


@pytest.mark.gpu
def test_the_ragged_kernel_has_the_gradients_of_rectangles():
    device, results = torch.device("cuda"), []
    weights = torch.randn(int(LENGTHS.sum()), N, D, generator=torch.Generator().manual_seed(1)).cuda()
    for kind in (Varlen, Bucketed):
        parts = [part.bfloat16().cuda().requires_grad_() for part in rows()]
        attended = kind(LENGTHS, device).attend(*parts, sides=(-1, -1), dropout=0.0)
        results.append([attended, *torch.autograd.grad((attended * weights).sum(), parts)])
    for ragged, bucketed in zip(*results, strict=True):
        ragged, bucketed = ragged.detach().float(), bucketed.detach().float()
        assert float((ragged - bucketed).norm() / bucketed.norm()) < 0.02


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_windows_prepared_while_predicting_serve_training_too(dropout, dtype, global_seed):
    window_mask.cache_clear()
    q, k, v = (part.to(dtype).requires_grad_() for part in rows())
    with torch.inference_mode():
        Bucketed(LENGTHS, CPU).attend(q, k, v, sides=(3, 3), dropout=0.0)
    Bucketed(LENGTHS, CPU).attend(q, k, v, sides=(3, 3), dropout=dropout).sum().backward()
    assert q.grad is not None
