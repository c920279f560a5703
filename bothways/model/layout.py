"""Attention layouts: which tokens attend to which, for texts of different lengths in one batch.

All operations except attention process tokens independently. A layout is built once per batch, stores the bounds of the
texts, and replaces the attention mask. Letters: T tokens of all texts, N heads, D head size; of buckets: n texts of S
tokens; of padded texts: B texts of S tokens.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache, lru_cache
from inspect import signature
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bothways.base.device import copy_to
from bothways.model import block_sparse, kernels
from bothways.model.block_patterns import window_blocks
from bothways.model.buckets import Bucket, build_buckets, round_length

Sides = tuple[int, int]  # how many tokens before and after it a token attends to; -1: all
Bias = Callable[[Tensor, Tensor], Tensor]  # queries, keys [N, n, S, D] of n texts -> added to their scores [N, n, S, S]


class Layout(ABC):
    """Attention over the texts of one batch. first_tokens: index in T of each text's first token ([CLS])."""

    first_tokens: Tensor

    @abstractmethod
    def attend(
        self, q_TND: Tensor, k_TND: Tensor, v_TND: Tensor, *, sides: Sides, dropout: float, bias: Bias | None = None
    ) -> Tensor:
        """softmax(q k^T / sqrt(D) + bias) v within each text -> [T, N, D].

        q_TND, k_TND, v_TND: queries, keys and values of all tokens.
        sides: how many tokens before and after it a token attends to; -1: all.
        dropout: rate for the attention weights.
        bias: from queries and keys of some texts to a bias on their scores.
        """

    def attend_first(self, q_RND: Tensor, k_TND: Tensor, v_TND: Tensor, rows_R: Tensor) -> Tensor | None:
        """Full attention of the first tokens of texts, without gradients and dropout, [R, N, D]; None if there is no
        form for them, or if not all rows are first tokens: the form of a text must not depend on other texts."""
        return None


def choose_layout(lengths: Tensor, device: torch.device, dtype: torch.dtype, has_bias: bool = False) -> Layout:
    """Varlen if torch has it for this device and dtype and there is no bias, else Bucketed.

    lengths: tokens of each text.
    device, dtype: of the model.
    has_bias: whether attention scores get a bias.
    """
    is_supported = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)  # Ampere and later
    is_half = dtype in (torch.bfloat16, torch.float16)
    if is_supported and is_half and not has_bias:
        return Varlen(lengths, device)
    return Bucketed(lengths, device)


