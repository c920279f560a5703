"""Losses as (sum, count), against torch's own."""

import pytest
import torch
import torch.nn.functional as F

from bothways.model.losses import classification_loss, masked_lm_loss, mse_loss


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_masked_lm_is_the_sum_of_cross_entropies_and_its_gradients_are_torchs():
    x_ME, table_VE, bias_V = draw(7, 5, seed=1), draw(11, 5, seed=2), draw(11, seed=3)
    labels_M = torch.tensor([3, 0, 10, 3, 7, 1, 2])
    ours = [part.clone().requires_grad_() for part in (x_ME, table_VE, bias_V)]
    theirs = [part.clone().requires_grad_() for part in (x_ME, table_VE, bias_V)]
    value, number = masked_lm_loss(*ours, labels_M)
    x, table, bias = theirs
    expected = F.cross_entropy(x @ table.T + bias, labels_M, reduction="sum")
    assert number == 7
    assert value.item() == pytest.approx(expected.item(), rel=1e-6)
    value.backward()
    expected.backward()
    for parameter, reference in zip(ours, theirs, strict=True):
        assert torch.allclose(parameter.grad, reference.grad, atol=1e-6)


def test_nothing_masked_is_a_zero_that_can_be_differentiated():
    parameters = [draw(*shape).requires_grad_() for shape in ((0, 5), (11, 5), (11,))]
    value, number = masked_lm_loss(*parameters, torch.zeros(0, dtype=torch.long))
    assert (value.item(), number) == (0.0, 0)
    value.backward()
    assert all(one.grad is not None and not one.grad.any() for one in parameters)  # as where words are masked


def test_class_loss_is_the_sum_of_cross_entropies():
    scores_NC, labels_N = draw(5, 3), torch.tensor([2, 0, 1, 1, 2])
    value, number = classification_loss(scores_NC, labels_N)
    expected = sum(-scores_NC[row].log_softmax(0)[label].item() for row, label in enumerate(labels_N.tolist()))
    assert (value.item(), number) == (pytest.approx(expected, rel=1e-6), 5)


def test_class_loss_is_computed_in_float32():
    scores_NC = draw(5, 3).bfloat16()
    value, _ = classification_loss(scores_NC, torch.tensor([2, 0, 1, 1, 2]))
    assert value.dtype is torch.float32
    assert value.item() == classification_loss(scores_NC.float(), torch.tensor([2, 0, 1, 1, 2]))[0].item()


def test_squared_loss_is_the_sum_of_squares():
    value, number = mse_loss(torch.tensor([1.0, 2.5, -3.0]), torch.tensor([0.0, 2.0, 1.0]))
    assert (value.item(), number) == (1.0 + 0.25 + 16.0, 3)
