"""Backend: the interface between a Predictor and the model that computes.

A backend is one file in this folder and, if directories are to be loaded with it, one entry in BACKENDS. It overrides
the methods that it supports; all others raise an error that names the kind of model.

Letters: N texts, C outputs of a head, H size of a vector.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bothways.base.errors import InputError
from bothways.inference.reading import ReadOptions, Rows
from bothways.tasks import task_from_heads
from bothways.tasks.pooling import Pooling
from bothways.text.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from bothways.inference.backends.tokens import TokenBackend
    from bothways.model.checkpoint.description import Description

MAX_SCORES = 1 << 21  # scores of texts that are in memory at once


class Backend(ABC):
    """A model, on a device ("cpu", "cuda:0"), in a number format ("float32", "bfloat16"), computed by a library
    ("core", "numpy", "torch").

    description: its labels, metadata and pooling.
    heads: number of outputs of each head by name (model/heads.py).
    truncated_texts: number of texts that were truncated so far.
    why_chosen: why this library computes and not the core, if it was chosen for the user.
    """

    description: Description
    heads: Mapping[str, int]
    device: str
    dtype: str
    library: str = "numpy"
    truncated_texts: int = 0
    why_chosen: str = ""

    @property
    def task(self) -> str:
        """The name of the method of Predictor for the model's head."""
        return task_from_heads(self.heads, self.description)

    @property
    def computed_by(self) -> str:
        """What computes, such as "numpy (cpu, float32); the core does not: BOTHWAYS_CORE is 0"."""
        name = f"{self.library} ({self.device}, {self.dtype})"
        return f"{name}; {self.why_chosen}" if self.why_chosen else name

    @abstractmethod
    def refusal(self) -> InputError:
        """The error for an unsupported use. It names the kind of model, the supported uses and an alternative."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Facts by name, as `info` shows them."""

    @abstractmethod
    def save(self, target: Path) -> None:
        """Write the model into a directory."""

    def prepare_to_fork(self) -> None:  # noqa: B027
        """Compute caches that forked processes share, without starting threads: none would be in the child."""

    def text_scores(
        self, head: str, texts: Sequence[str], pairs: Sequence[str] | None, options: ReadOptions
    ) -> Iterator[Rows]:
        """Scores float32 [n, C] of a head for n texts (or pairs) at a time, at most MAX_SCORES in one part."""
        return (scores_nC for scores_nC, _ in self.scored_vectors(head, texts, pairs, options))

    def scored_vectors(
        self, head: str, texts: Sequence[str], pairs: Sequence[str] | None, options: ReadOptions
    ) -> Iterator[tuple[Rows, Rows]]:
        """As `text_scores`, each part with the input of the head: a vector per text (or pair), float32."""
        raise self.refusal()

    def text_vectors(self, texts: Sequence[str], pooling: Pooling, options: ReadOptions) -> Rows:
        """A vector per text, float32 [N, H], not normalized, in a new array."""
        raise self.refusal()

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer. InputError if the model has none."""
        return self.encoder.tokenizer

    @property
    def encoder(self) -> TokenBackend:
        """The backend itself, if it computes hidden states of tokens."""
        raise self.refusal()