class Bucketed(Layout):
    """Texts in buckets of similar lengths, with little padding. Sort texts by length for few buckets."""

    def __init__(self, lengths: Tensor, device: torch.device) -> None:
        self.first_tokens = copy_to(lengths.cumsum(0) - lengths, device)
        self.lengths = lengths.tolist()
        self.max_length = int(lengths.max())
        self.buckets = build_buckets(self.lengths, device)
        self.windows: dict[Sides, block_sparse.Blocks] = {}

    def attend(
        self, q_TND: Tensor, k_TND: Tensor, v_TND: Tensor, *, sides: Sides, dropout: float, bias: Bias | None = None
    ) -> Tensor:
        if bias is None:
            is_full = is_full_attention(sides, self.max_length)
            if is_full and kernels.batched_is_faster(q_TND, self.max_length, dropout):
                return kernels.batched_attention(q_TND, k_TND, v_TND, self.buckets, dropout)

            if block_sparse.is_faster(q_TND, sides, self.max_length, dropout):
                blocks = self._window_blocks(sides, q_TND.device)
                return block_sparse.block_attention(q_TND, k_TND, v_TND, blocks, dropout)

        # Split at once: the gradient of a slice of [T, N, D] would be as large as all of it, for every bucket.
        sizes = [bucket.end - bucket.start for bucket in self.buckets]
        parts = zip(q_TND.split(sizes), k_TND.split(sizes), v_TND.split(sizes), strict=True)

        attended = []
        for bucket, (q_tND, k_tND, v_tND) in zip(self.buckets, parts, strict=True):
            q = bucket.pad(q_tND)
            k = bucket.pad(k_tND)
            v = bucket.pad(v_tND)
            mask = _bucket_mask(bucket, sides, q.device)
            if bias is not None:
                scores = bias(q, k)
                mask = scores if mask is None else scores.masked_fill(~mask, torch.finfo(q.dtype).min)
            attended_NnSD = kernels.attention(bucket, q, k, v, mask=mask, dropout=dropout)
            attended.append(bucket.ungather(attended_NnSD))
        return attended[0] if len(attended) == 1 else torch.cat(attended)

    def attend_first(self, q_RND: Tensor, k_TND: Tensor, v_TND: Tensor, rows_R: Tensor) -> Tensor | None:
        if q_RND.device.type != "cpu":
            return None
        rows = rows_R.numpy()
        starts = self.first_tokens.numpy()
        texts = np.searchsorted(starts, rows, side="right") - 1
        if not np.array_equal(starts[texts], rows):
            return None

        # Texts whose query nobody needs get another one.
        row_by_text = np.zeros(len(starts), np.int64)
        row_by_text[texts] = np.arange(len(rows))
        q_nND = q_RND[torch.from_numpy(row_by_text)]

        attended: list[Tensor] = []
        parts = zip(self.buckets, q_nND.split([bucket.n for bucket in self.buckets]), strict=True)
        for bucket, q_bND in parts:
            attended_Nb1D = kernels.attention(
                bucket,
                q_bND.transpose(0, 1)[:, :, None].contiguous(),
                bucket.gather(k_TND),
                v=bucket.gather(v_TND),
                mask=bucket.key_mask,
                dropout=0.0,
            )
            attended.append(attended_Nb1D[:, :, 0].transpose(0, 1))
        return torch.cat(attended)[torch.from_numpy(texts)]

    def _window_blocks(self, sides: Sides, device: torch.device) -> block_sparse.Blocks:
        """The blocks of a window, which all layers with this window share."""
        if sides not in self.windows:
            self.windows[sides] = window_blocks(self.lengths, sides, device)
        return self.windows[sides]


def _bucket_mask(bucket: Bucket, sides: Sides, device: torch.device) -> Tensor | None:
    """True where a token attends to another; None: all to all."""
    mask = bucket.key_mask
    if is_full_attention(sides, bucket.size):
        return mask

    window = window_mask(bucket.size, sides, device)
    if mask is None:
        return window
    # Padding may attend to all, so that no row of the mask is empty.
    return window & mask | ~mask.mT


def is_full_attention(sides: Sides, size: int) -> bool:
    """Whether every token of a text of this size attends to the whole text."""
    return all(not 0 <= side < size - 1 for side in sides)


@lru_cache(maxsize=16)
@torch.inference_mode(mode=False)  # cached for training too
def window_mask(size: int, sides: Sides, device: torch.device) -> Tensor:
    """[S, S], True where a token (row) attends to another (column).

    size: tokens of the text.
    sides: tokens before and after it that a token attends to; -1: all.
    device: of the mask.
    """
    before, after = (size if side < 0 else side for side in sides)
    positions = torch.arange(size, device=device)
    distance_SS = positions - positions[:, None]
    return (distance_SS >= -before) & (distance_SS <= after)


