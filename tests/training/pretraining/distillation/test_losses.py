"""Distillation losses beside slow formulas, ragged beside padded, teachers of another family, width and head count."""

import math

import pytest
import torch
import torch.nn.functional as F

from bothways.model.losses import logits_loss, vector_distance
from bothways.training.pretraining.distillation import objective
from bothways.training.pretraining.distillation.objective import default_relation_heads, relation_loss

LENGTHS = torch.tensor([5, 1, 17, 5])
T = int(LENGTHS.sum())


def qkv(seed, size):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(T, 3, size, generator=generator, dtype=torch.float64).requires_grad_()


def texts(x_T3H, heads):
    """Queries, keys and values of each text, [R, S, D] each."""
    for part_S3H in x_T3H.split(LENGTHS.tolist()):
        yield [x_SH.view(len(x_SH), heads, -1).transpose(0, 1) for x_SH in part_S3H.unbind(1)]


def slow_relations(student, teacher, heads):
    total = 0.0
    for own, taught in zip(texts(student, heads), texts(teacher, heads), strict=True):
        for own_RSD, taught_RSD in zip(own, taught, strict=True):
            for head in range(heads):
                p = [torch.softmax(x @ x.T / math.sqrt(x.shape[-1]), -1) for x in (taught_RSD[head], own_RSD[head])]
                total = total + sum((a * (a / b).log()).sum() for a, b in zip(*p, strict=True)) / heads
    return total


@pytest.mark.parametrize(("size", "teacher_size", "heads"), [(24, 40, 4), (24, 24, 3), (12, 30, 6)])
def test_relations_equal_the_slow_formula_and_its_gradient(size, teacher_size, heads):
    student, teacher = qkv(0, size), qkv(1, teacher_size).detach()
    value, count = relation_loss(student, teacher, LENGTHS, heads)
    value.backward()
    fast_gradient, student.grad = student.grad, None
    expected = slow_relations(student, teacher, heads)
    expected.backward()
    assert count == T
    assert value.item() == pytest.approx(expected.item(), rel=1e-6)
    torch.testing.assert_close(fast_gradient, student.grad, rtol=0, atol=2e-6)


@pytest.mark.parametrize("temperature", range(1, 9))
def test_soft_words_equal_the_slow_formula_and_its_gradient(temperature):
    generator = torch.Generator().manual_seed(temperature)
    student = (4 * torch.randn(7, 97, generator=generator)).requires_grad_()
    teacher = 4 * torch.randn(7, 97, generator=generator)
    value, count = logits_loss(student, teacher, temperature)
    value.backward()
    p, q = (torch.softmax(x.detach().double() / temperature, -1) for x in (teacher, student))
    assert count == 7
    assert value.item() == pytest.approx((temperature**2 * (p * (p.log() - q.log())).sum()).item(), rel=1e-6)
    torch.testing.assert_close(student.grad.double(), temperature * (q - p), rtol=0, atol=1e-6)  # Hinton 2015, eq. 2


def test_hidden_states_and_cosines_equal_the_slow_formulas(global_seed):
    student, teacher = torch.randn(T, 24), torch.randn(T, 24)
    errors, count = objective.hidden_state_loss(student, teacher)
    assert count == T and errors.item() == pytest.approx(float((student - teacher).pow(2).sum()) / 24, rel=1e-6)
    distances, count = vector_distance(student, teacher)
    cosines = sum(float(a @ b / a.norm() / b.norm()) for a, b in zip(student, teacher, strict=True))
    assert count == T and float(distances) == pytest.approx(T - cosines, rel=1e-5)


def test_each_text_counts_alone():
    """Ragged equals text by text: the sum over a batch is the sum over its texts."""
    student, teacher = qkv(0, 24).detach(), qkv(1, 40).detach()
    together, _ = relation_loss(student, teacher, LENGTHS, 4)
    pieces = zip(student.split(LENGTHS.tolist()), teacher.split(LENGTHS.tolist()), LENGTHS, strict=True)
    alone = sum(float(relation_loss(own, taught, length[None], 4)[0]) for own, taught, length in pieces)
    assert float(together) == pytest.approx(alone, rel=1e-6)


def test_the_student_that_is_the_teacher_loses_nothing(global_seed):
    x, scores = qkv(0, 24).detach().float(), torch.randn(7, 97)
    assert float(relation_loss(x, x, LENGTHS, 3)[0]) == 0
    assert float(objective.hidden_state_loss(x[:, 0], x[:, 0])[0]) == 0
    assert float(vector_distance(x[:, 0], x[:, 0])[0]) == pytest.approx(0, abs=1e-5)
    assert float(logits_loss(scores, scores, 2.0)[0]) == 0
    assert F.softmax(scores, -1).isfinite().all()


@pytest.mark.parametrize(
    ("student", "teacher", "heads"), [(256, 384, 16), (384, 384, 24), (24, 40, 1), (32, 48, 2), (312, 768, 12)]
)
def test_relation_heads_divide_both_widths_and_have_16_dimensions(student, teacher, heads):
    assert default_relation_heads(student, teacher) == heads
    assert student % heads == teacher % heads == 0 and min(student, teacher) // heads >= 16
