"""Losses of pairs of texts, from one vector a text. Each gives (sum, count), as in losses.py.

Letters: N pairs, H numbers a vector; R = 2 or 3 texts a pair: the text, its own pair, and perhaps one that does not
belong (a hard negative); C candidates, which are the pairs and negatives of all.
"""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from bothways.training.losses import Loss


def ranking_loss(vectors_RNH: Tensor, ids_RN: Tensor, temperature: float) -> Loss:
    """Each text is to find its own pair among all candidates: cross-entropy of cosine / temperature (Henderson 2017,
    multiple negatives; van den Oord 2018, eq. 4, InfoNCE).

    From the text to its pair only, as in search; what is the same text or pair twice (ids: equal texts have equal ones)
    does not compete. A pair that is alone counts, with loss 0.
    """
    unit_RNH = F.normalize(vectors_RNH.float(), dim=-1)
    scores_NC = unit_RNH[0] @ unit_RNH[1:].flatten(0, 1).T / temperature
    scores_NC = scores_NC.masked_fill(no_rivals(ids_RN), -torch.inf)
    own_N = torch.arange(len(scores_NC), device=scores_NC.device)
    return F.cross_entropy(scores_NC, own_N, reduction="sum"), len(own_N)


def no_rivals(ids_RN: Tensor) -> Tensor:
    """Which candidates do not compete with a text's own pair, [N, C]: that pair again, the text itself, and whatever
    pair the same text has elsewhere."""
    text_N1, pair_N1 = ids_RN[0][:, None], ids_RN[1][:, None]
    candidate_C = ids_RN[1:].flatten()
    same_NC = (candidate_C == pair_N1) | (candidate_C == text_N1)
    same_NC[:, : ids_RN.shape[1]] |= ids_RN[0] == text_N1
    return same_NC.fill_diagonal_(False)  # its own pair


def cosine_loss(vectors_RNH: Tensor, scores_N: Tensor) -> Loss:
    """The cosine of text and pair is to be the score: squared error (Reimers 2019, section 3)."""
    text_NH, pair_NH = vectors_RNH.float()
    cosines_N = F.cosine_similarity(text_NH, pair_NH, dim=-1)
    return F.mse_loss(cosines_N, scores_N.float(), reduction="sum"), len(scores_N)


def at_sizes(loss: Callable[[Tensor], Loss], vectors_RNH: Tensor, sizes: Sequence[int]) -> Loss:
    """The mean of a loss over the first d numbers of the vectors for each d of `sizes`, so that they do by themselves
    (Matryoshka, Kusupati 2022, eq. 1 with equal weights)."""
    sums, counts = zip(*(loss(vectors_RNH[..., :size]) for size in sizes), strict=True)
    return torch.stack(sums).mean(), counts[0]
