"""Batched inference: sort by length, run batches of a token budget, restore the order.

Letters: W windows, n of them in a batch; T tokens of a batch; H hidden size.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bothways.base.device import HostCopy, release_memory
from bothways.base.errors import InputError
from bothways.base.log import logger
from bothways.inference.reading import ProgressOption, showing
from bothways.model.config import EncoderConfig
from bothways.model.model import Model
from bothways.model.prepacked import prepack
from bothways.model.rows import read_states
from bothways.text.batch import Batch
from bothways.text.batching import batch_end, delayed
from bothways.text.token_windows import Integers, TokenWindows

Result = TypeVar("Result")
RowsRead = Callable[..., Tensor | None]
Column = Sequence[Any] | NDArray[Any]
WeightVersions = list[tuple[int, int]]
BATCH_TOKENS = {"cuda": 1 << 16}  # of a batch on a GPU
CPU_BATCH_TOKENS = 4096  # enough to keep a processor busy, small enough for its caches
TOKENS_PER_RELEASE = 1 << 15  # computed tokens after which freed memory is returned to the system


class TokenModel(Protocol):
    """Interface of a model that computes batches: a Model, or a file of another library (shrink/export/int8.py)."""

    config: EncoderConfig

    @property
    def num_outputs(self) -> Mapping[str, int]:
        """Number of outputs of each head, by name."""

    def __call__(self, batch: Batch) -> Tensor:
        """The last hidden states, [T, H]."""

    def text_states(self, hidden_TH: Tensor, batch: Batch) -> Tensor:
        """The input of heads on texts, [N, H]."""

    def text_scores(self, name: str, first_NH: Tensor) -> Tensor:
        """The outputs of a head on texts, [N, C]."""

    def token_scores(self, name: str, x_TH: Tensor) -> Tensor:
        """The outputs of a head on tokens, [T, C]."""

    def word_scores(self, x_MH: Tensor) -> Tensor:
        """The scores of all words, [M, V]."""


class BatchRunner:
    """Runs a model over any number of windows."""

    def __init__(
        self, model: TokenModel, *, device: torch.device, dtype: torch.dtype, batch_tokens: int | None = None
    ) -> None:
        self.model = model
        self.device = device
        self.dtype = dtype
        self.batch_tokens = batch_tokens or BATCH_TOKENS.get(device.type, CPU_BATCH_TOKENS)
        # The function, with the versions of the weights that it was made from.
        self._prepacked: tuple[WeightVersions, Callable[[Batch], Tensor]] | None = None

    def run(
        self,
        windows: TokenWindows,
        reduce: Callable[..., Iterable[Result]],
        *columns: Column,
        batch_tokens: int | None = None,
        progress: ProgressOption = None,
        rows_read: RowsRead | None = None,
    ) -> list[Result]:
        """The results of reduce(hidden_TH, batch, ...) for each window, in their order.

        columns: further values per window; reduce receives the values of its batch.
        batch_tokens: maximum tokens of a batch; None: of this runner.
        progress: see ReadOptions.
        rows_read: from a batch and the columns to the tokens whose states `reduce` reads, by which it indexes
            (`HiddenRows`); None: all.
        """
        results: dict[int, Result] = {}
        batches = self._batches(
            windows,
            reduce,
            columns,
            batch_tokens=batch_tokens,
            progress=progress,
            rows_read=rows_read,
        )
        for rows, reduced in batches:
            results.update(zip(rows.tolist(), reduced, strict=True))
        return [results[row] for row in range(len(results))]

    def run_vectors(
        self,
        windows: TokenWindows,
        reduce: Callable[..., Tensor],
        *columns: Column,
        batch_tokens: int | None = None,
        progress: ProgressOption = None,
        rows_read: RowsRead | None = None,
    ) -> NDArray[np.float32]:
        """As `run`, where `reduce` makes vectors of one size, [n, H]: float32 [W, H], without a second copy in memory.
        A GPU sends the vectors of a batch while it computes the next one."""
        vectors_WH = np.empty((0, self.model.config.hidden_size), np.float32)
        batches = self._batches(
            windows,
            lambda *arguments: HostCopy(reduce(*arguments).float()),
            columns,
            batch_tokens=batch_tokens,
            progress=progress,
            rows_read=rows_read,
        )
        for rows, copied in batches:
            vectors_nH = copied.read().numpy()
            # The size is known only now: two halves give vectors of another size than hidden_size.
            if not len(vectors_WH):
                vectors_WH = np.empty((len(windows.ranges), vectors_nH.shape[1]), np.float32)
            vectors_WH[rows] = vectors_nH
        return vectors_WH

    def _batches(
        self,
        windows: TokenWindows,
        reduce: Callable[..., Result],
        columns: Sequence[Column],
        *,
        batch_tokens: int | None,
        progress: ProgressOption,
        rows_read: RowsRead | None,
    ) -> Iterator[tuple[Integers, Result]]:
        """Batch by batch: its rows, and their results."""
        hidden_states = self.hidden_states()

        def compute(rows: Integers) -> Result:
            batch = windows.batch(rows, self.device)
            values = [values_of(column, rows) for column in columns]
            with torch.inference_mode():
                # Files of other libraries compute all tokens.
                rows_R = rows_read(batch, *values) if rows_read and isinstance(self.model, Model) else None
                hidden_TH = read_states(hidden_states, batch, rows_R)
                return reduce(hidden_TH, batch, *values)

        num_tokens = 0
        num_done = 0
        total = len(windows.ranges)
        with showing(progress, total) as show:
            batches = self._fitting(compute, windows.lengths, batch_tokens=batch_tokens)
            # A GPU computes one batch while the next is prepared: its results are read only then.
            for rows, reduced in delayed(batches, by=int(self.device.type == "cuda")):
                yield rows, reduced

                num_done += len(rows)
                show(num_done, total)
                # Without this the free heap of a long job fragments and grows by about 9 MB a batch (docs/LOG.md).
                num_tokens += int(windows.lengths[rows].sum())
                if num_tokens >= TOKENS_PER_RELEASE:
                    release_memory()
                    num_tokens = 0

    def _fitting(
        self,
        compute: Callable[[Integers], Result],
        lengths_W: Integers,
        *,
        batch_tokens: int | None,
    ) -> Iterator[tuple[Integers, Result]]:
        """Batches of windows, from short to long, with their results. Where the memory of the device is too small for a
        batch, this and later ones have half as many tokens; InputError if a single window does not fit."""
        budget = batch_tokens or self.batch_tokens
        order = lengths_W.argsort(kind="stable")
        ends = lengths_W[order].cumsum()

        start = 0
        while start < len(order):
            end = batch_end(ends, start, budget)
            rows = order[start:end]
            reduced: Result | None = None
            with suppress(torch.OutOfMemoryError):
                reduced = compute(rows)
            # Only now is the memory of the batch that failed free.
            if reduced is None:
                budget = self._halve(len(rows), int(lengths_W[rows].sum()))
                continue

            yield rows, reduced
            start = end

    def _halve(self, num_windows: int, tokens: int) -> int:
        """Half the tokens of a batch that did not fit, which later calls use too."""
        if num_windows == 1:
            raise InputError(
                f"out of memory on {self.device} with a single window of {tokens:,} tokens; choose a smaller window, "
                "or device='cpu'"
            )
        self.batch_tokens = tokens // 2
        logger.warning(f"out of memory on {self.device} with a batch of {tokens:,} tokens: now {self.batch_tokens:,}")
        return self.batch_tokens

    def hidden_states(self) -> Callable[[Batch], Tensor]:
        """The function batch -> last hidden states [T, H]; weights are prepacked again if they have changed."""
        if not isinstance(self.model, Model):
            return self.model
        # In float32 the function is the model itself, which sees changes of its weights.
        weights = weight_versions(self.model) if self.dtype is not torch.float32 else []
        if self._prepacked is None or self._prepacked[0] != weights:
            self._prepacked = (weights, prepack(self.model))
        return self._prepacked[1]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_prepacked": None}


def values_of(column: Column, rows: Integers) -> Any:
    """The values of a column for these rows, as an array or a list."""
    if isinstance(column, np.ndarray):
        return column[rows]
    return [column[row] for row in rows.tolist()]


def weight_versions(model: Model) -> WeightVersions:
    """Address and version of each weight. Writes through `data` or in inference mode are not counted by torch."""
    versions: WeightVersions = []
    for weight in model.parameters():
        version = 0 if weight.is_inference() else weight._version
        versions.append((weight.data_ptr(), version))
    return versions
