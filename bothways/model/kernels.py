"""Fast kernels: attention over buckets of texts on a CPU, and token counts for which products are fast.

Each computes the same as a plain form, with which the tests compare it.

Letters: T tokens of all texts, N heads, D head size; a bucket is n texts of S tokens.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bothways.model.buckets import Bucket, round_length
from bothways.model.dropout import draw_keep_mask, dropout_factors, unpack_keep_mask
from bothways.text.batch import Batch

# In bf16 on a CPU, attention by batched products beats the fused kernel for texts of up to about this many times the
# head size; with gradients, at every length BERT reads (docs/LOG.md).
MAX_BATCHED_HEAD_SIZES = 4
SOFTMAX_WIDTH = 16  # torch's bf16 softmax treats the rest of a row beyond a multiple of this differently, and slowly
MAX_SAVED_LENGTH = 2048  # tokens of a text whose attention weights are saved for the backward pass
MAX_SAVED_LENGTH_FLOAT32 = 512  # ... in float32 without dropout: beyond, the fused kernel is twice as fast
TOKEN_MULTIPLE = 64  # token counts are rounded up to a multiple of this, since oneDNN prepares a kernel per shape
FEW_TOKENS = 256  # ... and up to here to a quarter of it


def append_dummy_text(batch: Batch, weight: Tensor) -> Batch:
    """The batch; for bf16 weights on a CPU and for half precision on a GPU, followed by a dummy text of fewer than
    TOKEN_MULTIPLE tokens.

    oneDNN prepares a kernel for each new shape, which takes longer than a small product itself, and ragged batches
    rarely have equal token counts: a fifth of a small step, a tenth of MiniLM-L6's (docs/LOG.md). A GPU multiplies
    matrices in tiles of 64 rows and more, and chooses its kernel by their number."""
    missing = _num_missing(batch.num_tokens, weight)
    if not missing:
        return batch

    dummy = batch.input_ids.new_zeros(missing)
    global_tokens = batch.global_tokens
    if global_tokens is not None:
        global_tokens = torch.cat([global_tokens, dummy.bool()])
    return replace(
        batch,
        input_ids=torch.cat([batch.input_ids, dummy]),
        segment_ids=torch.cat([batch.segment_ids, dummy]),
        position_ids=torch.cat([batch.position_ids, dummy]),
        lengths=torch.cat([batch.lengths, batch.lengths.new_tensor([missing])]),
        global_tokens=global_tokens,
    )


def append_dummy_rows(rows_R: Tensor, weight: Tensor) -> Tensor:
    """Rows to be computed, filled up as `append_dummy_text` does with tokens, by repeating the first one; without any
    row, the first token's."""
    if not len(rows_R):
        rows_R = rows_R.new_zeros(1)
    missing = _num_missing(len(rows_R), weight)
    return torch.cat([rows_R, rows_R[:1].expand(missing)]) if missing else rows_R


def _num_missing(count: int, weight: Tensor) -> int:
    """Rows missing to the next multiple for which products with this weight are fast; 0 where any number is."""
    is_half = weight.dtype is torch.bfloat16 or (weight.dtype is torch.float16 and weight.device.type == "cuda")
    if not is_half or weight.device.type not in ("cpu", "cuda"):
        return 0
    step = TOKEN_MULTIPLE if count > FEW_TOKENS else TOKEN_MULTIPLE // 4
    return -count % step


