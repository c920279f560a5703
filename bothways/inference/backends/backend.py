"""What a Predictor computes with.

A backend is one file in this folder and, if directories are to be loaded with it, one entry in BACKENDS. It overrides
the methods of what it can compute; all others raise an error that says what kind of model it is.

Letters: N texts, C outputs of a head, H size of a vector.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bothways.checkpoint.description import Description
from bothways.errors import InputError
from bothways.inference.pooling import Pooling
from bothways.inference.reading import ReadOptions
from bothways.inference.task_names import TaskName, task_from_heads
from bothways.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from bothways.inference.backends.encoder import EncoderBackend

MAX_SCORES = 1 << 21  # scores of texts that are in memory at once


class Backend(ABC):
    """A model, on a device, in a number format.

    description: its labels, metadata and pooling. heads: number of outputs of each head by name (model/heads.py).
    truncated_texts: number of texts that were truncated so far.
    """

    description: Description
    heads: Mapping[str, int]
    device: torch.device
    dtype: torch.dtype
    truncated_texts: int = 0

    @property
    def task(self) -> TaskName:
        """The name of the method of Predictor for the model's head."""
        return task_from_heads(self.heads, self.description)

    @abstractmethod
    def refusal(self) -> InputError:
        """The error of a use that the backend does not support: what it is, what it can do, and the way out."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Facts by name, as `info` shows them."""

    @abstractmethod
    def save(self, target: Path) -> None:
        """Write the model into a directory."""

    def text_scores(
        self, head: str, texts: Sequence[str], pairs: Sequence[str] | None, options: ReadOptions
    ) -> Iterator[Tensor]:
        """Scores float32 [n, C] of a head for n texts (or pairs) at a time, at most MAX_SCORES in one part."""
        raise self.refusal()

    def scored_vectors(
        self, head: str, texts: Sequence[str], pairs: Sequence[str] | None, options: ReadOptions
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """As `text_scores`, each part with what the head sees of its texts: a vector per text (or pair), float32."""
        raise self.refusal()

    def text_vectors(self, texts: Sequence[str], pooling: Pooling, options: ReadOptions) -> Tensor:
        """A vector per text, float32 [N, H], not normalized."""
        raise self.refusal()

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer. InputError if the model has none."""
        return self.encoder.tokenizer

    @property
    def encoder(self) -> "EncoderBackend":
        """The backend itself, if it computes hidden states of tokens."""
        raise self.refusal()
