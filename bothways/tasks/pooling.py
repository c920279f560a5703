"""Pooling: a text's vector from its token vectors (mean, cls or max), over all of its windows.

Letters: T tokens of a batch, N windows in it; W windows of all texts; H hidden.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from bothways.base.errors import InputError
from bothways.text.batch import Batch

if TYPE_CHECKING:
    from torch import Tensor

Pooling = Literal["auto", "mean", "cls", "max"]
Bounds = tuple[int, int]
Array = TypeVar("Array", "Tensor", NDArray[Any])


def pooling_name(name: str, stored: str | None) -> str:
    """mean, cls or max; "auto" is the checkpoint's pooling, else mean. InputError for anything else."""
    kind = (stored or "mean") if name == "auto" else name
    if kind not in get_args(Pooling):
        raise InputError(f"pooling {kind!r} is not supported; use one of {', '.join(get_args(Pooling))}")
    return kind


def pool_rows(kind: str) -> Callable[[Tensor, Batch, list[Bounds]], Tensor]:
    """A function that reduces rows [first, last) of each window of a batch to one float32 vector: their sum (for the
    mean), their maximum, or the first row of the window (cls). [N, H], on the device of the hidden states."""
    import torch

    from bothways.base.device import copy_to

    def pool(hidden_TH: Tensor, batch: Batch, bounds: list[Bounds]) -> Tensor:
        starts_N = batch.lengths.cumsum(0) - batch.lengths
        if kind == "cls":
            return hidden_TH[copy_to(starts_N, hidden_TH.device)].float()
        if kind == "max":
            rows = zip(starts_N.tolist(), bounds, strict=True)
            largest = [hidden_TH[start + first : start + last].float().amax(0) for start, (first, last) in rows]
            return torch.stack(largest)
        first_N, last_N = torch.tensor(bounds).T
        text_T = torch.repeat_interleave(torch.arange(len(batch)), last_N - first_N)
        if bool((last_N - first_N != batch.lengths).any()):
            begins_N = (last_N - first_N).cumsum(0) - (last_N - first_N)
            rows_T = torch.arange(len(text_T)) + (starts_N + first_N - begins_N)[text_T]
            hidden_TH = hidden_TH[copy_to(rows_T, hidden_TH.device)]
        sums_NH = torch.zeros(len(batch), hidden_TH.shape[1], device=hidden_TH.device)
        return sums_NH.index_add_(0, copy_to(text_T, hidden_TH.device), hidden_TH.float())

    return pool


def pool_windows(kind: str, vectors_WH: Array, text_W: Array, num_texts: int, sizes_W: Array | None = None) -> Array:
    """One float32 vector per text, [num_texts, H], from those of its windows: their maximum, else their mean.

    text_W: the text of each window; each text has one. sizes_W: rows that each window has in the sums of pool_rows, for
    kind "mean"; None: the vectors are means. Arrays and tensors give the same bits; tensors have gradients.
    """
    if kind == "cls" or sizes_W is None:
        sizes_W = text_W * 0 + 1
    if isinstance(vectors_WH, np.ndarray):
        order_W, counts_N = text_W.argsort(kind="stable"), np.bincount(text_W, minlength=num_texts)
        starts_N = counts_N.cumsum() - counts_N
        pooled_NH, join = vectors_WH[order_W[starts_N]], np.maximum if kind == "max" else np.add
        for place in range(1, counts_N.max(initial=0)):
            texts = np.flatnonzero(counts_N > place)
            pooled_NH[texts] = join(pooled_NH[texts], vectors_WH[order_W[starts_N[texts] + place]])
        if kind != "max":
            pooled_NH /= np.bincount(text_W, sizes_W, num_texts).astype(np.float32)[:, None]
        return pooled_NH
    x_WH = vectors_WH.float()  # sums in bf16 stop growing after some hundred windows
    if kind == "max":
        lowest_NH = x_WH.new_full((num_texts, x_WH.shape[1]), -np.inf)
        return lowest_NH.scatter_reduce(0, text_W[:, None].expand_as(x_WH), x_WH, "amax")
    sums_NH = x_WH.new_zeros(num_texts, x_WH.shape[1]).index_add(0, text_W, x_WH)
    return sums_NH / x_WH.new_zeros(num_texts).index_add(0, text_W, sizes_W.float())[:, None]
