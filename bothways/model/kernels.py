"""Fast forms of what the core says plainly: the same result, and tests hold them to the plain form.

Letters: T tokens of all texts, N heads, D head size; a rectangle is n texts of S tokens; M masked places, E embedding
size, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bothways.batch import Batch
from bothways.model.buckets import Bucket, rounded

# In bf16 on a processor, attention as batched products is faster than the fused kernel for texts of up to about this
# many times the head size; where gradients are needed, at every length BERT reads (docs/LOG.md).
LONGEST_BATCHED = 4
SOFTMAX_WIDTH = 16  # torch's bf16 softmax handles what a row has beyond a multiple of it in another way, and slowly
LONGEST_KEPT = 2048  # tokens of a text whose attention weights are kept for the way back
LONGEST_FULL = 512  # ... in float32, where the fused kernel is then twice as fast, if nothing is dropped
MOST_PLACES = 2048  # whose vocabulary scores are in memory at once
ALIKE, FEW = 64, 256  # of which numbers of tokens are multiples where each one costs; of a quarter of it up to so many
SMALLEST = torch.finfo(torch.float).tiny


def append_dummy_text(batch: Batch, weight: Tensor) -> Batch:
    """The batch as a model with this weight best reads it: in bf16 on a processor with one more text at its end, of
    fewer than ALIKE tokens and no meaning.

    oneDNN prepares a product for each shape it meets, which takes longer than a small product itself, and of ragged
    batches hardly two have equally many tokens: a fifth of a small step, a tenth of MiniLM-L6's (docs/LOG.md).
    """
    step = ALIKE if batch.num_tokens > FEW else ALIKE // 4
    missing = -batch.num_tokens % step
    prepares = weight.device.type == "cpu" and weight.dtype is torch.bfloat16
    if not missing or not prepares:
        return batch
    nothing = batch.input_ids.new_zeros(missing)
    rows = {name: torch.cat([getattr(batch, name), nothing]) for name in ("input_ids", "segment_ids", "position_ids")}
    chosen_T = batch.global_tokens
    return replace(
        batch, **rows, lengths=torch.cat([batch.lengths, batch.lengths.new_tensor([missing])]),
        global_tokens=None if chosen_T is None else torch.cat([chosen_T, nothing.bool()]),
    )  # fmt: skip


def attention(rectangle: Bucket, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
    """softmax(q k^T / sqrt(D)) v of one rectangle, [N, n, S, D], by the faster kernel. mask: which keys count, or what
    is added to the scores; one of keys alone is the rectangle's own, `seen`.

    In bf16 on a processor a text has the same result, bit for bit, whatever shares its rectangle: the kernel is chosen
    by the size that the rectangle would have if it were filled up, and so is the number of keys.
    """
    if q.device.type != "cpu" or q.dtype is not torch.bfloat16 or _trains(q, dropout):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
    full = rounded(rectangle.size)
    if full <= LONGEST_BATCHED * q.shape[-1] and (mask is None or mask.shape[-2] == 1):
        return attention_by_products(rectangle, q, k, v)
    if missing := full - rectangle.size:
        mask = torch.ones(1, 1, 1, rectangle.size, dtype=torch.bool) if mask is None else mask
        hidden = False if mask.dtype is torch.bool else torch.finfo(mask.dtype).min
        k, v, mask = F.pad(k, (0, 0, 0, missing)), F.pad(v, (0, 0, 0, missing)), F.pad(mask, (0, missing), value=hidden)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def attention_by_products(rectangle: Bucket, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(D)) v of one rectangle by two batched products, [N, n, S, D]; no gradients."""
    size = k.shape[2]
    q, k, v = (x.flatten(0, 1) for x in (q, k, v))
    beside = -size % SOFTMAX_WIDTH
    scores = q.new_empty(*q.shape[:2], size + beside)
    own = scores[..., :size] if beside else scores
    torch.baddbmm(q.new_empty(1), q, k.transpose(1, 2), beta=0, alpha=q.shape[-1] ** -0.5, out=own)
    if beside:
        scores[..., size:] = -torch.inf
    weights = rectangle.hide(_apart(rectangle, scores)).softmax(-1).flatten(0, 1)
    return _apart(rectangle, torch.bmm(weights[..., :size] if beside else weights, v))


def batched_is_faster(q: Tensor, longest: int, dropout: float) -> bool:
    """Whether `batched_attention` beats the fused kernel in training, for texts of up to `longest` tokens."""
    if q.device.type != "cpu" or not _trains(q, dropout):
        return False
    return longest <= (LONGEST_KEPT if dropout or q.dtype is torch.bfloat16 else LONGEST_FULL)


