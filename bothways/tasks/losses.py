"""The losses of labels and of a teacher's outputs, of all tasks; the tasks import them when they compute.

Letters: N texts, pairs or windows, T tokens, S tokens of a window, C classes or candidates, H hidden size; R texts of a
pair.
"""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from bothways.model.losses import Loss, classification_loss, logits_loss, mse_loss


def weighted_class_loss(scores_NC: Tensor, labels_N: Tensor, weights_C: Tensor) -> Loss:
    """Cross-entropy with class weights, which average 1 over the training examples."""
    return F.cross_entropy(scores_NC.float(), labels_N, weight=weights_C, reduction="sum"), len(labels_N)


def multi_label_loss(scores_NC: Tensor, labels_NC: Tensor, weights_C: Tensor) -> Loss:
    """Binary cross-entropy of each label; weights_C: weights of present labels."""
    losses_NC = F.binary_cross_entropy_with_logits(
        scores_NC.float(),
        labels_NC.float(),
        pos_weight=weights_C,
        reduction="none",
    )
    return losses_NC.sum(), labels_NC.numel()


def multi_label_distance(student_NC: Tensor, teacher_NC: Tensor, temperature: float) -> Loss:
    """T^2 KL(teacher || student) of the softened probability of each label (Hinton 2015, for sigmoids)."""
    student_NC = student_NC.float() / temperature
    teacher_NC = teacher_NC.float() / temperature
    losses_NC = F.binary_cross_entropy_with_logits(student_NC, teacher_NC.sigmoid(), reduction="none")
    entropies_NC = F.binary_cross_entropy_with_logits(teacher_NC, teacher_NC.sigmoid(), reduction="none")
    return (losses_NC - entropies_NC).sum() * temperature**2, teacher_NC.numel()


def number_loss(scores_N1: torch.Tensor, numbers_N: torch.Tensor) -> Loss:
    return mse_loss(scores_N1[:, 0], numbers_N)


def span_loss(scores_T2: Tensor, rows_N2: Tensor, lengths: Sequence[int]) -> Loss:
    """Cross-entropy of the first and of the last token over the rows of each window, averaged."""
    total = scores_T2.new_zeros((), dtype=torch.float32)
    for scores_S2, rows_2 in zip(scores_T2.split(list(lengths)), rows_N2, strict=True):
        total = total + classification_loss(scores_S2.T, rows_2)[0] / 2
    return total, len(rows_N2)


def span_distance(scores_T2: Tensor, teacher_T2: Tensor, lengths: Sequence[int], temperature: float) -> Loss:
    """T^2 KL(teacher || student) of the first and of the last token over the rows of each window, averaged."""
    total = scores_T2.new_zeros((), dtype=torch.float32)
    for scores_S2, teacher_S2 in zip(scores_T2.split(list(lengths)), teacher_T2.split(list(lengths)), strict=True):
        total = total + logits_loss(scores_S2.T, teacher_S2.T, temperature)[0] / 2
    return total, len(lengths)


def list_loss(scores_N: Tensor, labels_N: Tensor, sizes: Sequence[int]) -> Loss:
    """Cross-entropy between the labels of each list of passages, as probabilities, and the softmax of their scores
    (ListNet, Cao 2007, with the labels themselves instead of their exponentials).

    Passages without a label (nan) are left out; a list without a relevant one adds 0. sizes: of the lists.
    """
    total = scores_N.new_zeros((), dtype=torch.float32)
    for scores, labels in zip(scores_N.float().split(list(sizes)), labels_N.split(list(sizes)), strict=True):
        is_judged = ~labels.isnan()
        grades = labels[is_judged].float()
        if grades.sum() > 0:
            total = total - (grades / grades.sum() * F.log_softmax(scores[is_judged], dim=0)).sum()
    return total, len(sizes)


def list_distance(student_N: Tensor, teacher_N: Tensor, sizes: Sequence[int]) -> Loss:
    """KL(teacher || student) of the softmax over each list of passages. sizes: of the lists."""
    total = student_N.new_zeros((), dtype=torch.float32)
    for student, teacher in zip(student_N.float().split(list(sizes)), teacher_N.split(list(sizes)), strict=True):
        total = total + logits_loss(student[None], teacher.float()[None], 1.0)[0]
    return total, len(sizes)


def ranking_loss(vectors_RNH: Tensor, ids_RN: Tensor, temperature: float, matches_NRN: Tensor | None = None) -> Loss:
    """Multiple negatives ranking loss: cross-entropy of cosine / temperature between each anchor and all candidates
    (Henderson 2017; InfoNCE, van den Oord 2018, eq. 4).

    Only in the direction from anchor to positive. ids: equal for near duplicates, which are not negatives. matches:
    whether a candidate matches an anchor although no row of the batch says so, [N, R - 1, N]; it is no negative either.
    A row without negatives has loss 0.
    """
    unit_RNH = F.normalize(vectors_RNH.float(), dim=-1)
    scores_NC = unit_RNH[0] @ unit_RNH[1:].flatten(0, 1).T / temperature
    scores_NC = scores_NC.masked_fill(non_negatives(ids_RN, matches_NRN), -torch.inf)
    positives_N = torch.arange(len(scores_NC), device=scores_NC.device)
    return F.cross_entropy(scores_NC, positives_N, reduction="sum"), len(positives_N)


def non_negatives(ids_RN: Tensor, matches_NRN: Tensor | None = None) -> Tensor:
    """True for candidates that are not negatives of an anchor, [N, C]: near duplicates of its positive and of itself,
    any positive of the same anchor in other rows, and `matches`."""
    text_N1 = ids_RN[0][:, None]
    pair_N1 = ids_RN[1][:, None]
    candidate_C = ids_RN[1:].flatten()
    same_NC = (candidate_C == pair_N1) | (candidate_C == text_N1)
    same_NC[:, : ids_RN.shape[1]] |= ids_RN[0] == text_N1
    if matches_NRN is not None:
        same_NC |= matches_NRN.flatten(1)
    return same_NC.fill_diagonal_(False)  # the positive itself


def cosine_loss(vectors_RNH: Tensor, scores_N: Tensor) -> Loss:
    """Squared error between the cosine of two texts and their score (Reimers 2019, section 3)."""
    text_NH, pair_NH = vectors_RNH.float()
    cosines_N = F.cosine_similarity(text_NH, pair_NH, dim=-1)
    return F.mse_loss(cosines_N, scores_N.float(), reduction="sum"), len(scores_N)


def matryoshka_loss(loss: Callable[[Tensor], Loss], vectors_RNH: Tensor, sizes: Sequence[int]) -> Loss:
    """Matryoshka loss: the mean of a loss over vectors truncated to each of `sizes` (Kusupati 2022, eq. 1, equal
    weights)."""
    sums, counts = zip(*(loss(vectors_RNH[..., :size]) for size in sizes), strict=True)
    return torch.stack(sums).mean(), counts[0]
