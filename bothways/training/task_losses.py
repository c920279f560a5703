"""Fine-tuning losses as (sum, count): class weights, multi-label.

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
