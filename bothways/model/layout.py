"""Who may look at whom. Everything but attention treats tokens one by one; a layout, made once a batch, knows the rest.

Letters: T tokens of all texts, N heads, D head size. sides: how many tokens before it and behind it a token sees; -1:
all.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from bothways.model import block_sparse, kernels
from bothways.model.buckets import rectangles

Sides = tuple[int, int]
Bias = Callable[[Tensor, Tensor], Tensor]  # queries, keys [N, n, S, D] of n texts -> added to their scores [N, n, S, S]


class Layout(ABC):
    """Attention over the texts of one batch. first_tokens: where each text's first token ([CLS]) stands in T."""

    first_tokens: Tensor

    @abstractmethod
    def attend(
        self, q_TND: Tensor, k_TND: Tensor, v_TND: Tensor, *, sides: Sides, dropout: float, bias: Bias | None = None
    ) -> Tensor:
        """softmax(q k^T / sqrt(D) + bias) v within each text -> [T, N, D]."""


class Bucketed(Layout):
    """Texts of near lengths side by side in rectangles, with little padding. Sort by length for few of them."""

    def __init__(self, lengths: Tensor, device: torch.device) -> None:
        self.first_tokens = (lengths.cumsum(0) - lengths).to(device)
        self.lengths, self.longest = lengths.tolist(), int(lengths.max())
        self.rectangles = rectangles(self.lengths, device)
        self.windows: dict[Sides, block_sparse.Blocks] = {}

    def attend(
        self, q_TND: Tensor, k_TND: Tensor, v_TND: Tensor, *, sides: Sides, dropout: float, bias: Bias | None = None
    ) -> Tensor:
        whole = sees_all(sides, self.longest)
        if bias is None and whole and kernels.batched_is_faster(q_TND, self.longest, dropout):
            return kernels.batched_attention(q_TND, k_TND, v_TND, self.rectangles, dropout)
        if bias is None and block_sparse.is_better(q_TND, sides, self.longest, dropout):
            if sides not in self.windows:
                self.windows[sides] = block_sparse.window_blocks(self.lengths, sides, q_TND.device)
            return block_sparse.block_attention(q_TND, k_TND, v_TND, self.windows[sides], dropout)
        attended = []
        for part in self.rectangles:
            q, k, v = (part.take(x_TND) for x_TND in (q_TND, k_TND, v_TND))
            mask = part.seen()
            if not sees_all(sides, part.size):
                close = near(part.size, sides, q.device)
                # What fills a text up may look at all, so that no row is empty.
                mask = close if mask is None else close & mask | ~mask.mT
            if bias is not None:
                biases = bias(q, k)
                mask = biases if mask is None else biases.masked_fill(~mask, torch.finfo(q.dtype).min)
            attended.append(part.give(kernels.attention(part, q, k, v, mask, dropout)))
        return attended[0] if len(attended) == 1 else torch.cat(attended)


class Varlen(Layout):
    """All texts in one call of the ragged kernel, which torch has for CUDA in half precision. It knows no dropout."""

    def __init__(self, lengths: Tensor, device: torch.device) -> None:
        starts = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).to(torch.int32)
        self.starts, self.longest = starts.to(device), int(lengths.max())
        self.first_tokens = self.starts[:-1].long()

    def attend(
        self, q_TND: Tensor, k_TND: Tensor, v_TND: Tensor, *, sides: Sides, dropout: float, bias: Bias | None = None
    ) -> Tensor:
        from torch.nn.attention.varlen import varlen_attn

        if dropout or bias:
            raise ValueError(f"Varlen has no attention dropout (asked for {dropout}) and no bias; use Bucketed")
        ends = (self.starts, self.starts, self.longest, self.longest)
        attended = varlen_attn(q_TND, k_TND, v_TND, *ends, window_size=sides)
        assert isinstance(attended, Tensor)  # a pair only where the softmax sums are asked for
        return attended


def sees_all(sides: Sides, size: int) -> bool:
    return all(not 0 <= side < size - 1 for side in sides)


@lru_cache(maxsize=16)
@torch.inference_mode(mode=False)  # remembered for training too
def near(size: int, sides: Sides, device: torch.device) -> Tensor:
    """[S, S], True where a token (row) may see another (column)."""
    before, behind = (size if side < 0 else side for side in sides)
    places = torch.arange(size, device=device)
    ahead_SS = places - places[:, None]
    return (ahead_SS >= -before) & (ahead_SS <= behind)


def choose(lengths: Tensor, device: torch.device, dtype: torch.dtype, dropout: float, biased: bool = False) -> Layout:
    """Varlen where torch has it for this device and dtype and neither dropout nor bias is asked for, else
    Bucketed."""
    able = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)  # from Ampere on
    half = dtype in (torch.bfloat16, torch.float16)
    return (Varlen if able and half and not dropout and not biased else Bucketed)(lengths, device)