def attention(bucket: Bucket, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
    """softmax(q k^T / sqrt(D)) v of one bucket, [N, n, S, D], by the faster kernel.

    In bf16 on a CPU a text's result does not depend, bit for bit, on the other texts of its bucket: the kernel is
    chosen by the bucket's rounded size, and keys are padded to it.

    bucket: the texts.
    q, k, v: queries, keys and values, padded by the bucket.
    mask: an attention mask or a bias on the scores; a mask of keys alone must be the bucket's own `key_mask`.
    dropout: rate for the attention weights.
    """
    if q.device.type != "cpu" or q.dtype is not torch.bfloat16 or _trains(q, dropout):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)

    full = round_length(bucket.size)
    masks_keys_alone = mask is None or mask.shape[-2] == 1
    if masks_keys_alone and full <= MAX_BATCHED_HEAD_SIZES * q.shape[-1]:
        return attention_by_products(bucket, q, k, v)

    # The fused kernel divides the sum over keys differently for different numbers of keys (docs/LOG.md).
    missing = full - bucket.size
    if missing:
        if mask is None:
            mask = torch.ones(1, 1, 1, bucket.size, dtype=torch.bool)
        hidden = False if mask.dtype is torch.bool else torch.finfo(mask.dtype).min
        mask = F.pad(mask, (0, missing), value=hidden)
        k = F.pad(k, (0, 0, 0, missing))
        v = F.pad(v, (0, 0, 0, missing))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def attention_by_products(bucket: Bucket, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(D)) v of one bucket by two batched products, [N, n, S, D]; without gradients.

    bucket: the texts.
    q, k, v: queries, keys and values, padded by the bucket.
    """
    size = k.shape[2]
    scale = q.shape[-1] ** -0.5
    q, k, v = (x.flatten(0, 1) for x in (q, k, v))

    # Rows of a multiple of 16 scores: at width 60 the softmax takes five times as long as at 64 (docs/LOG.md).
    extra = -size % SOFTMAX_WIDTH
    scores = q.new_empty(*q.shape[:2], size + extra)
    key_scores = scores[..., :size] if extra else scores
    torch.baddbmm(q.new_empty(1), q, k.transpose(1, 2), beta=0, alpha=scale, out=key_scores)
    if extra:
        scores[..., size:] = -torch.inf

    weights = bucket.mask_scores(_split_heads(bucket, scores)).softmax(-1).flatten(0, 1)
    if extra:
        weights = weights[..., :size]
    return _split_heads(bucket, torch.bmm(weights, v))


def batched_is_faster(q: Tensor, max_length: int, dropout: float) -> bool:
    """Whether `batched_attention` beats the fused kernel in training.

    q: queries, of the dtype and device in question.
    max_length: tokens of the longest text.
    dropout: rate for the attention weights.
    """
    if q.device.type != "cpu" or not _trains(q, dropout):
        return False
    if dropout or q.dtype is torch.bfloat16:
        return max_length <= MAX_SAVED_LENGTH
    return max_length <= MAX_SAVED_LENGTH_FLOAT32


def _trains(q: Tensor, dropout: float) -> bool:
    return dropout > 0 or (torch.is_grad_enabled() and q.requires_grad)


def batched_attention(
    q_TND: Tensor, k_TND: Tensor, v_TND: Tensor, buckets: Sequence[Bucket], dropout: float = 0.0
) -> Tensor:
    """softmax(q k^T / sqrt(D)) v within each text -> [T, N, D].

    q_TND, k_TND, v_TND: queries, keys and values of all texts.
    buckets: of all texts.
    dropout: rate for the attention weights.
    """
    attended: Tensor = _BatchedAttention.apply(q_TND, k_TND, v_TND, buckets, dropout)
    return attended


class _BatchedAttention(torch.autograd.Function):
    """Batched products per bucket, written straight into place; attention weights are saved for the backward pass."""

    @staticmethod
    def forward(
        ctx: Any, q_TND: Tensor, k_TND: Tensor, v_TND: Tensor, buckets: Sequence[Bucket], dropout: float
    ) -> Tensor:
        ctx.buckets = buckets
        ctx.scale = q_TND.shape[-1] ** -0.5
        ctx.dropout = dropout
        ctx.keep_bits = []
        attended_TND = torch.empty(q_TND.shape, dtype=q_TND.dtype)
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

        # The gradients are side by side, as queries, keys and values were in the result of their product.
        g_T3ND = torch.empty((len(g_TND), 3, *g_TND.shape[1:]), dtype=g_TND.dtype)

        for index, (bucket, weights) in enumerate(zip(ctx.buckets, saved, strict=True)):
            # Copied from the projections again: saved copies would double the memory for them (docs/LOG.md).
            q, k, v = (_gather(bucket, part) for part in (q_TND, k_TND, v_TND))
            g = bucket.zero_padding(bucket.gather(g_TND)).flatten(0, 1)

            g_weights = torch.bmm(g, v.transpose(1, 2))
            dropped = weights
            if ctx.dropout:
                kept = unpack_keep_mask(ctx.keep_bits[index], weights)
                factor = dropout_factors(kept, weights, ctx.dropout)
                g_weights = g_weights * factor
                dropped = weights * factor
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
    """Write a bucket [N * n, S, D] to its tokens, without padding."""
    target_TND[bucket.start : bucket.end] = bucket.ungather(_split_heads(bucket, x))
