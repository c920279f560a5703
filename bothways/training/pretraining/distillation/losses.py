"""Distillation losses as (sum, count): relations and hidden states.

Ragged batches: relations are between the tokens of the same text. Letters: T tokens of all texts, H hidden size (of
student or teacher), R relation heads, D head size, n texts of S tokens in a bucket, N texts.
"""

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from bothways.model.kernels import Bucket, build_buckets
from bothways.training.losses import Loss

MASKED = -1e4  # score of a key that is padding; its probability is exactly 0


def relation_loss(student_T3H: Tensor, teacher_T3H: Tensor, lengths_N: Tensor, num_heads: int) -> Loss:
    """KL divergence between the self-attention relations of teacher and student (MiniLMv2, Wang 2021, section 3.1).

    The relations of queries, of keys and of values are softmax(x x^T / sqrt(D)) per relation head. Their mean over
    heads is summed over the three and over tokens. Hidden sizes may differ; num_heads divides both.
    """
    total = student_T3H.new_zeros((), dtype=torch.float32)
    for part in range(3):
        for bucket, student, teacher in relation_scores(
            student_T3H[:, part], teacher_T3H[:, part], lengths_N, num_heads
        ):
            log_student, log_teacher = F.log_softmax(student, -1), F.log_softmax(teacher, -1)
            divergence = (log_teacher.exp() * (log_teacher - log_student)).sum(-1)
            total = total + _sum_of_tokens(bucket, divergence)
    return total / num_heads, len(student_T3H)


def relation_scores(
    student_TH: Tensor, teacher_TH: Tensor, lengths_N: Tensor, num_heads: int
) -> Iterator[tuple[Bucket, Tensor, Tensor]]:
    """Scores x x^T / sqrt(D) for each bucket, float32 [R, n, S, S]."""
    for bucket in build_buckets(lengths_N.tolist(), student_TH.device):
        scores = []
        for x_TH in (student_TH, teacher_TH):
            x = bucket.gather(x_TH.view(len(x_TH), num_heads, -1))
            products = (x @ x.mT).float() / math.sqrt(x.shape[-1])
            scores.append(products if bucket.key_mask is None else products.masked_fill(~bucket.key_mask, MASKED))
        yield bucket, scores[0], scores[1]


def _sum_of_tokens(bucket: Bucket, values_RnS: Tensor) -> Tensor:
    """The sum without padding."""
    return bucket.ungather(values_RnS[..., None]).sum()


def default_relation_heads(student_size: int, teacher_size: int, least: int = 16) -> int:
    """The largest number of relation heads that divides both hidden sizes and leaves `least` dimensions a head."""
    divisor = math.gcd(student_size, teacher_size)
    return max(heads for heads in range(1, divisor + 1) if divisor % heads == 0 and student_size >= least * heads)


def hidden_state_loss(student_TH: Tensor, teacher_TH: Tensor) -> Loss:
    """Squared error of hidden states, mean over dimensions (TinyBERT, Jiao 2020, eq. 8)."""
    errors_T = (student_TH.float() - teacher_TH.float()).square().mean(-1)
    return errors_T.sum(), len(errors_T)
