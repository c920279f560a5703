"""Each fast kernel against its plain form: values, gradients, and for random ones rate and seed."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from bothways.model import kernels, vocabulary_scores
from bothways.model.buckets import build_buckets, round_length
from bothways.model.dropout import Dropout, draw_keep_mask, dropout_factors
from bothways.model.layout import Bucketed
from bothways.model.vocabulary_scores import linear_cross_entropy

pytestmark = pytest.mark.usefixtures("global_seed")  # compares what torch draws

B, N, S, D = 5, 3, 29, 8
LONGEST = kernels.MAX_BATCHED_HEAD_SIZES * D
CPU = torch.device("cpu")
ABLE = torch.cpu.get_capabilities()
# Measured where bf16 products use AVX512; elsewhere the order of summation may differ.
BITS = 0.0 if ABLE.get("avx512_bf16") and not ABLE.get("amx_bf16") else 0.02


def queries(*shape, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(*shape, generator=generator).to(dtype).requires_grad_() for _ in "qkv"]


def gradients(output, inputs, seed=1):
    weights = torch.randn(output.shape, generator=torch.Generator().manual_seed(seed)).to(output.dtype)
    return torch.autograd.grad((output * weights).sum(), inputs)


def relative(ours, theirs):
    ours, theirs = ours.detach().double(), theirs.detach().double()
    return float((ours - theirs).norm() / theirs.norm())


def dropout_mask(like, rate):
    return dropout_factors(draw_keep_mask(like.numel(), rate), like, rate)


# --- attention ------------------------------------------------------------------------------------------------------

LENGTHS = [5, 5, 29, 7, 7, 7, 1, 17, 30, 32, 20]  # a rectangle filled exactly, ones of one text, ones with filling
T = sum(LENGTHS)
BUCKETS = build_buckets(LENGTHS, torch.device("cpu"))


def plain(q_TND, k_TND, v_TND, kept=None):
    """Text by text; kept: the dropout masks [N, n, S, S] of each rectangle."""
    mixed, start = [], 0
    for number, rectangle in enumerate(BUCKETS):
        text = 0
        while start < rectangle.end:
            size = LENGTHS[len(mixed)]
            q, k, v = (part[start : start + size].transpose(0, 1) for part in (q_TND, k_TND, v_TND))
            weights = (q @ k.transpose(1, 2) / q.shape[-1] ** 0.5).softmax(-1)
            if kept:
                weights = weights * kept[number][:, text, :size, :size]
            mixed.append((weights @ v).transpose(0, 1))
            start, text = start + size, text + 1
    return torch.cat(mixed)


def test_these_tests_have_every_kind_of_bucket():
    assert [(part.n, part.size, part.slots is None) for part in BUCKETS] == [
        (2, 5, True), (1, 29, True), (4, 16, False), (4, 32, False),
    ]  # fmt: skip


def test_batched_attention_equals_the_plain_formula_with_its_gradients():
    qkv = queries(T, N, D)
    ours, theirs = kernels.batched_attention(*qkv, BUCKETS), plain(*qkv)
    assert relative(ours, theirs) < 1e-6
    for one, other in zip(gradients(ours, qkv), gradients(theirs, qkv), strict=True):
        assert relative(one, other) < 1e-6


def test_batched_attention_reads_slices_of_one_projection_as_it_reads_copies():
    whole = torch.randn(T, 3, N, D, generator=torch.Generator().manual_seed(7), requires_grad=True)
    ours = kernels.batched_attention(*whole.unbind(1), BUCKETS)
    theirs = plain(*(part.contiguous() for part in whole.unbind(1)))
    assert relative(ours, theirs) < 1e-6
    assert relative(gradients(ours, whole)[0], gradients(theirs, whole)[0]) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("lengths", [[2, 2, 3], [2, 2], [3]])
def test_the_backward_pass_uses_the_dropout_mask_of_the_forward_pass(lengths, rate):
    qkv = [part.double().detach().requires_grad_() for part in queries(sum(lengths), 2, 3)]
    places = build_buckets(lengths, torch.device("cpu"))

    def attend(*parts):
        torch.manual_seed(11)
        return kernels.batched_attention(*(part.float() for part in parts), places, rate).double()

    assert torch.autograd.gradcheck(attend, qkv, eps=1e-2, atol=2e-3)
    dropped = attend(*qkv) - kernels.batched_attention(*(part.float() for part in qkv), places)
    assert bool((dropped.abs() > 0.01).any()) == (rate > 0)


def test_dropped_attention_equals_the_plain_formula_under_the_same_masks():
    qkv = queries(T, N, D)
    torch.manual_seed(5)
    ours = kernels.batched_attention(*qkv, BUCKETS, 0.3)
    torch.manual_seed(5)
    kept = [dropout_mask(torch.empty(N, part.n, part.size, part.size), 0.3) for part in BUCKETS]
    theirs = plain(*qkv, kept)
    assert relative(ours, theirs) < 1e-6
    for one, other in zip(gradients(ours, qkv), gradients(theirs, qkv), strict=True):
        assert relative(one, other) < 1e-6


@pytest.mark.parametrize("size", [1, 29, LONGEST + 1, 257])
def test_half_precision_attention_is_as_near_to_the_exact_one_as_torchs(size):
    exact = queries(2 * size, N, D)
    half = [part.detach().bfloat16().requires_grad_() for part in exact]
    exact = [part.detach().float().requires_grad_() for part in half]

    def fused(*parts):
        return F.scaled_dot_product_attention(*(x.unflatten(0, (2, size)).transpose(1, 2) for x in parts))

    expected, peer = (fused(*parts).transpose(1, 2).flatten(0, 1) for parts in (exact, half))
    ours = kernels.batched_attention(*half, build_buckets([size, size], torch.device("cpu")))
    assert ours.shape == expected.shape and ours.dtype == torch.bfloat16
    assert relative(ours, expected) < max(2 * relative(peer, expected), 0.008)
    columns = zip(gradients(ours, half), gradients(expected, exact), strict=True)
    if size > 1:  # one token looks at itself alone: queries and keys have no gradient
        assert all(relative(one, other) < 0.02 for one, other in columns)


@pytest.mark.parametrize(
    ("dtype", "tokens", "size", "training", "rate", "batched"),
    [
        (torch.float32, 999, S, False, 0.0, False),
        (torch.float32, 999, S, True, 0.0, True),
        (torch.float32, 999, S, True, 0.1, True),
        (torch.bfloat16, 999, S, False, 0.0, False),
        (torch.bfloat16, 7, S, True, 0.0, True),
        (torch.bfloat16, 999, LONGEST + 1, True, 0.0, True),
        (torch.bfloat16, 999, kernels.MAX_SAVED_LENGTH + 1, True, 0.1, False),
        (torch.float32, 999, kernels.MAX_SAVED_LENGTH_FLOAT32 + 1, True, 0.0, False),
        (torch.float32, 999, kernels.MAX_SAVED_LENGTH_FLOAT32 + 1, True, 0.1, True),
    ],
)
def test_the_batched_kernel_is_chosen_when_it_is_faster(dtype, tokens, size, training, rate, batched):
    (q,) = queries(tokens, N, D, dtype=dtype)[:1]
    with torch.set_grad_enabled(training):
        assert kernels.batched_is_faster(q, size, rate) == batched


@pytest.mark.parametrize("size", [1, 7, 16, 29, 47, 60, 100, 128, 129, 208, 257])
def test_in_half_precision_neighbours_of_other_lengths_do_not_change_a_bit_of_a_text(size):
    """Those of its own length and longer ones, with which its rectangle is filled up; whichever kernel is taken."""
    N, D = 12, 32  # as many numbers as a difference in the last bits needs to show
    fill, alone = round_length(size), torch.tensor([size])
    own = torch.stack(queries(size, N, D, dtype=torch.bfloat16), 1).detach()
    with torch.inference_mode():
        expected = Bucketed(alone, CPU).attend(*own.unbind(1), sides=(-1, -1), dropout=0.0)
        for lengths in ([size] * 9, [size, fill], [size, size, fill, fill], [3, size, 3 * fill]):
            start = sum(lengths[: lengths.index(size)])
            rows = torch.randn(sum(lengths), 3, N, D, generator=torch.Generator().manual_seed(5)).bfloat16()
            rows[start : start + size] = own
            attended = Bucketed(torch.tensor(lengths), CPU).attend(*rows.unbind(1), sides=(-1, -1), dropout=0.0)
            apart = (attended[start : start + size].float() - expected.float()).abs().max()
            assert apart <= BITS, lengths


@pytest.mark.parametrize("size", [2, 18, S, LONGEST])
def test_attention_by_products_equals_the_plain_formula(size):
    lengths = [size - 1, size, size]
    q, k, v = (part.detach() for part in queries(sum(lengths), N, D, dtype=torch.bfloat16))
    (part,) = build_buckets(lengths, CPU)
    with torch.inference_mode():
        ours = part.ungather(kernels.attention_by_products(part, *(part.gather(x) for x in (q, k, v))))
        exact = Bucketed(torch.tensor(lengths), CPU).attend(
            *(x.float() for x in (q, k, v)), sides=(-1, -1), dropout=0.0
        )
    assert relative(ours, exact) < 0.01


# --- dropout --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.1, 0.25, 0.5, 0.9])
def test_the_dropout_rate_is_as_requested(rate):
    torch.manual_seed(3)
    mask = dropout_mask(torch.empty(1009, 997), rate)
    dropped = float((mask == 0).float().mean())
    deviation = (rate * (1 - rate) / mask.numel()) ** 0.5
    assert abs(dropped - rate) < 5 * deviation + 2**-16
    kept = mask[mask != 0]
    assert torch.allclose(kept, torch.full_like(kept, 1 / (1 - rate)))
    rows = (mask == 0).float().mean(1)
    assert float(rows.std()) == pytest.approx((rate * (1 - rate) / 997) ** 0.5, rel=0.15)


def test_neighbours_are_dropped_independently():
    torch.manual_seed(4)
    dropped = (dropout_mask(torch.empty(1_000_003), 0.5) == 0).float() - 0.5
    for shift in (1, 2, 3, 4, 8, 16):
        assert abs(float((dropped[shift:] * dropped[:-shift]).mean())) < 5 * 0.25 / 1000


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1,), (3, 7), (5, 13, 2), (0, 3)])
def test_a_mask_has_the_shape_and_type_of_what_it_covers(shape, dtype):
    mask = dropout_mask(torch.empty(shape, dtype=dtype), 0.1)
    assert mask.shape == torch.Size(shape) and mask.dtype == dtype


def test_seeding_torch_fixes_every_mask():
    def masks():
        torch.manual_seed(9)
        return [dropout_mask(torch.empty(31, 17), 0.5) for _ in range(3)]

    first, second = masks(), masks()
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
    assert not torch.equal(first[0], first[1])
    torch.manual_seed(10)
    assert not torch.equal(first[0], dropout_mask(torch.empty(31, 17), 0.5))


def test_dropout_keeps_the_mean_and_passes_the_same_mask_back():
    torch.manual_seed(6)
    x = torch.full((503, 601), 3.0, requires_grad=True)
    y = Dropout(0.2).train()(x)
    assert set(y.unique().tolist()) == {0.0, 3.75}
    assert y.mean().item() == pytest.approx(3.0, abs=0.02)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach() / 3)


def test_dropout_does_nothing_outside_training_or_at_rate_0():
    x = torch.randn(7, 3)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0).train()(x) is x


# --- cross-entropy --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_once", [5, 2048])
def test_cross_entropy_of_a_linear_map_equals_the_plain_one_with_its_gradients(at_once, monkeypatch):
    monkeypatch.setattr(vocabulary_scores, "MAX_POSITIONS", at_once)
    generator = torch.Generator().manual_seed(2)
    x, weight, bias = (
        torch.randn(*shape, generator=generator, requires_grad=True) for shape in ((13, 24), (97, 24), (97,))
    )
    labels = torch.randint(0, 97, (13,), generator=generator)
    ours = linear_cross_entropy(x, weight, bias, labels) / 7
    scores = x @ weight.T + bias
    theirs = -scores.log_softmax(-1)[torch.arange(13), labels].sum() / 7
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-6)
    mine, yours = (torch.autograd.grad(loss, (x, weight, bias)) for loss in (ours, theirs))
    assert all(relative(one, other) < 1e-6 for one, other in zip(mine, yours, strict=True))
    with torch.no_grad():
        assert linear_cross_entropy(x, weight, bias, labels).item() == pytest.approx(7 * theirs.item(), rel=1e-6)


def test_cross_entropy_in_half_precision_is_near_the_exact_one_and_never_infinite():
    generator = torch.Generator().manual_seed(3)
    x, weight = (torch.randn(*shape, generator=generator).bfloat16().requires_grad_() for shape in ((61, 24), (97, 24)))
    bias, labels = torch.zeros(97).bfloat16().requires_grad_(), torch.arange(61)
    ours = linear_cross_entropy(x, weight, bias, labels)
    exact = F.cross_entropy(x.float() @ weight.float().T, labels, reduction="sum")
    assert ours.dtype == torch.float32 and ours.item() == pytest.approx(exact.item(), rel=2e-3)
    mine, yours = (torch.autograd.grad(loss, (x, weight)) for loss in (ours, exact))
    assert all(relative(one, other) < 0.02 for one, other in zip(mine, yours, strict=True))
    impossible = linear_cross_entropy(x * 1e4, weight, bias, labels)
    assert bool(impossible.isfinite())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_loss_of_an_unlikely_word_is_what_it_is_in_every_number_format(dtype):
    x, weight = torch.tensor([[1.0]], dtype=dtype), torch.tensor([[20.0], [0.0]], dtype=dtype)
    parts = [part.requires_grad_() for part in (x, weight, torch.zeros(2, dtype=dtype))]
    assert linear_cross_entropy(*parts, torch.tensor([1])).item() == pytest.approx(20, rel=1e-3)


def test_the_scores_of_all_places_are_never_in_memory_at_once():
    places, entries = 3 * vocabulary_scores.MAX_POSITIONS, 4099
    x, weight = torch.randn(places, 8).bfloat16().requires_grad_(), torch.randn(entries, 8).bfloat16().requires_grad_()
    bias, labels = torch.zeros(entries).bfloat16().requires_grad_(), torch.zeros(places, dtype=torch.long)
    largest = 0

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            nonlocal largest
            output = function(*args, **(kwargs or {}))
            largest = max(largest, output.numel() if isinstance(output, torch.Tensor) else 0)
            return output

    with Watch():
        linear_cross_entropy(x, weight, bias, labels).backward()
    assert largest == vocabulary_scores.MAX_POSITIONS * entries