def _trains(q: Tensor, dropout: float) -> bool:
    return dropout > 0 or (torch.is_grad_enabled() and q.requires_grad)


def batched_attention(
    q_TND: Tensor, k_TND: Tensor, v_TND: Tensor, rectangles: Sequence[Bucket], dropout: float = 0.0
) -> Tensor:
    """softmax(q k^T / sqrt(D)) v within each text -> [T, N, D]."""
    attended: Tensor = _BatchedAttention.apply(q_TND, k_TND, v_TND, rectangles, dropout)
    return attended


class _BatchedAttention(torch.autograd.Function):
    """Three batched products a rectangle, written straight into place; the weights are kept for the way back."""

    @staticmethod
    def forward(
        ctx: Any, q_TND: Tensor, k_TND: Tensor, v_TND: Tensor, rectangles: Sequence[Bucket], dropout: float
    ) -> Tensor:
        attended_TND = torch.empty(q_TND.shape, dtype=q_TND.dtype)
        ctx.rectangles, ctx.scale, ctx.dropout, ctx.kept = rectangles, q_TND.shape[-1] ** -0.5, dropout, []
        saved = [q_TND, k_TND, v_TND]
        for rectangle in rectangles:
            q, k, v = (_take(rectangle, part) for part in (q_TND, k_TND, v_TND))
            scores = torch.baddbmm(q.new_empty(1), q, k.transpose(1, 2), beta=0, alpha=ctx.scale)
            weights = rectangle.hide(_apart(rectangle, scores)).flatten(0, 1).softmax(-1)
            saved.append(weights)
            if dropout:
                kept = draw_keep_mask(weights.numel(), dropout)
                ctx.kept.append(np.packbits(kept))
                weights = weights * dropout_factors(kept, weights, dropout)
            _put(rectangle, torch.bmm(weights, v), attended_TND)
        ctx.save_for_backward(*saved)
        return attended_TND

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (g_TND,) = gradients
        q_TND, k_TND, v_TND, *saved = ctx.saved_tensors
        g_T3ND = torch.empty((len(g_TND), 3, *g_TND.shape[1:]), dtype=g_TND.dtype)
        for number, (rectangle, weights) in enumerate(zip(ctx.rectangles, saved, strict=True)):
            q, k, v = (_take(rectangle, part) for part in (q_TND, k_TND, v_TND))
            g = rectangle.clear(rectangle.take(g_TND)).flatten(0, 1)
            g_weights, dropped = torch.bmm(g, v.transpose(1, 2)), weights
            if ctx.dropout:
                factor = dropout_factors(_unpacked(ctx.kept[number], weights), weights, ctx.dropout)
                g_weights, dropped = g_weights * factor, weights * factor
            g_scores = torch._softmax_backward_data(g_weights, weights, -1, weights.dtype).mul_(ctx.scale)
            _put(rectangle, torch.bmm(g_scores, k), g_T3ND[:, 0])
            _put(rectangle, torch.bmm(g_scores.transpose(1, 2), q), g_T3ND[:, 1])
            _put(rectangle, torch.bmm(dropped.transpose(1, 2), g), g_T3ND[:, 2])
        return *g_T3ND.unbind(1), None, None


def _take(rectangle: Bucket, x_TND: Tensor) -> Tensor:
    """A rectangle as [N * n, S, D]."""
    return rectangle.take(x_TND).flatten(0, 1)


def _apart(rectangle: Bucket, x: Tensor) -> Tensor:
    """[N * n, ...] as [N, n, ...]."""
    return x.unflatten(0, (-1, rectangle.n))


def _put(rectangle: Bucket, x: Tensor, target_TND: Tensor) -> None:
    target_TND[rectangle.start : rectangle.end] = rectangle.give(_apart(rectangle, x))


