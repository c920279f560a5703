"""Fast kernels: attention over buckets of texts, dropout, and cross-entropy over the vocabulary.

Each computes the same as a plain form, with which the tests compare it.

Letters: T tokens of all texts, N heads, D head size;
a bucket is n texts of S tokens; M masked positions, E embedding size, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bothways.base.device import copy_to
from bothways.text.batch import Batch

MAX_SCORES = 1 << 18  # per head and bucket, so that the scores of all heads stay in the cache
MANY_TEXTS = 8  # from this many texts per length (mean), each length has its own buckets: a sixth less time for lines


@dataclass(frozen=True)
class Bucket:
    """n texts of up to S = `size` tokens, from `start` to `end` in T.

    If their lengths differ, it has: tokens [n * S], the token of each slot; slots [end - start], the slot of each
    token; padding_bias [n, 1, S - s], minus infinity in padding.
    """

    start: int
    end: int
    n: int
    size: int
    tokens: Tensor | None = None
    slots: Tensor | None = None
    padding_bias: Tensor | None = None

    @staticmethod
    def from_lengths(start: int, lengths: list[int], device: torch.device) -> "Bucket":
        """A bucket of texts of these lengths, the first of which begins at `start`."""
        end = start + sum(lengths)
        if min(lengths) == max(lengths):
            return Bucket(start, end, len(lengths), lengths[0])
        lengths_n1 = np.array(lengths)[:, None]
        starts_n1, positions_S = lengths_n1.cumsum(0) - lengths_n1, np.arange(round_length(max(lengths)))
        is_real_nS = positions_S < lengths_n1
        arrays = (
            (starts_n1 + np.minimum(positions_S, lengths_n1 - 1)).ravel(),
            np.flatnonzero(is_real_nS),
            np.where(is_real_nS[:, None, min(lengths) :], np.float32(0), np.float32("-inf")),
        )
        tensors = (copy_to(torch.from_numpy(array), device) for array in arrays)
        return Bucket(start, end, len(lengths), len(positions_S), *tensors)

    def gather(self, x_TND: Tensor) -> Tensor:
        """The bucket's tokens, padded: [N, n, S, D], a copy."""
        return self.pad(x_TND[self.start : self.end])

    def pad(self, x_tND: Tensor) -> Tensor:
        """Its tokens [t, N, D], padded: [N, n, S, D], a copy."""
        x_NtD = x_tND.transpose(0, 1)
        padded = x_NtD.contiguous() if self.tokens is None else x_NtD.index_select(1, self.tokens)
        return padded.unflatten(1, (self.n, self.size))

    def ungather(self, x_NnSD: Tensor) -> Tensor:
        """The inverse: [t, N, D], without padding."""
        x_NtD = x_NnSD.flatten(1, 2)
        return (x_NtD if self.slots is None else x_NtD.index_select(1, self.slots)).transpose(0, 1)

    def mask_scores(self, scores_NnSS: Tensor) -> Tensor:
        """Set the scores of padding keys to minus infinity, in place."""
        if self.padding_bias is not None:
            scores_NnSS[..., -self.padding_bias.shape[-1] :].add_(self.padding_bias.to(scores_NnSS.dtype))
        return scores_NnSS

    def zero_padding(self, g_NnSD: Tensor) -> Tensor:
        """Set padding to zero, in place."""
        if self.padding_bias is not None:
            is_real = self.padding_bias.exp().to(g_NnSD.dtype).transpose(1, 2)
            g_NnSD[:, :, -self.padding_bias.shape[-1] :] *= is_real
        return g_NnSD

    @cached_property
    def key_mask(self) -> Tensor | None:
        """Attention mask [1, n, 1, S], False for keys that are padding; None without padding."""
        if self.padding_bias is None:
            return None
        # Four dimensions: torch's fused kernel falls back to a slow one for masks of three.
        return torch.nn.functional.pad(
            self.padding_bias == 0, (self.size - self.padding_bias.shape[-1], 0), value=True
        )[None]


