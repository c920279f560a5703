"""The tokens of a batch whose last hidden states are read, and these states.

The last layer makes keys and values of all tokens, and all else only for the tokens that somebody reads: masked words,
or the first token of each text. Letters: T tokens, R of them read, M positions, H hidden size.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bothways.model.config import EncoderConfig
from bothways.text.batch import Batch


class HiddenRows:
    """Hidden states of some tokens, indexed by the tokens' positions in T, as the states of all tokens would be.

    IndexError for a token whose state was not computed; on a GPU its device-side assertion.

    >>> rows_R = torch.tensor([4, 2])
    >>> states = HiddenRows(torch.tensor([[0.4], [0.2]]), rows_R, num_tokens=5)
    >>> states[torch.tensor([2, 4])].tolist()
    [[0.20000000298023224], [0.4000000059604645]]
    """

    def __init__(self, x_RH: Tensor, rows_R: Tensor, num_tokens: int) -> None:
        """x_RH: the states. rows_R: the position of each. num_tokens: of the batch."""
        self.x_RH = x_RH
        # One beyond the last row, so that a token without a state is out of range.
        self.slot_T = rows_R.new_full((num_tokens,), len(rows_R))
        self.slot_T[rows_R] = torch.arange(len(rows_R), device=rows_R.device)

    @property
    def device(self) -> torch.device:
        return self.x_RH.device

    def __getitem__(self, positions_M: Tensor) -> Tensor:
        """The states of these tokens, [M, H]."""
        slot_M = self.slot_T[positions_M]
        if slot_M.device.type == "cpu" and bool((slot_M == len(self.x_RH)).any()):
            raise IndexError(
                "the hidden state of a token was not computed, since nobody was said to read it; an objective names "
                "the tokens that its losses read in `rows` (None: all)"
            )
        return self.x_RH[slot_M]


def read_states(encode: Callable[..., Tensor], batch: Batch, rows_R: Tensor | None) -> Any:
    """The hidden states that are read: [T, H], or HiddenRows.

    encode: a model, or a function of a batch and rows.
    batch: the tokens.
    rows_R: the tokens that are read; None: all.
    """
    if rows_R is None:
        return encode(batch)
    return HiddenRows(encode(batch, rows_R=rows_R), rows_R, batch.num_tokens)


def text_rows(config: EncoderConfig, batch: Batch) -> Tensor | None:
    """The tokens that `pool_texts` reads: the first of each text, or where it sees only itself the last; None: all."""
    if config.pooling == "mean" or config.direction not in ("both", "forward"):
        return None
    return batch.first_tokens if config.direction == "both" else batch.last_tokens


def pooled_rows(pooling: str, batch: Batch) -> Tensor | None:
    """The tokens that a pooling reads: of "cls" the first of each text; None: all."""
    return batch.first_tokens if pooling == "cls" else None
