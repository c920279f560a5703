"""AdamW over float32 masters: what decays, how fast each layer learns, what a bad gradient does."""

import pytest
import torch
from torch import nn

from bothways.train.optim import Optimizer


@pytest.fixture
def small():
    """Matrices and vectors, no two of one shape."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7), nn.Linear(7, 3))


def set_gradients(module, value):
    for parameter in module.parameters():
        parameter.grad = torch.full_like(parameter, value)


def draw_gradients(module, seed, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter.grad = (scale * torch.randn(parameter.shape, generator=generator)).to(parameter.dtype)


def reference_of(module, **told):
    """The plain optimizer over float32 copies, and the copies by name."""
    copies = {name: nn.Parameter(value.detach().float().clone()) for name, value in module.named_parameters()}
    matrices = [value for value in copies.values() if value.ndim > 1]
    vectors = [value for value in copies.values() if value.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.01}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, betas=(0.9, 0.999), eps=1e-6, foreach=False, **told), copies


def test_only_matrices_decay(small):
    before = {name: value.detach().clone() for name, value in small.named_parameters()}
    optimizer = Optimizer(small, rate=0.1, weight_decay=0.5)
    set_gradients(small, 0.0)
    optimizer.step(1.0)
    for name, value in small.named_parameters():
        expected = before[name] * (0.95 if value.ndim > 1 else 1.0)
        assert torch.allclose(value, expected, rtol=1e-6, atol=0), name


@pytest.mark.parametrize("decay", [1.0, 0.7])
def test_each_layer_learns_at_its_rate(decay, make_model):
    model = make_model("bert", {"classes": 3})  # three layers: embeddings 0, layers 1 to 3, pooler and head 4
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    optimizer = Optimizer(model, rate=0.01, weight_decay=0.0, layer_decay=decay)
    set_gradients(model, 1.0)
    optimizer.step(0.5, clip=float("inf"))
    seen = set()
    for name, value in model.named_parameters():
        depth = 0 if "embeddings" in name else int(name.split("layers.")[1][0]) + 1 if "layers." in name else 4
        seen.add(depth)
        # Adam's first step moves every weight by the rate.
        assert (before[name] - value.detach()).mean().item() == pytest.approx(0.005 * decay ** (4 - depth), rel=1e-3), (
            name
        )
    assert seen == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_masters_follow_a_float32_optimizer_given_the_same_gradients(dtype, small):
    optimizer = Optimizer(small, rate=1e-3)
    reference, copies = reference_of(small, lr=1e-3)
    small.to(dtype)
    for step in range(25):
        draw_gradients(small, step)
        for name, parameter in small.named_parameters():
            copies[name].grad = parameter.grad.float().clone()
        norm = nn.utils.clip_grad_norm_(copies.values(), 1.0)
        reference.step()
        assert optimizer.step(1.0, clip=1.0) == pytest.approx(float(norm), rel=1e-6)
        for name, parameter in small.named_parameters():
            assert parameter.dtype is dtype and parameter.grad is None
            close = 1e-2 if dtype is torch.bfloat16 else 1e-6
            assert torch.allclose(parameter.float(), copies[name].to(dtype).float(), rtol=close, atol=1e-6)
    optimizer.write_masters(small)
    for name, parameter in small.named_parameters():
        assert parameter.dtype is torch.float32
        assert torch.allclose(parameter, copies[name], rtol=1e-5, atol=1e-7), name


def test_steps_too_small_for_bf16_add_up(small):
    optimizer = Optimizer(small, rate=1e-5, weight_decay=0.0)
    before = small[0].weight.detach().clone()
    small.bfloat16()
    rounded = small[0].weight.detach().clone()
    for _ in range(200):
        set_gradients(small, 1.0)
        optimizer.step(1.0, clip=float("inf"))
    optimizer.write_masters(small)
    moved = before - small[0].weight.detach()
    assert moved.mean().item() == pytest.approx(200e-5, rel=1e-3)
    assert (rounded.abs() > 0.01).any() and 1e-5 < 0.01 * 2**-9  # one step alone is below half of bf16's last place


def test_a_gradient_above_the_norm_is_scaled_to_it_and_one_below_is_left(small):
    reference, copies = reference_of(small, lr=1e-2)
    optimizer = Optimizer(small, rate=1e-2)
    for step, scale in enumerate((100.0, 0.001, 3.0)):  # unequal scales: Adam alone would not show a common factor
        draw_gradients(small, step, scale)
        gradients = {name: value.grad.clone() for name, value in small.named_parameters()}
        norm = torch.cat([value.flatten() for value in gradients.values()]).norm().item()
        for name, copy in copies.items():
            copy.grad = gradients[name] * min(1.0, 0.5 / norm)
        reference.step()
        assert optimizer.step(1.0, clip=0.5) == pytest.approx(norm, rel=1e-5)
    for name, value in small.named_parameters():
        assert torch.allclose(value, copies[name], rtol=1e-5, atol=1e-7), name


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_gradient_that_is_not_finite_changes_nothing(bad, small):
    twin = nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7), nn.Linear(7, 3))
    twin.load_state_dict(small.state_dict())
    optimizer, other = Optimizer(small, rate=1e-2), Optimizer(twin, rate=1e-2)
    for step in range(4):
        if step == 2:  # only one of the two meets the bad gradient
            draw_gradients(small, 99)
            small[2].bias.grad[1] = bad
            norm = optimizer.step(1.0)
            assert norm != norm or norm == float("inf")
            assert all(parameter.grad is None for parameter in small.parameters())
        for module, own in ((small, optimizer), (twin, other)):
            draw_gradients(module, step)
            own.step(1.0)
    for value, expected in zip(small.parameters(), twin.parameters(), strict=True):
        assert torch.equal(value, expected)


def test_a_parameter_without_a_gradient_stays(small):
    before = small[2].weight.detach().clone()
    optimizer = Optimizer(small, rate=1e-2)
    set_gradients(small, 1.0)
    small[2].weight.grad = None
    optimizer.step(1.0)
    assert torch.equal(small[2].weight, before)


def test_the_share_scales_the_rate_and_the_decay(small):
    before = small[0].weight.detach().clone()
    optimizer = Optimizer(small, rate=0.1, weight_decay=0.5)
    set_gradients(small, 0.0)
    optimizer.step(0.2)
    assert torch.allclose(small[0].weight, before * 0.99, rtol=1e-6, atol=0)
