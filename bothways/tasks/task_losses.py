"""Fine-tuning losses as (sum, count): class weights, multi-label, a teacher's label probabilities.

Letters: N texts, C classes.
"""

import torch.nn.functional as F
from torch import Tensor

from bothways.training.losses import Loss


def weighted_class_loss(scores_NC: Tensor, labels_N: Tensor, weights_C: Tensor) -> Loss:
    """Cross-entropy with class weights, which average 1 over the training examples."""
    return F.cross_entropy(scores_NC.float(), labels_N, weight=weights_C, reduction="sum"), len(labels_N)


def multi_label_loss(scores_NC: Tensor, labels_NC: Tensor, weights_C: Tensor) -> Loss:
    """Binary cross-entropy of each label; weights_C: weights of present labels."""
    losses_NC = F.binary_cross_entropy_with_logits(
        scores_NC.float(), labels_NC.float(), pos_weight=weights_C, reduction="none"
    )
    return losses_NC.sum(), labels_NC.numel()


def multi_label_distance(student_NC: Tensor, teacher_NC: Tensor, temperature: float) -> Loss:
    """T^2 KL(teacher || student) of the softened probability of each label (Hinton 2015, for sigmoids)."""
    student_NC, teacher_NC = student_NC.float() / temperature, teacher_NC.float() / temperature
    losses_NC = F.binary_cross_entropy_with_logits(student_NC, teacher_NC.sigmoid(), reduction="none")
    entropies_NC = F.binary_cross_entropy_with_logits(teacher_NC, teacher_NC.sigmoid(), reduction="none")
    return (losses_NC - entropies_NC).sum() * temperature**2, teacher_NC.numel()
