"""Pooling: a text's vector from its token vectors (mean, cls or max), over all of its windows.

Letters: T tokens of a batch, N windows in it; H hidden.
"""

from collections.abc import Callable, Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from bothways.batch import Batch
from bothways.errors import InputError

Pooling = Literal["auto", "mean", "cls", "max"]
Bounds = tuple[int, int]


def pooling_name(name: str, stored: str | None) -> str:
    """mean, cls or max; "auto" is the checkpoint's pooling, else mean. InputError for anything else."""
    kind = (stored or "mean") if name == "auto" else name
    if kind not in get_args(Pooling):
        raise InputError(f"pooling {kind!r} is not supported; use one of {', '.join(get_args(Pooling))}")
    return kind


def pool_rows(kind: str) -> Callable[[Tensor, Batch, list[Bounds]], list[Tensor]]:
    """A function that reduces rows [first, last) of each window of a batch to one float32 vector: their sum (for the
    mean), their maximum, or the first row of the window (cls)."""

    def pool(hidden_TH: Tensor, batch: Batch, bounds: list[Bounds]) -> list[Tensor]:
        starts = (batch.lengths.cumsum(0) - batch.lengths).tolist()
        if kind == "cls":
            return list(hidden_TH[starts].float().cpu())
        if kind == "max":
            rows = zip(starts, bounds, strict=True)
            return [hidden_TH[start + first : start + last].float().amax(0).cpu() for start, (first, last) in rows]
        text_T = torch.repeat_interleave(torch.arange(len(batch)), batch.lengths).to(hidden_TH.device)
        first_N, last_N = torch.tensor(bounds, device=hidden_TH.device).T
        is_pooled_T = (batch.position_ids >= first_N[text_T]) & (batch.position_ids < last_N[text_T])
        sums = torch.zeros(len(batch), hidden_TH.shape[1], device=hidden_TH.device)
        if not bool(is_pooled_T.all()):
            hidden_TH, text_T = hidden_TH[is_pooled_T], text_T[is_pooled_T]
        return list(sums.index_add_(0, text_T, hidden_TH.float()).cpu())

    return pool


def pool_windows(kind: str, pooled_NH: Tensor, bounds: Sequence[Bounds], num_windows: Sequence[int]) -> Tensor:
    """One vector per text, [len(num_windows), H], from the results of pool_rows for the rows `bounds` of its windows.

    mean and max are over all rows; cls is the mean over the windows' first rows.
    """
    shape = len(num_windows), pooled_NH.shape[1]
    text_N = torch.repeat_interleave(torch.arange(len(num_windows)), torch.tensor(num_windows).long())
    if kind == "max":
        largest = torch.full(shape, -torch.inf)
        return largest.scatter_reduce_(0, text_N[:, None].expand_as(pooled_NH), pooled_NH, "amax")
    sizes_N = torch.tensor([last - first if kind == "mean" else 1 for first, last in bounds])
    sums = torch.zeros(shape).index_add_(0, text_N, pooled_NH)
    return sums.div_(torch.zeros(len(num_windows)).index_add_(0, text_N, sizes_N.float())[:, None])
