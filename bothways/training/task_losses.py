"""Losses of fine-tuning beside plain classes: several labels at once, answer spans, pairs of vectors. Each gives
(sum, count), as in losses.py.

Letters: N texts, C classes, H hidden size.
"""

import torch.nn.functional as F
from torch import Tensor

from bothways.training.losses import Loss


def weighted_class_loss(scores_NC: Tensor, labels_N: Tensor, weights_C: Tensor) -> Loss:
    """Cross-entropy in which each class counts with its weight; weights average 1 over the training examples."""
    return F.cross_entropy(scores_NC.float(), labels_N, weight=weights_C, reduction="sum"), len(labels_N)


def label_loss(scores_NC: Tensor, labels_NC: Tensor, weights_C: Tensor) -> Loss:
    """Each label yes or no by itself: binary cross-entropy over texts and labels; a present label counts with its
    weight."""
    losses_NC = F.binary_cross_entropy_with_logits(
        scores_NC.float(), labels_NC.float(), pos_weight=weights_C, reduction="none"
    )
    return losses_NC.sum(), labels_NC.numel()
