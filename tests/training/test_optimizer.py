"""AdamW with float32 masters: weight decay, non-finite gradients."""

import pytest
import torch
from torch import nn

from bothways.base.errors import InputError
from bothways.training.optimizer import PIECE, Optimizer


@pytest.fixture
def small():
    """Matrices and vectors, no two of one shape."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7), nn.Linear(7, 3))


def set_gradients(module, value):
    for parameter in module.parameters():
        parameter.grad = torch.full_like(parameter, value)


def draw_gradients(module, seed, loss_scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter.grad = (loss_scale * torch.randn(parameter.shape, generator=generator)).to(parameter.dtype)


def reference_of(module, **options):
    """The plain optimizer over float32 copies, and the copies by name."""
    copies = {name: nn.Parameter(value.detach().float().clone()) for name, value in module.named_parameters()}
    matrices = [value for value in copies.values() if value.ndim > 1]
    vectors = [value for value in copies.values() if value.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.01}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, betas=(0.9, 0.999), eps=1e-6, foreach=False, **options), copies


def test_only_matrices_decay(small):
    before = {name: value.detach().clone() for name, value in small.named_parameters()}
    optimizer = Optimizer(small, learning_rate=0.1, weight_decay=0.5)
    set_gradients(small, 0.0)
    optimizer.step(1.0)
    for name, value in small.named_parameters():
        expected = before[name] * (0.95 if value.ndim > 1 else 1.0)
        assert torch.allclose(value, expected, rtol=1e-6, atol=0), name


def test_each_layer_learns_at_the_rate(make_model):
    model = make_model("bert", {"classes": 3})  # three layers: embeddings 0, layers 1 to 3, pooler and head 4
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    optimizer = Optimizer(model, learning_rate=0.01, weight_decay=0.0)
    set_gradients(model, 1.0)
    optimizer.step(0.5, max_grad_norm=float("inf"))
    seen = set()
    for name, value in model.named_parameters():
        depth = 0 if "embeddings" in name else int(name.split("layers.")[1][0]) + 1 if "layers." in name else 4
        seen.add(depth)
        # Adam's first step moves every weight by the rate.
        assert (before[name] - value.detach()).mean().item() == pytest.approx(0.005, rel=1e-3), name
    assert seen == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_masters_follow_a_float32_optimizer_given_the_same_gradients(dtype, small):
    optimizer = Optimizer(small, learning_rate=1e-3)
    reference, copies = reference_of(small, lr=1e-3)
    small.to(dtype)
    for step in range(25):
        draw_gradients(small, step)
        for name, parameter in small.named_parameters():
            copies[name].grad = parameter.grad.float().clone()
        norm = nn.utils.clip_grad_norm_(copies.values(), 1.0)
        reference.step()
        assert optimizer.step(1.0, max_grad_norm=1.0) == pytest.approx(float(norm), rel=1e-6)
        for name, parameter in small.named_parameters():
            assert parameter.dtype is dtype and parameter.grad is None
            close = 1e-2 if dtype is torch.bfloat16 else 1e-6
            assert torch.allclose(parameter.float(), copies[name].to(dtype).float(), rtol=close, atol=1e-6)
    optimizer.write_masters(small)
    for name, parameter in small.named_parameters():
        assert parameter.dtype is torch.float32
        assert torch.allclose(parameter, copies[name], rtol=1e-5, atol=1e-7), name


def test_steps_too_small_for_bf16_add_up(small):
    optimizer = Optimizer(small, learning_rate=1e-5, weight_decay=0.0)
    before = small[0].weight.detach().clone()
    small.bfloat16()
    rounded = small[0].weight.detach().clone()
    for _ in range(200):
        set_gradients(small, 1.0)
        optimizer.step(1.0, max_grad_norm=float("inf"))
    optimizer.write_masters(small)
    moved = before - small[0].weight.detach()
    assert moved.mean().item() == pytest.approx(200e-5, rel=1e-3)
    assert (rounded.abs() > 0.01).any() and 1e-5 < 0.01 * 2**-9  # one step alone is below half of bf16's last place


def test_a_gradient_above_the_norm_is_scaled_to_it_and_one_below_is_left(small):
    reference, copies = reference_of(small, lr=1e-2)
    optimizer = Optimizer(small, learning_rate=1e-2)
    for step, scale in enumerate((100.0, 0.001, 3.0)):  # unequal scales: Adam alone would not show a common factor
        draw_gradients(small, step, scale)
        gradients = {name: value.grad.clone() for name, value in small.named_parameters()}
        norm = torch.cat([value.flatten() for value in gradients.values()]).norm().item()
        for name, copy in copies.items():
            copy.grad = gradients[name] * min(1.0, 0.5 / norm)
        reference.step()
        assert optimizer.step(1.0, max_grad_norm=0.5) == pytest.approx(norm, rel=1e-5)
    for name, value in small.named_parameters():
        assert torch.allclose(value, copies[name], rtol=1e-5, atol=1e-7), name


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_gradient_that_is_not_finite_changes_nothing(bad, small, global_seed):
    twin = nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7), nn.Linear(7, 3))
    twin.load_state_dict(small.state_dict())
    optimizer, other = Optimizer(small, learning_rate=1e-2), Optimizer(twin, learning_rate=1e-2)
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
    optimizer = Optimizer(small, learning_rate=1e-2)
    set_gradients(small, 1.0)
    small[2].weight.grad = None
    optimizer.step(1.0)
    assert torch.equal(small[2].weight, before)


def test_the_share_scales_the_rate_and_the_decay(small):
    before = small[0].weight.detach().clone()
    optimizer = Optimizer(small, learning_rate=0.1, weight_decay=0.5)
    set_gradients(small, 0.0)
    optimizer.step(0.2)
    assert torch.allclose(small[0].weight, before * 0.99, rtol=1e-6, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_how_parameters_are_cut_into_pieces_changes_no_more_than_a_last_digit(dtype, make_model, monkeypatch):
    states = []
    for piece in (1 << 18, 101, 7):
        monkeypatch.setitem(PIECE, "cpu", piece)
        model = make_model("bert", {"classes": 3})
        optimizer = Optimizer(model, learning_rate=1e-2)
        model.to(dtype)
        for step in range(3):
            draw_gradients(model, step)
            optimizer.step(1.0, max_grad_norm=float("inf"))
        states.append(model.state_dict())
    close = {"rtol": 1e-2, "atol": 1e-4} if dtype is torch.bfloat16 else {"rtol": 1e-6, "atol": 1e-7}
    for other in states[1:]:
        for name, value in states[0].items():
            assert torch.allclose(value, other[name], **close), name


def test_masters_of_float32_weights_are_the_weights(small):
    optimizer = Optimizer(small, learning_rate=1e-2)
    assert optimizer.masters["0.weight"].data_ptr() == small[0].weight.data_ptr()
    small.bfloat16()
    assert optimizer.masters["0.weight"].dtype is torch.float32


def test_gradients_times_a_scale_make_the_same_step(small, global_seed):
    twin = nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7), nn.Linear(7, 3))
    twin.load_state_dict(small.state_dict())
    optimizer, other = Optimizer(small, learning_rate=1e-2), Optimizer(twin, learning_rate=1e-2)
    for step in range(4):
        draw_gradients(small, step), draw_gradients(twin, step, 4096.0)  # a power of two changes no digit
        assert optimizer.step(1.0, max_grad_norm=0.5) == other.step(1.0, max_grad_norm=0.5, loss_scale=4096.0)
    assert all(torch.equal(value, same) for value, same in zip(small.parameters(), twin.parameters(), strict=True))


# --- state
# ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_restored_state_continues_bit_for_bit(dtype, make_model):
    def begin(seed):
        model = make_model("bert", {"classes": 3}, seed=seed)
        optimizer = Optimizer(model, learning_rate=1e-2)
        return model.to(dtype), optimizer

    def go(model, optimizer, steps):
        for step in steps:
            draw_gradients(model, step)
            model.pooler.dense.bias.grad = None if step == 1 else model.pooler.dense.bias.grad
            optimizer.step(0.5)
            if step == 2:
                optimizer.mark_best()

    whole, optimizer = begin(0)
    go(whole, optimizer, range(7))
    half, first = begin(0)
    go(half, first, range(4))
    state = {name: value.clone() for name, value in first.state().items()}
    other, second = begin(1)
    second.load(state)
    go(other, second, range(4, 7))
    for name, value in whole.named_parameters():
        assert torch.equal(value, dict(other.named_parameters())[name]), name
    ours, theirs = second.state(), optimizer.state()
    assert ours.keys() == theirs.keys() and any(name.startswith("best.") for name in ours)
    assert all(torch.equal(value, theirs[name]) for name, value in ours.items())
    second.write_masters(other), optimizer.write_masters(whole)
    assert all(torch.equal(value, whole.state_dict()[name]) for name, value in other.state_dict().items())


def test_the_state_of_another_model_is_refused(small, make_model):
    state = Optimizer(make_model("bert", {"classes": 3}), learning_rate=1e-2).state()
    with pytest.raises(InputError, match="another model or optimizer"):
        Optimizer(small, learning_rate=1e-2).load(state)
