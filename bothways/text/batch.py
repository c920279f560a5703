"""A ragged batch: the tokens of all texts in one row, without padding or attention mask.

N texts of s_1 ... s_N tokens make T = s_1 + ... + s_N tokens. Letters: N texts, T tokens, M masked tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from bothways.text.tokenizer.tokenizer import Encoding

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """The encoder's input. Integer tensors [T]; lengths [N] stay on the CPU.

    masked_positions [M], masked_labels [M]: indices into T and the ids to predict; masked_draws [M]: uniform random
    numbers in [0, 1) for sampling replacements. labels: the task's own; soft_labels: a teacher's outputs for them.
    text_of_window [N]: index of the text that each entry is a window of, if long texts are split.
    global_tokens [T]: True for tokens with global attention (Longformer); None: chosen by the task.
    """

    input_ids: Tensor
    segment_ids: Tensor
    position_ids: Tensor
    lengths: Tensor
    masked_positions: Tensor | None = None
    masked_labels: Tensor | None = None
    masked_draws: Tensor | None = None
    labels: Tensor | None = None
    soft_labels: Tensor | None = None
    text_of_window: Tensor | None = None
    global_tokens: Tensor | None = None

    @staticmethod
    def from_encodings(encodings: Sequence[Encoding]) -> Batch:
        """The tokens of these encodings, one text after another, in their order."""
        return Batch.from_arrays(*token_arrays(encodings))

    @staticmethod
    def from_arrays(ids: np.ndarray, segments: np.ndarray, lengths: np.ndarray) -> Batch:
        """A batch of ids [T], segments [T] and lengths [N]. Positions count from 0 in each text."""
        import torch

        starts = lengths.cumsum() - lengths
        positions = np.arange(len(ids)) - np.repeat(starts, lengths)
        return Batch(*(torch.from_numpy(array.astype(np.int64)) for array in (ids, segments, positions, lengths)))

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def num_tokens(self) -> int:
        return len(self.input_ids)

    @property
    def first_tokens(self) -> Tensor:
        """Index in T of each text's first token, [CLS]. [N]"""
        from bothways.base.device import copy_to

        return copy_to(self.lengths.cumsum(0) - self.lengths, self.input_ids.device)

    @property
    def last_tokens(self) -> Tensor:
        """Index in T of each text's last token. [N]"""
        from bothways.base.device import copy_to

        return copy_to(self.lengths.cumsum(0) - 1, self.input_ids.device)

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on a device; lengths stay on the CPU, where kernels are launched from."""
        import torch

        from bothways.base.device import copy_to

        place, moved = torch.device(device), dict[str, Any]()
        for name in (field.name for field in fields(self) if field.name != "lengths"):
            if (value := getattr(self, name)) is not None:
                moved[name] = value.to(place) if isinstance(value, Batch) else copy_to(value, place)
        return replace(self, **moved)


def token_arrays(encodings: Sequence[Encoding]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ids [T], segments [T] and lengths [N] of these encodings, one text after another, in their order."""
    lengths = np.fromiter(map(len, encodings), np.int64, len(encodings))
    ids = np.fromiter(chain.from_iterable(encoding.ids for encoding in encodings), np.int64, lengths.sum())
    segments = np.zeros_like(ids)
    ends = lengths.cumsum()
    for end, encoding in zip(ends, encodings, strict=True):
        if len(encoding.ranges) == 2:
            source, first, last = encoding.ranges[1]
            segments[end - last + first - 1 : end] = source.tokenizer.backend.second_segment_id
    return ids, segments, lengths
