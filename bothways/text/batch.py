"""A ragged batch: the tokens of all texts in one row, without padding or attention mask.

N texts of s_1 ... s_N tokens make T = s_1 + ... + s_N tokens. Letters: N texts, T tokens, M masked tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from bothways.text.tokenizer.encoding import Encoding

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """The encoder's input. Integer tensors [T]; lengths [N] stay on the CPU.

    input_ids, segment_ids, position_ids [T]: of each token; positions count from 0 in each text.
    lengths [N]: tokens of each text.
    masked_positions [M], masked_labels [M]: indices into T and the ids to predict.
    masked_draws [M]: uniform random numbers in [0, 1) for sampling replacements.
    labels: the task's own.
    soft_labels: a teacher's outputs for the labels.
    text_of_window [N]: index of the text that each entry is a window of, if long texts are split.
    global_tokens [T]: True for tokens with global attention (Longformer); None: chosen by the task.
    candidates [K]: the words that masked words are told from, ascending; None: all words.
    candidate_corrections [K]: taken off the score of each candidate.
    candidate_labels [M]: the labels as indices into the candidates.
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
    candidates: Tensor | None = None
    candidate_corrections: Tensor | None = None
    candidate_labels: Tensor | None = None

    @staticmethod
    def from_encodings(encodings: Sequence[Encoding]) -> Batch:
        """The tokens of these encodings, one text after another, in their order."""
        ids, segments, lengths = token_arrays(encodings)
        return Batch.from_arrays(ids, segments, lengths)

    @staticmethod
    def from_arrays(ids: np.ndarray, segments: np.ndarray, lengths: np.ndarray) -> Batch:
        """A batch of ids [T], segments [T] and lengths [N]. Positions count from 0 in each text."""
        import torch

        starts = lengths.cumsum() - lengths
        positions = np.arange(len(ids)) - np.repeat(starts, lengths)
        return Batch(
            input_ids=torch.from_numpy(ids.astype(np.int64)),
            segment_ids=torch.from_numpy(segments.astype(np.int64)),
            position_ids=torch.from_numpy(positions.astype(np.int64)),
            lengths=torch.from_numpy(lengths.astype(np.int64)),
        )

    @staticmethod
    def from_tokens(
        ids_T: np.ndarray,
        lengths_N: np.ndarray,
        second_N: np.ndarray | None = None,
        second_segment: int = 0,
        *,
        device: torch.device | str,
    ) -> Batch:
        """A batch on a device, which computes positions and segments, so that only the ids travel to it.

        ids_T: int32, special tokens included.
        lengths_N: int64, tokens of each text or pair.
        second_N: how many of these tokens are of the second text and its [SEP]; None: none are.
        second_segment: segment of these.
        """
        import torch

        from bothways.base.device import copy_to

        target = torch.device(device)
        num_tokens = len(ids_T)
        lengths = torch.from_numpy(lengths_N)
        sizes_N = copy_to(lengths, target)
        starts_N = sizes_N.cumsum(0) - sizes_N

        # With the number of tokens given, the processor need not wait for a GPU to sum the lengths.
        starts_T = torch.repeat_interleave(starts_N, sizes_N, output_size=num_tokens)
        positions_T = torch.arange(num_tokens, device=target) - starts_T
        ids = copy_to(torch.from_numpy(ids_T), target).long()

        segments_T = torch.zeros_like(ids)
        if second_N is not None:
            first_N = sizes_N - copy_to(torch.from_numpy(second_N), target)
            first_T = torch.repeat_interleave(first_N, sizes_N, output_size=num_tokens)
            segments_T.masked_fill_(positions_T >= first_T, second_segment)
        return Batch(
            input_ids=ids,
            segment_ids=segments_T,
            position_ids=positions_T,
            lengths=lengths,
        )

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

        target = torch.device(device)
        moved: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None or field.name == "lengths":
                continue
            if isinstance(value, Batch):  # labels may be a batch of their own
                moved[field.name] = value.to(target)
            else:
                moved[field.name] = copy_to(value, target)
        return replace(self, **moved)


def token_arrays(encodings: Sequence[Encoding]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ids [T], segments [T] and lengths [N] of these encodings, one text after another, in their order."""
    lengths = np.fromiter(map(len, encodings), np.int64, len(encodings))
    ids = np.fromiter(chain.from_iterable(encoding.ids for encoding in encodings), np.int64, lengths.sum())

    # Only the second text of a pair and its [SEP] differ from 0.
    segments = np.zeros_like(ids)
    for end, encoding in zip(lengths.cumsum(), encodings, strict=True):
        if len(encoding.ranges) == 2:
            text, first, last = encoding.ranges[1]
            size = last - first + 1
            segments[end - size : end] = text.tokenizer.backend.second_segment_id

    return ids, segments, lengths
