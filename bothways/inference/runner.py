"""Batched inference: sort by length, run batches of a token budget, restore the order.

Letters: N encodings, n of them in a batch; T tokens of a batch; H hidden size.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bothways.base.device import release_memory
from bothways.base.errors import InputError
from bothways.base.log import logger
from bothways.inference.reading import ProgressOption, first_equal_rows, showing
from bothways.model.config import EncoderConfig
from bothways.model.model import Model
from bothways.model.prepacked import prepack, prepack_for_one_text
from bothways.model.rows import read_states
from bothways.text.batch import Batch
from bothways.text.batching import delayed, sort_by_length, token_batches
from bothways.text.tokenizer.tokenizer import Encoding

Result = TypeVar("Result")
RowsRead = Callable[..., Tensor | None]
WeightVersions = list[tuple[int, int]]
BATCH_TOKENS = {"cuda": 1 << 16}  # of a batch on a GPU
CPU_BATCH_TOKENS = 4096  # enough to keep a processor busy, small enough for its caches
SHORT_TEXT = 128  # tokens of a text that is computed by itself in float32
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
    """Runs a model over any number of encodings. Equal encodings are computed once and share their result."""

    def __init__(
        self, model: TokenModel, *, device: torch.device, dtype: torch.dtype, batch_tokens: int | None = None
    ) -> None:
        self.model = model
        self.device = device
        self.dtype = dtype
        self.batch_tokens = batch_tokens or BATCH_TOKENS.get(device.type, CPU_BATCH_TOKENS)
        # The functions, with the versions of the weights that they were made from.
        self._prepacked: tuple[WeightVersions, Callable[[Batch], Tensor]] | None = None
        self._for_one_text: tuple[WeightVersions, Callable[[Batch], Tensor] | None] | None = None

    def run(
        self,
        encodings: Sequence[Encoding],
        reduce: Callable[..., Iterable[Result]],
        *columns: Sequence[Hashable],
        batch_tokens: int | None = None,
        progress: ProgressOption = None,
        rows_read: RowsRead | None = None,
    ) -> list[Result]:
        """The results of reduce(hidden_TH, batch, ...) for each encoding, in the encodings' order.

        columns: further values per encoding; reduce receives the values of its batch.
        batch_tokens: maximum tokens of a batch; None: of this runner.
        progress: see ReadOptions.
        rows_read: from a batch and the columns to the tokens whose states `reduce` reads, by which it indexes
            (`HiddenRows`); None: all.
        """
        first_rows = first_equal_rows(encodings, columns)
        results: dict[int, Result] = {}
        batches = self._batches(
            encodings,
            reduce,
            columns,
            rows=sorted(set(first_rows)),
            batch_tokens=batch_tokens,
            progress=progress,
            rows_read=rows_read,
        )
        for rows, reduced in batches:
            results.update(zip(rows, reduced, strict=True))
        return [results[row] for row in first_rows]

    def run_vectors(
        self,
        encodings: Sequence[Encoding],
        reduce: Callable[..., Iterable[Tensor]],
        *columns: Sequence[Hashable],
        batch_tokens: int | None = None,
        progress: ProgressOption = None,
        rows_read: RowsRead | None = None,
    ) -> NDArray[np.float32]:
        """As `run`, for results that are vectors of one size: float32 [N, H], without a second copy in memory."""
        first_rows = first_equal_rows(encodings, columns)
        distinct = sorted(set(first_rows))
        batches = self._batches(
            encodings,
            reduce,
            columns,
            rows=distinct,
            batch_tokens=batch_tokens,
            progress=progress,
            rows_read=rows_read,
        )
        vectors_NH = np.empty((0, self.model.config.hidden_size), np.float32)
        for rows, reduced in batches:
            stacked_nH = reduced if isinstance(reduced, Tensor) else torch.stack([*reduced])
            # The size is known only now: two halves give vectors of another size than hidden_size.
            if not len(vectors_NH):
                vectors_NH = np.empty((len(encodings), stacked_nH.shape[1]), np.float32)
            vectors_NH[rows] = stacked_nH.float().cpu().numpy()
        return vectors_NH if len(distinct) == len(encodings) else vectors_NH[first_rows]

    def _batches(
        self,
        encodings: Sequence[Encoding],
        reduce: Callable[..., Iterable[Result]],
        columns: Sequence[Sequence[Hashable]],
        *,
        rows: Sequence[int],
        batch_tokens: int | None,
        progress: ProgressOption,
        rows_read: RowsRead | None,
    ) -> Iterator[tuple[list[int], Iterable[Result]]]:
        """Batch by batch: its rows, and their results."""
        lengths = [*map(len, encodings)]
        hidden_states = self.hidden_states()

        def compute(batch_rows: Sequence[int]) -> Iterable[Result]:
            batch = Batch.from_encodings([encodings[row] for row in batch_rows]).to(self.device)
            values = [[column[row] for row in batch_rows] for column in columns]
            with torch.inference_mode():
                is_short = len(batch_rows) == 1 and batch.num_tokens <= SHORT_TEXT
                for_one_text = self.for_one_text() if is_short else None
                # Files of other libraries compute all tokens.
                rows_R = rows_read(batch, *values) if rows_read and isinstance(self.model, Model) else None
                hidden_TH = read_states(for_one_text or hidden_states, batch, rows_R)
                return reduce(hidden_TH, batch, *values)

        num_tokens = 0
        num_done = 0
        with showing(progress, len(rows)) as show:
            order = sort_by_length(rows, lengths)
            batches = self._fitting(compute, order, lengths, batch_tokens=batch_tokens)
            # A GPU computes one batch while the next is prepared: its results are read only then.
            for batch_rows, reduced in delayed(batches, by=int(self.device.type == "cuda")):
                yield batch_rows, reduced

                num_done += len(batch_rows)
                show(num_done, len(rows))
                # Without this the free heap of a long job fragments and grows by about 9 MB a batch (docs/LOG.md).
                num_tokens += sum(lengths[row] for row in batch_rows)
                if num_tokens >= TOKENS_PER_RELEASE:
                    release_memory()
                    num_tokens = 0

    def _fitting(
        self,
        compute: Callable[[Sequence[int]], Iterable[Result]],
        order: Sequence[int],
        lengths: Sequence[int],
        *,
        batch_tokens: int | None,
    ) -> Iterator[tuple[list[int], Iterable[Result]]]:
        """Batches of consecutive rows with their results. Where the memory of the device is too small for a batch, this
        and later ones have half as many tokens; InputError if a single row does not fit."""
        budget = batch_tokens or self.batch_tokens
        start = 0
        while start < len(order):
            for rows in token_batches(order[start:], lengths, budget):
                reduced: Iterable[Result] | None = None
                with suppress(torch.OutOfMemoryError):
                    reduced = compute(rows)
                if reduced is None:
                    budget = self._halve(rows, lengths)
                    break

                yield rows, reduced
                start += len(rows)

    def _halve(self, rows: Sequence[int], lengths: Sequence[int]) -> int:
        """Half the tokens of a batch that did not fit, which later calls use too."""
        tokens = sum(lengths[row] for row in rows)
        if len(rows) == 1:
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

    def for_one_text(self) -> Callable[[Batch], Tensor] | None:
        """The same for a batch of one short text, if there is a faster way."""
        if not isinstance(self.model, Model) or self.dtype is not torch.float32 or self.device.type != "cpu":
            return None
        weights = weight_versions(self.model)
        if self._for_one_text is None or self._for_one_text[0] != weights:
            self._for_one_text = (weights, prepack_for_one_text(self.model))
        return self._for_one_text[1]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_prepacked": None, "_for_one_text": None}


def weight_versions(model: Model) -> WeightVersions:
    """Address and version of each weight. Writes through `data` or in inference mode are not counted by torch."""
    versions: WeightVersions = []
    for weight in model.parameters():
        version = 0 if weight.is_inference() else weight._version
        versions.append((weight.data_ptr(), version))
    return versions