def build_buckets(lengths: list[int], device: torch.device) -> list[Bucket]:
    """Group consecutive texts of similar lengths, each bucket of at most MAX_SCORES; sort by length for few buckets."""
    buckets, start = [], 0
    for size, run in groupby(lengths, round_length):
        texts = list(run)
        by_length = [list(equal) for _, equal in groupby(texts)]
        max_texts = max(1, MAX_SCORES // size**2)
        for group in by_length if len(texts) >= MANY_TEXTS * len(by_length) else [texts]:
            for first in range(0, len(group), max_texts):
                buckets.append(Bucket.from_lengths(start, group[first : first + max_texts], device))
                start = buckets[-1].end
    return buckets


def round_length(length: int) -> int:
    """Round up to a multiple of 16, or for long texts to a multiple of an eighth of the next power of two."""
    step = max(16, (1 << (length - 1).bit_length()) // 8)
    return -(-length // step) * step


# In bf16 on a CPU, attention by batched products beats the fused kernel for texts of up to about this many times the
# head size; with gradients, at every length BERT reads (docs/LOG.md).
MAX_BATCHED_HEAD_SIZES = 4
SOFTMAX_WIDTH = 16  # torch's bf16 softmax treats the rest of a row beyond a multiple of this differently, and slowly
MAX_SAVED_LENGTH = 2048  # tokens of a text whose attention weights are saved for the backward pass
MAX_SAVED_LENGTH_FLOAT32 = 512  # ... in float32 without dropout: beyond, the fused kernel is twice as fast
MAX_POSITIONS = 2048  # masked positions whose vocabulary scores are in memory at once
TOKEN_MULTIPLE = 64  # token counts are rounded up to a multiple of this, since oneDNN prepares a kernel per shape
FEW_TOKENS = 256  # ... and up to here to a quarter of it
SMALLEST = torch.finfo(torch.float).tiny


def append_dummy_text(batch: Batch, weight: Tensor) -> Batch:
    """The batch; for bf16 weights on a CPU and for half precision on a GPU, followed by a dummy text of fewer than
    TOKEN_MULTIPLE tokens.

    oneDNN prepares a kernel for each new shape, which takes longer than a small product itself, and ragged batches
    rarely have equal token counts: a fifth of a small step, a tenth of MiniLM-L6's (docs/LOG.md). A GPU multiplies
    matrices in tiles of 64 rows and more, and chooses its kernel by their number."""
    step = TOKEN_MULTIPLE if batch.num_tokens > FEW_TOKENS else TOKEN_MULTIPLE // 4
    missing = -batch.num_tokens % step
    is_half = weight.dtype is torch.bfloat16 or (weight.dtype is torch.float16 and weight.device.type == "cuda")
    if not missing or not is_half or weight.device.type not in ("cpu", "cuda"):
        return batch
    dummy = batch.input_ids.new_zeros(missing)
    tokens = {name: torch.cat([getattr(batch, name), dummy]) for name in ("input_ids", "segment_ids", "position_ids")}
    is_global_T = batch.global_tokens
    return replace(
        batch,
        **tokens,
        lengths=torch.cat([batch.lengths, batch.lengths.new_tensor([missing])]),
        global_tokens=None if is_global_T is None else torch.cat([is_global_T, dummy.bool()]),
    )


def attention(bucket: Bucket, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
    """softmax(q k^T / sqrt(D)) v of one bucket, [N, n, S, D], by the faster kernel. mask: an attention mask or a bias
    on the scores; a mask of keys alone must be the bucket's own `key_mask`.

    In bf16 on a CPU a text's result does not depend, bit for bit, on the other texts of its bucket: the kernel is
    chosen by the bucket's rounded size, and keys are padded to it."""
    if q.device.type != "cpu" or q.dtype is not torch.bfloat16 or _trains(q, dropout):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
    full = round_length(bucket.size)
    if full <= MAX_BATCHED_HEAD_SIZES * q.shape[-1] and (mask is None or mask.shape[-2] == 1):
        return attention_by_products(bucket, q, k, v)
    if missing := full - bucket.size:
        mask = torch.ones(1, 1, 1, bucket.size, dtype=torch.bool) if mask is None else mask
        hidden = False if mask.dtype is torch.bool else torch.finfo(mask.dtype).min
        k, v, mask = F.pad(k, (0, 0, 0, missing)), F.pad(v, (0, 0, 0, missing)), F.pad(mask, (0, missing), value=hidden)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def attention_by_products(bucket: Bucket, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(D)) v of one bucket by two batched products, [N, n, S, D]; without gradients."""
    size = k.shape[2]
    q, k, v = (x.flatten(0, 1) for x in (q, k, v))
    extra = -size % SOFTMAX_WIDTH
    scores = q.new_empty(*q.shape[:2], size + extra)
    key_scores = scores[..., :size] if extra else scores
    torch.baddbmm(q.new_empty(1), q, k.transpose(1, 2), beta=0, alpha=q.shape[-1] ** -0.5, out=key_scores)
    if extra:
        scores[..., size:] = -torch.inf
    weights = bucket.mask_scores(_split_heads(bucket, scores)).softmax(-1).flatten(0, 1)
    return _split_heads(bucket, torch.bmm(weights[..., :size] if extra else weights, v))


def batched_is_faster(q: Tensor, max_length: int, dropout: float) -> bool:
    """Whether `batched_attention` beats the fused kernel in training, for texts of up to `max_length` tokens."""
    if q.device.type != "cpu" or not _trains(q, dropout):
        return False
    return max_length <= (MAX_SAVED_LENGTH if dropout or q.dtype is torch.bfloat16 else MAX_SAVED_LENGTH_FLOAT32)


def _trains(q: Tensor, dropout: float) -> bool:
    return dropout > 0 or (torch.is_grad_enabled() and q.requires_grad)


def batched_attention(
    q_TND: Tensor, k_TND: Tensor, v_TND: Tensor, buckets: Sequence[Bucket], dropout: float = 0.0
) -> Tensor:
    """softmax(q k^T / sqrt(D)) v within each text -> [T, N, D]."""
    attended: Tensor = _BatchedAttention.apply(q_TND, k_TND, v_TND, buckets, dropout)
    return attended


class _BatchedAttention(torch.autograd.Function):
    """Batched products per bucket, written straight into place; attention weights are saved for the backward pass."""

    @staticmethod
    def forward(
        ctx: Any, q_TND: Tensor, k_TND: Tensor, v_TND: Tensor, buckets: Sequence[Bucket], dropout: float
    ) -> Tensor:
        attended_TND = torch.empty(q_TND.shape, dtype=q_TND.dtype)
        ctx.buckets, ctx.scale, ctx.dropout, ctx.keep_bits = buckets, q_TND.shape[-1] ** -0.5, dropout, []
        saved = [q_TND, k_TND, v_TND]
        for bucket in buckets:
            q, k, v = (_gather(bucket, part) for part in (q_TND, k_TND, v_TND))
            scores = torch.baddbmm(q.new_empty(1), q, k.transpose(1, 2), beta=0, alpha=ctx.scale)
            weights = bucket.mask_scores(_split_heads(bucket, scores)).flatten(0, 1).softmax(-1)
            saved.append(weights)
            if dropout:
                kept = draw_keep_mask(weights.numel(), dropout)
                ctx.keep_bits.append(np.packbits(kept))
                weights = weights * dropout_factors(kept, weights, dropout)
            _scatter(bucket, torch.bmm(weights, v), attended_TND)
        ctx.save_for_backward(*saved)
        return attended_TND

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (g_TND,) = gradients
        q_TND, k_TND, v_TND, *saved = ctx.saved_tensors
        g_T3ND = torch.empty((len(g_TND), 3, *g_TND.shape[1:]), dtype=g_TND.dtype)
        for index, (bucket, weights) in enumerate(zip(ctx.buckets, saved, strict=True)):
            q, k, v = (_gather(bucket, part) for part in (q_TND, k_TND, v_TND))
            g = bucket.zero_padding(bucket.gather(g_TND)).flatten(0, 1)
            g_weights, dropped = torch.bmm(g, v.transpose(1, 2)), weights
            if ctx.dropout:
                factor = dropout_factors(_unpack(ctx.keep_bits[index], weights), weights, ctx.dropout)
                g_weights, dropped = g_weights * factor, weights * factor
            g_scores = torch._softmax_backward_data(g_weights, weights, -1, weights.dtype).mul_(ctx.scale)
            _scatter(bucket, torch.bmm(g_scores, k), g_T3ND[:, 0])
            _scatter(bucket, torch.bmm(g_scores.transpose(1, 2), q), g_T3ND[:, 1])
            _scatter(bucket, torch.bmm(dropped.transpose(1, 2), g), g_T3ND[:, 2])
        return *g_T3ND.unbind(1), None, None


def _gather(bucket: Bucket, x_TND: Tensor) -> Tensor:
    """A bucket as [N * n, S, D]."""
    return bucket.gather(x_TND).flatten(0, 1)


def _split_heads(bucket: Bucket, x: Tensor) -> Tensor:
    """[N * n, ...] as [N, n, ...]."""
    return x.unflatten(0, (-1, bucket.n))


def _scatter(bucket: Bucket, x: Tensor, target_TND: Tensor) -> None:
    target_TND[bucket.start : bucket.end] = bucket.ungather(_split_heads(bucket, x))


def draw_keep_mask(count: int, rate: float, key: int | None = None) -> np.ndarray:
    """A dropout mask of `count` values, from counter-based random bits (Philox, Salmon 2011), 16 per value.

    The default key is one draw from torch's generator, so seeding torch fixes every mask. Five times as fast as
    F.dropout on a CPU.
    """
    raw = np.random.Philox(key=new_key() if key is None else key).random_raw(-(-count // 4)).view(np.int16)[:count]
    kept: np.ndarray = raw >= round(rate * 65536) - 32768
    return kept


def new_key() -> int:
    return int(torch.randint(1 << 62, ()))


def dropout_factors(kept: np.ndarray, like: Tensor, rate: float) -> Tensor:
    """1 / (1 - rate) for values that are kept, 0 for dropped ones."""
    # Multiplying the number's bits by True or False is many times as fast as converting a mask.
    bits = torch.tensor(1 / (1 - rate), dtype=like.dtype).view(torch.int16 if like.itemsize == 2 else torch.int32)
    return torch.from_numpy(np.multiply(kept, bits.numpy())).view(like.dtype).view(like.shape)


def _unpack(bits: np.ndarray, like: Tensor) -> np.ndarray:
    return np.unpackbits(bits, count=like.numel())


def apply_dropout(x: Tensor, rate: float) -> Tensor:
    """Dropout on a CPU, saving one bit per value for the backward pass."""
    result: Tensor = _Dropout.apply(x, rate)
    return result


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float) -> Tensor:
        kept = draw_keep_mask(x.numel(), rate)
        ctx.keep_bits, ctx.rate = np.packbits(kept), rate
        return x * dropout_factors(kept, x, rate)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (g,) = gradients
        return g * dropout_factors(_unpack(ctx.keep_bits, g), g, ctx.rate), None


class Dropout(nn.Module):
    """Dropout (Srivastava 2014): `apply_dropout` on a CPU, torch's elsewhere."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.rate == 0:
            return x
        return apply_dropout(x, self.rate) if x.device.type == "cpu" else F.dropout(x, self.rate)


def linear_cross_entropy(x_ME: Tensor, weight_VE: Tensor, bias_V: Tensor, labels_M: Tensor) -> Tensor:
    """Sum of cross-entropies of x W^T + b, a float32 scalar; at most MAX_POSITIONS rows of scores are in memory."""
    if torch.is_grad_enabled():
        loss: Tensor = _LinearCrossEntropy.apply(x_ME, weight_VE, bias_V, labels_M)
        return loss
    parts = zip(x_ME.split(MAX_POSITIONS), labels_M.split(MAX_POSITIONS), strict=True)
    scores = (F.cross_entropy(F.linear(x, weight_VE, bias_V).float(), y, reduction="sum") for x, y in parts)
    return torch.stack(list(scores)).sum()


def sample_words(x_ME: Tensor, weight_VE: Tensor, bias_V: Tensor, draws_M: Tensor) -> Tensor:
    """Words sampled from softmax(x W^T + b), [M], by inverting the cumulative distribution at draws in [0, 1)."""
    drawn = [draws_M.new_zeros(0, dtype=torch.long)]
    for x, u in zip(x_ME.split(MAX_POSITIONS), draws_M.split(MAX_POSITIONS), strict=True):
        sums_MV = F.linear(x, weight_VE, bias_V).float().softmax(-1).cumsum(-1)
        drawn.append(torch.searchsorted(sums_MV, u.float()[:, None] * sums_MV[:, -1:], right=True)[:, 0])
    return torch.cat(drawn).clamp(max=len(bias_V) - 1)


class _LinearCrossEntropy(torch.autograd.Function):
    """Computes gradients in the forward pass, where the probabilities are available: three products instead of four."""

    @staticmethod
    def forward(ctx: Any, x_ME: Tensor, weight_VE: Tensor, bias_V: Tensor, labels_M: Tensor) -> Tensor:
        g_x, g_weight, g_bias = (torch.zeros_like(value) for value in (x_ME, weight_VE, bias_V))
        loss = torch.zeros((), device=x_ME.device)
        for start in range(0, len(x_ME), MAX_POSITIONS):
            rows = slice(start, start + MAX_POSITIONS)
            scores_MV = torch.mm(x_ME[rows], weight_VE.t()).add_(bias_V)
            probabilities_MV = scores_MV.softmax(-1)
            target = torch.arange(len(probabilities_MV), device=x_ME.device), labels_M[rows]
            if scores_MV.dtype is torch.float16:  # whose smallest number is 6e-8
                loss += F.cross_entropy(scores_MV.float(), labels_M[rows], reduction="sum")
            else:
                loss -= probabilities_MV[target].float().clamp_min(SMALLEST).log().sum()
            del scores_MV
            probabilities_MV[target] -= 1  # the gradient of the scores
            torch.mm(probabilities_MV, weight_VE, out=g_x[rows])
            g_weight.addmm_(probabilities_MV.t(), x_ME[rows])
            g_bias += probabilities_MV.sum(0)
            del probabilities_MV  # before the next rows'
        ctx.save_for_backward(g_x, g_weight, g_bias)
        return loss

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (g,) = gradients
        return *(value.mul_(g) for value in ctx.saved_tensors), None
