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
Array = TypeVar("Array", "Tensor", NDArray[Any])


def pooling_name(name: str, stored: str | None) -> str:
    """mean, cls or max; "auto" is the checkpoint's pooling, else mean. InputError for anything else."""
    kind = (stored or "mean") if name == "auto" else name
    if kind not in get_args(Pooling):
        raise InputError(f"pooling {kind!r} is not supported; use one of {', '.join(get_args(Pooling))}")
    return kind


def pool_rows(kind: str) -> Callable[[Tensor, Batch, Tensor | NDArray[np.int64]], Tensor]:
    """A function that reduces rows [first, last) of each window of a batch, [N, 2] on the CPU, to one float32 vector:
    their sum (for the mean), their maximum, or the first row of the window (cls). [N, H], on the device of the hidden
    states."""
    import torch

    from bothways.base.device import copy_to

    def pool(hidden_TH: Tensor, batch: Batch, bounds_N2: Tensor | NDArray[np.int64]) -> Tensor:
        if kind == "cls":
            return hidden_TH[batch.first_tokens].float()

        lengths_N = batch.lengths.numpy()
        starts_N = lengths_N.cumsum() - lengths_N
        first_N, last_N = np.asarray(bounds_N2).T
        if kind == "max":
            maxima: list[Tensor] = []
            for begin, end in zip((starts_N + first_N).tolist(), (starts_N + last_N).tolist(), strict=True):
                maxima.append(hidden_TH[begin:end].float().amax(0))
            return torch.stack(maxima)

        sizes_N = last_N - first_N
        text_T = np.repeat(np.arange(len(batch)), sizes_N)
        # Texts of one window use all rows, which need no copy.
        if (sizes_N != lengths_N).any():
            begins_N = sizes_N.cumsum() - sizes_N
            rows_T = np.arange(len(text_T)) + (starts_N + first_N - begins_N)[text_T]
            hidden_TH = hidden_TH[copy_to(torch.from_numpy(rows_T), hidden_TH.device)]
        sums_NH = torch.zeros(len(batch), hidden_TH.shape[1], device=hidden_TH.device)
        return sums_NH.index_add_(0, copy_to(torch.from_numpy(text_T), hidden_TH.device), hidden_TH.float())

    return pool


def pool_windows(kind: str, vectors_WH: Array, text_W: Array, num_texts: int, sizes_W: Array | None = None) -> Array:
    """One float32 vector per text, [num_texts, H], from the vectors of its windows: their maximum, else their mean.

    Arrays and tensors give the same bits; tensors have gradients.

    kind: mean, max or cls, whose vectors are averaged.
    vectors_WH: of the windows.
    text_W: the text of each window; each text has one.
    num_texts: number of texts.
    sizes_W: rows that each window has in the sums of pool_rows, for kind "mean"; None: the vectors are means.
    """
    if kind == "cls" or sizes_W is None:
        sizes_W = text_W * 0 + 1
    if isinstance(vectors_WH, np.ndarray):
        return _pool_arrays(kind, vectors_WH, text_W, num_texts, sizes_W=sizes_W)

    x_WH = vectors_WH.float()  # sums in bf16 stop growing after some hundred windows
    if kind == "max":
        lowest_NH = x_WH.new_full((num_texts, x_WH.shape[1]), -np.inf)
        return lowest_NH.scatter_reduce(0, text_W[:, None].expand_as(x_WH), x_WH, "amax")

    sums_NH = x_WH.new_zeros(num_texts, x_WH.shape[1]).index_add(0, text_W, x_WH)
    sizes_N = x_WH.new_zeros(num_texts).index_add(0, text_W, sizes_W.float())
    return sums_NH / sizes_N[:, None]


def _pool_arrays(
    kind: str, vectors_WH: NDArray[Any], text_W: NDArray[Any], num_texts: int, *, sizes_W: NDArray[Any]
) -> NDArray[Any]:
    """The windows of a text are added in their order, as torch does: the first of every text, then the second."""
    join = np.maximum if kind == "max" else np.add
    order_W = text_W.argsort(kind="stable")
    counts_N = np.bincount(text_W, minlength=num_texts)
    starts_N = counts_N.cumsum() - counts_N

    pooled_NH: NDArray[Any] = vectors_WH[order_W[starts_N]]
    for index in range(1, counts_N.max(initial=0)):
        texts = np.flatnonzero(counts_N > index)
        windows = order_W[starts_N[texts] + index]
        pooled_NH[texts] = join(pooled_NH[texts], vectors_WH[windows])

    if kind != "max":
        sizes_N = np.bincount(text_W, sizes_W, num_texts).astype(np.float32)
        pooled_NH /= sizes_N[:, None]
    return pooled_NH
