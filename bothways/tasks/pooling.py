"""Pooling: a text's vector from its token vectors (mean, cls or max), over all of its windows.

Letters: T tokens of a batch, N windows in it; H hidden.
"""

from collections.abc import Callable, Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from bothways.batch import Batch
from bothways.device import copy_to
from bothways.errors import InputError

Pooling = Literal["auto", "mean", "cls", "max"]
Bounds = tuple[int, int]


def pooling_name(name: str, stored: str | None) -> str:
    """mean, cls or max; "auto" is the checkpoint's pooling, else mean. InputError for anything else."""
    kind = (stored or "mean") if name == "auto" else name
    if kind not in get_args(Pooling):
        raise InputError(f"pooling {kind!r} is not supported; use one of {', '.join(get_args(Pooling))}")
    return kind


def pool_rows(kind: str) -> Callable[[Tensor, Batch, list[Bounds]], Tensor]:
    """A function that reduces rows [first, last) of each window of a batch to one float32 vector: their sum (for the
    mean), their maximum, or the first row of the window (cls). [N, H], on the device of the hidden states."""

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


def pool_windows(kind: str, pooled_NH: Tensor, bounds: Sequence[Bounds], num_windows: Sequence[int]) -> Tensor:
    """One vector per text, [len(num_windows), H], from the results of pool_rows for the rows `bounds` of its windows.

    mean and max are over all rows; cls is the mean over the windows' first rows.
    """
    shape, device = (len(num_windows), pooled_NH.shape[1]), pooled_NH.device
    text_N = torch.repeat_interleave(torch.arange(len(num_windows)), torch.tensor(num_windows).long()).to(device)
    if kind == "max":
        largest = torch.full(shape, -torch.inf, device=device)
        return largest.scatter_reduce_(0, text_N[:, None].expand_as(pooled_NH), pooled_NH, "amax")
    sizes_N = torch.tensor([last - first if kind == "mean" else 1 for first, last in bounds], device=device)
    sums = torch.zeros(shape, device=device).index_add_(0, text_N, pooled_NH)
    return sums.div_(torch.zeros(len(num_windows), device=device).index_add_(0, text_N, sizes_N.float())[:, None])