class Varlen(Layout):
    """All texts in one call of torch's variable-length kernel: CUDA, half precision.

    max_length: of the longest text, rounded up (`round_length`), so that few different ones are seen.
    """

    def __init__(self, lengths: Tensor, device: torch.device) -> None:
        starts = F.pad(lengths.cumsum(0), (1, 0)).to(torch.int32)
        self.lengths = lengths
        self.starts = copy_to(starts, device)
        self.max_length = round_length(int(lengths.max()))
        self.first_tokens = self.starts[:-1].long()

    def attend(
        self, q_TND: Tensor, k_TND: Tensor, v_TND: Tensor, *, sides: Sides, dropout: float, bias: Bias | None = None
    ) -> Tensor:
        from torch.nn.attention.varlen import varlen_attn

        if bias:
            raise ValueError("Varlen supports no bias; use Bucketed")

        if dropout:  # which the public function lacks
            return self._attend_with_dropout(q_TND, k_TND, v_TND, sides=sides, dropout=dropout)

        options = varlen_options(varlen_attn, sides)
        if options is None:
            bucketed = Bucketed(self.lengths, q_TND.device)
            return bucketed.attend(q_TND, k_TND, v_TND, sides=sides, dropout=dropout)

        bounds = (self.starts, self.starts, self.max_length, self.max_length)
        attended = varlen_attn(q_TND, k_TND, v_TND, *bounds, **options)
        assert isinstance(attended, Tensor)  # a pair only if log-sum-exps are requested
        return attended

    def _attend_with_dropout(
        self, q_TND: Tensor, k_TND: Tensor, v_TND: Tensor, *, sides: Sides, dropout: float
    ) -> Tensor:
        """By the kernel under the public function: 488,000 tokens/s in a training of BERT-base, where texts sorted
        into rectangles had 11,300 (docs/LOG.md)."""
        before, after = sides
        attended_TND: Tensor
        attended_TND, *_ = torch.ops.aten._flash_attention_forward(
            q_TND,
            k_TND,
            v_TND,
            cum_seq_q=self.starts,
            cum_seq_k=self.starts,
            max_q=self.max_length,
            max_k=self.max_length,
            dropout_p=dropout,
            is_causal=False,  # the sides of the window say it
            return_debug_mask=False,
            window_size_left=before,
            window_size_right=after,
        )
        return attended_TND


@cache
def varlen_options(varlen_attn: Callable[..., Any], sides: Sides) -> dict[str, Any] | None:
    """The arguments by name of torch's kernel for a window; None if it has no such window. They depend on the version:
    2.10 has is_causal, 2.11 has window_size, and later ones num_splits too.

    num_splits=1 makes the attention of a text the same, bit for bit, whatever other texts are in its batch.
    """
    names = signature(varlen_attn).parameters
    options: dict[str, Any] = {}
    if "num_splits" in names:
        options["num_splits"] = 1

    if "window_size" in names:
        return options | {"window_size": sides}
    if sides in ((-1, -1), (-1, 0)):
        return options | {"is_causal": sides == (-1, 0)}
    return None


class Padded(Layout):
    """Texts as one [B, S] tensor with an attention mask, for export: T = B * S. Padding may be on either side."""

    HIDDEN = -1e30  # not -inf: a row that attends to nothing stays finite, and its result is not used

    def __init__(self, real_BS: Tensor) -> None:
        self.real = real_BS.bool()
        rows = torch.arange(real_BS.shape[0], device=real_BS.device) * real_BS.shape[1]
        self.first_tokens = rows + self.real.int().argmax(1)
        self.bias = torch.where(self.real, 0.0, self.HIDDEN)[:, None, None]  # [B, 1, 1, S], added to scores

    @property
    def position_ids(self) -> Tensor:
        """Positions counted from the first token that is not padding, [T]."""
        return (self.real.long().cumsum(1) - 1).clamp(min=0).flatten()

    def attend(
        self, q_TND: Tensor, k_TND: Tensor, v_TND: Tensor, *, sides: Sides, dropout: float, bias: Bias | None = None
    ) -> Tensor:
        q, k, v = (x_TND.unflatten(0, self.real.shape).transpose(1, 2) for x_TND in (q_TND, k_TND, v_TND))

        mask = self.bias
        if max(sides) >= 0:
            # Without its cache, which cannot hold a symbolic size.
            window = window_mask.__wrapped__(self.real.shape[1], sides, q.device)
            mask = mask.masked_fill(~window, self.HIDDEN)
        if bias is not None:
            mask = mask + bias(q.transpose(0, 1), k.transpose(0, 1)).transpose(0, 1)

        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
        return attended.transpose(1, 2).flatten(0, 1)
