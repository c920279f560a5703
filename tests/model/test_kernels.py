"""Each fast form against the plain form it stands for: values, gradients and, where chance is in it, rate and seed."""

import pytest
import torch
import torch.nn.functional as F

from bothways.model import kernels
from bothways.model.kernels import Dropout, dropout_mask, linear_cross_entropy

B, N, S, D = 5, 3, 29, 8


def queries(*shape, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(*shape, generator=generator).to(dtype).requires_grad_() for _ in "qkv"]


def gradients(output, inputs, seed=1):
    weights = torch.randn(output.shape, generator=torch.Generator().manual_seed(seed)).to(output.dtype)
    return torch.autograd.grad((output * weights).sum(), inputs)


def relative(ours, theirs):
    ours, theirs = ours.detach().double(), theirs.detach().double()
    return float((ours - theirs).norm() / theirs.norm())


# --- attention ------------------------------------------------------------------------------------------------------


def test_batched_attention_equals_the_fused_kernel_with_its_gradients():
    qkv = queries(B, S, D)
    ours, theirs = kernels._BatchedAttention.apply(*qkv, 0.0), F.scaled_dot_product_attention(*qkv)
    assert relative(ours, theirs) < 1e-6
    for one, other in zip(gradients(ours, qkv), gradients(theirs, qkv), strict=True):
        assert relative(one, other) < 1e-6


def test_batched_attention_has_the_gradients_of_its_finite_differences():
    qkv = [part.double().detach().requires_grad_() for part in queries(2, 5, 3)]
    assert torch.autograd.gradcheck(lambda *parts: kernels._BatchedAttention.apply(*parts, 0.0), qkv)


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_the_way_back_drops_what_the_way_forward_dropped(rate):
    qkv = [part.double().detach().requires_grad_() for part in queries(2, 7, 3)]

    def attend(*parts):
        torch.manual_seed(11)
        return kernels._BatchedAttention.apply(*parts, rate)

    assert torch.autograd.gradcheck(attend, qkv)
    dropped = attend(*qkv) - kernels._BatchedAttention.apply(*qkv, 0.0)
    assert bool((dropped.abs() > 0.01).any())


def test_dropped_attention_equals_the_plain_formula_under_the_same_mask():
    q, k, v = queries(B, S, D)
    torch.manual_seed(5)
    ours = kernels._BatchedAttention.apply(q, k, v, 0.3)
    torch.manual_seed(5)
    weights = (q @ k.transpose(1, 2) / D**0.5).softmax(-1)
    theirs = (weights * dropout_mask(weights, 0.3)) @ v
    assert relative(ours, theirs) < 1e-6
    for one, other in zip(gradients(ours, (q, k, v)), gradients(theirs, (q, k, v)), strict=True):
        assert relative(one, other) < 1e-6


@pytest.mark.parametrize("size", [1, 29, kernels.LONGEST_BATCHED + 1])
def test_half_precision_attention_is_as_near_to_the_exact_one_as_torchs(size):
    exact = queries(2, N, size, D)
    half = [part.detach().bfloat16().requires_grad_() for part in exact]
    exact = [part.detach().float().requires_grad_() for part in half]
    expected = F.scaled_dot_product_attention(*exact)
    ours, peer = kernels.attention(*half), F.scaled_dot_product_attention(*half)
    assert ours.shape == expected.shape and ours.dtype == torch.bfloat16
    assert relative(ours, expected) < max(2 * relative(peer, expected), 0.008)
    columns = zip(gradients(ours, half), gradients(expected, exact), strict=True)
    if size > 1:  # one token looks at itself alone: queries and keys have no gradient
        assert all(relative(one, other) < 0.02 for one, other in columns)


@pytest.mark.parametrize(
    ("dtype", "size", "training", "rate", "masked", "batched"),
    [
        (torch.float32, S, True, 0.0, False, False),
        (torch.float32, S, True, 0.1, False, True),
        (torch.bfloat16, S, False, 0.0, False, True),
        (torch.bfloat16, kernels.LONGEST_BATCHED, False, 0.0, False, True),
        (torch.bfloat16, kernels.LONGEST_BATCHED + 1, False, 0.0, False, False),
        (torch.bfloat16, kernels.LONGEST_BATCHED + 1, True, 0.0, False, True),
        (torch.bfloat16, S, True, 0.0, True, False),
    ],
)
def test_the_batched_form_is_taken_where_it_is_faster(dtype, size, training, rate, masked, batched, monkeypatch):
    used = []
    plain = kernels._BatchedAttention.apply
    monkeypatch.setattr(kernels._BatchedAttention, "apply", lambda *given: used.append(given) or plain(*given))
    q, k, v = queries(2, N, size, D, dtype=dtype)
    mask = torch.ones(size, size, dtype=torch.bool) if masked else None
    with torch.set_grad_enabled(training):
        assert kernels.attention(q, k, v, mask, rate).shape == (2, N, size, D)
    assert bool(used) == batched


def test_a_mask_hides_what_it_says():
    q, k, v = (part.detach() for part in queries(2, N, 7, D))
    mask = torch.eye(7, dtype=torch.bool)
    assert torch.allclose(kernels.attention(q, k, v, mask), v, atol=1e-6)


# --- dropout --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.1, 0.25, 0.5, 0.9])
def test_the_rate_of_dropout_is_the_one_asked_for(rate):
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


@pytest.mark.parametrize("newest_torch", [True, False])
def test_cross_entropy_of_a_linear_map_equals_the_plain_one_with_its_gradients(newest_torch, monkeypatch):
    if newest_torch and not hasattr(F, "linear_cross_entropy"):
        pytest.skip("this torch has no linear_cross_entropy")
    if not newest_torch:
        monkeypatch.delattr(F, "linear_cross_entropy", raising=False)
    generator = torch.Generator().manual_seed(2)
    x, weight, bias = (
        torch.randn(*shape, generator=generator, requires_grad=True) for shape in ((13, 24), (97, 24), (97,))
    )
    labels = torch.randint(0, 97, (13,), generator=generator)
    ours = linear_cross_entropy(x, weight, bias, labels)
    scores = x @ weight.T + bias
    theirs = -scores.log_softmax(-1)[torch.arange(13), labels].sum()
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-6)
    mine, yours = (torch.autograd.grad(loss, (x, weight, bias)) for loss in (ours, theirs))
    assert all(relative(one, other) < 1e-6 for one, other in zip(mine, yours, strict=True))