def draw_keep_mask(number: int, rate: float, key: int | None = None) -> np.ndarray:
    """Which of so many values stay, from counter-based random bits (Philox, Salmon 2011), 16 a value.

    The key is one draw from torch's own generator if none is given, so seeding torch fixes every mask; five times as
    fast as F.dropout on a processor.
    """
    raw = np.random.Philox(key=new_key() if key is None else key).random_raw(-(-number // 4)).view(np.int16)[:number]
    kept: np.ndarray = raw >= round(rate * 65536) - 32768
    return kept


def new_key() -> int:
    return int(torch.randint(1 << 62, ()))


def dropout_factors(kept: np.ndarray, like: Tensor, rate: float) -> Tensor:
    """1 / (1 - rate) where a value stays and 0 where it is dropped."""
    # Multiplying the bits of the number by true or false is many times as fast as converting a mask.
    bits = torch.tensor(1 / (1 - rate), dtype=like.dtype).view(torch.int16 if like.itemsize == 2 else torch.int32)
    return torch.from_numpy(np.multiply(kept, bits.numpy())).view(like.dtype).view(like.shape)


def _unpacked(bits: np.ndarray, like: Tensor) -> np.ndarray:
    return np.unpackbits(bits, count=like.numel())


def dropped(x: Tensor, rate: float) -> Tensor:
    """Dropout on a processor, keeping one bit a value for the way back."""
    found: Tensor = _Dropped.apply(x, rate)
    return found


class _Dropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float) -> Tensor:
        kept = draw_keep_mask(x.numel(), rate)
        ctx.kept, ctx.rate = np.packbits(kept), rate
        return x * dropout_factors(kept, x, rate)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (g,) = gradients
        return g * dropout_factors(_unpacked(ctx.kept, g), g, ctx.rate), None


class Dropout(nn.Module):
    """Dropout (Srivastava 2014) by `dropped` on a processor and by torch elsewhere."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.rate == 0:
            return x
        return dropped(x, self.rate) if x.device.type == "cpu" else F.dropout(x, self.rate)


def linear_cross_entropy(x_ME: Tensor, weight_VE: Tensor, bias_V: Tensor, labels_M: Tensor) -> Tensor:
    """Sum of cross-entropies of x W^T + b, a float32 scalar, with the scores of at most MOST_PLACES in memory."""
    if torch.is_grad_enabled():
        loss: Tensor = _LinearCrossEntropy.apply(x_ME, weight_VE, bias_V, labels_M)
        return loss
    parts = zip(x_ME.split(MOST_PLACES), labels_M.split(MOST_PLACES), strict=True)
    scores = (F.cross_entropy(F.linear(x, weight_VE, bias_V).float(), y, reduction="sum") for x, y in parts)
    return torch.stack(list(scores)).sum()


def sample_words(x_ME: Tensor, weight_VE: Tensor, bias_V: Tensor, draws_M: Tensor) -> Tensor:
    """Of each row's shares softmax(x W^T + b) the entry at which they add up to its draw in [0, 1). [M]"""
    drawn = [draws_M.new_zeros(0, dtype=torch.long)]
    for x, u in zip(x_ME.split(MOST_PLACES), draws_M.split(MOST_PLACES), strict=True):
        sums_MV = F.linear(x, weight_VE, bias_V).float().softmax(-1).cumsum(-1)
        drawn.append(torch.searchsorted(sums_MV, u.float()[:, None] * sums_MV[:, -1:], right=True)[:, 0])
    return torch.cat(drawn).clamp(max=len(bias_V) - 1)


class _LinearCrossEntropy(torch.autograd.Function):
    """Works the gradients out on the way forward, where the probabilities are at hand: three products, not four."""

    @staticmethod
    def forward(ctx: Any, x_ME: Tensor, weight_VE: Tensor, bias_V: Tensor, labels_M: Tensor) -> Tensor:
        g_x, g_weight, g_bias = (torch.zeros_like(value) for value in (x_ME, weight_VE, bias_V))
        loss = torch.zeros((), device=x_ME.device)
        for start in range(0, len(x_ME), MOST_PLACES):
            rows = slice(start, start + MOST_PLACES)
            scores_MV = torch.mm(x_ME[rows], weight_VE.t()).add_(bias_V)
            shares_MV = scores_MV.softmax(-1)
            right = torch.arange(len(shares_MV), device=x_ME.device), labels_M[rows]
            if scores_MV.dtype is torch.float16:  # which knows no share below 6e-8
                loss += F.cross_entropy(scores_MV.float(), labels_M[rows], reduction="sum")
            else:
                loss -= shares_MV[right].float().clamp_min(SMALLEST).log().sum()
            del scores_MV
            shares_MV[right] -= 1  # the gradient of the scores
            torch.mm(shares_MV, weight_VE, out=g_x[rows])
            g_weight.addmm_(shares_MV.t(), x_ME[rows])
            g_bias += shares_MV.sum(0)
            del shares_MV  # before the next part's are made
        ctx.save_for_backward(g_x, g_weight, g_bias)
        return loss

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (g,) = gradients
        return *(value.mul_(g) for value in ctx.saved_tensors), None
