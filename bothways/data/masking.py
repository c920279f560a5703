"""Hide tokens to be guessed (Devlin 2018, section 3.1, task 1).

Each ordinary token is chosen by its own draw; of the chosen, 80 % become [MASK], 10 % a random ordinary entry, 10 %
stay.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch

from bothways.batch import Batch
from bothways.data.draws import Purpose, generator
from bothways.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class MaskRule:
    """How often tokens are hidden, and what a vocabulary offers for it. ordinary_ids: every entry but special
    tokens."""

    rate: float
    mask_id: int
    ordinary_ids: np.ndarray

    @staticmethod
    def of(tokenizer: Tokenizer, rate: float = 0.15) -> "MaskRule":
        ordinary = np.setdiff1d(np.arange(len(tokenizer)), list(tokenizer.special_ids))
        return MaskRule(rate, tokenizer.mask_id, ordinary)


def mask_tokens(batch: Batch, rule: MaskRule, *, seed: int, epoch: int, examples: np.ndarray) -> Batch:
    """The batch with tokens hidden, and masked_places and masked_labels [M] saying which and what they were.

    examples [N]: the texts' numbers; a text's masks are a function of (seed, epoch, its number) alone, not of its
    company.
    """
    rows = zip(examples.tolist(), batch.lengths.tolist(), strict=True)
    draws_T3 = np.concatenate(
        [generator(seed, Purpose.MASK, epoch, example).random((length, 3), np.float32) for example, length in rows]
    )
    ids = batch.input_ids.numpy()
    chosen = (draws_T3[:, 0] < rule.rate) & np.isin(ids, rule.ordinary_ids)
    others = rule.ordinary_ids[(draws_T3[:, 2] * len(rule.ordinary_ids)).astype(np.int64)]
    hidden = np.where(draws_T3[:, 1] < 0.8, rule.mask_id, np.where(draws_T3[:, 1] < 0.9, others, ids))
    return replace(
        batch,
        input_ids=torch.from_numpy(np.where(chosen, hidden, ids)),
        masked_places=torch.from_numpy(np.flatnonzero(chosen)),
        masked_labels=torch.from_numpy(ids[chosen]),
    )
