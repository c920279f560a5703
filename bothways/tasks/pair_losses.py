"""Losses of sentence embeddings: contrastive ranking, cosine regression, Matryoshka.

Each returns (sum, count).

Letters: N pairs, H vector size; R = 2 or 3 texts per row: anchor, positive, and perhaps a hard negative; C candidates:
all positives and negatives.
"""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from bothways.training.losses import Loss


def ranking_loss(vectors_RNH: Tensor, ids_RN: Tensor, temperature: float) -> Loss:
    """Multiple negatives ranking loss: cross-entropy of cosine / temperature between each anchor and all candidates
    (Henderson 2017; InfoNCE, van den Oord 2018, eq. 4).

    Only in the direction from anchor to positive. ids: equal for equal texts; duplicates are not negatives. A row
    without negatives has loss 0.
    """
    unit_RNH = F.normalize(vectors_RNH.float(), dim=-1)
    scores_NC = unit_RNH[0] @ unit_RNH[1:].flatten(0, 1).T / temperature
    scores_NC = scores_NC.masked_fill(non_negatives(ids_RN), -torch.inf)
    positives_N = torch.arange(len(scores_NC), device=scores_NC.device)
    return F.cross_entropy(scores_NC, positives_N, reduction="sum"), len(positives_N)


def non_negatives(ids_RN: Tensor) -> Tensor:
    """True for candidates that are not negatives of an anchor, [N, C]: copies of its positive, of itself, and of any
    positive of the same anchor in other rows."""
    text_N1, pair_N1 = ids_RN[0][:, None], ids_RN[1][:, None]
    candidate_C = ids_RN[1:].flatten()
    same_NC = (candidate_C == pair_N1) | (candidate_C == text_N1)
    same_NC[:, : ids_RN.shape[1]] |= ids_RN[0] == text_N1
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
