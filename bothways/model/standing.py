"""Which hidden state stands for a text. Letters: N texts, T tokens, H hidden size."""

import torch
from torch import Tensor

from bothways.batch import Batch
from bothways.config import EncoderConfig


def states_of_texts(config: EncoderConfig, hidden_TH: Tensor, batch: Batch) -> Tensor:
    """That of the first token, or the mean of all; of what looks one way that of the token that has seen all. [N, H]"""
    if config.pooling == "mean":
        return mean_of_texts(hidden_TH, batch.lengths)
    if config.direction == "both":
        return hidden_TH[batch.first_tokens]
    first_NH, last_NH = hidden_TH[batch.first_tokens], hidden_TH[batch.last_tokens]
    if config.direction == "forward":
        return last_NH
    return torch.cat([last_NH.chunk(2, -1)[0], first_NH.chunk(2, -1)[1]], -1)


def mean_of_texts(x_TH: Tensor, lengths_N: Tensor) -> Tensor:
    """[N, H]"""
    lengths_N = lengths_N.to(x_TH.device)
    text_T = torch.arange(len(lengths_N), device=x_TH.device).repeat_interleave(lengths_N)
    wide = torch.promote_types(x_TH.dtype, torch.float32)  # half precision cannot count past a few hundred
    sums_NH = x_TH.new_zeros(len(lengths_N), x_TH.shape[1], dtype=wide).index_add(0, text_T, x_TH.to(wide))
    return (sums_NH / lengths_N[:, None]).to(x_TH.dtype)
