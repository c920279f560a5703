"""Base class of Predictor: its backend, and what it knows of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Self

from bothways.errors import InputError
from bothways.inference.reading import ReadOptions, check_pairs
from bothways.tasks.windows import WindowPolicy
from bothways.tokenizer.tokenizer import Encoding, Tokenizer

if TYPE_CHECKING:
    import torch

    from bothways.checkpoint.contents import Checkpoint
    from bothways.checkpoint.description import Description
    from bothways.inference.backends.backend import Backend
    from bothways.inference.backends.encoder import EncoderBackend
    from bothways.inference.runner import BatchRunner
    from bothways.model.model import Model

LABELS_SHOWN = 5  # in repr(Predictor)


class PredictorBase:
    """A model behind the methods of Predictor."""

    def __init__(
        self,
        model: Checkpoint | Backend,
        *,
        dtype: str = "auto",
        device: str = "auto",
        source: Path | None = None,
        window: int | None = None,
        batch_tokens: int | None = None,
    ) -> None:
        """model: a checkpoint, to which the options belong (backends/encoder.py); or a backend, which has its own."""
        from bothways.inference.backends.backend import Backend
        from bothways.inference.backends.encoder import EncoderBackend

        self.backend: Backend
        if isinstance(model, Backend):
            self.backend = model
        else:
            self.backend = EncoderBackend(
                model, dtype=dtype, device=device, source=source, window=window, batch_tokens=batch_tokens
            )
        self._warned = False
        self._adapters: dict[str, Self] = {}

    @classmethod
    def with_adapters(cls, backend: Backend, directories: Mapping[str, Path]) -> Self:
        """A model with adapters, by name, which share its weights."""
        model = cls(backend)
        model._adapters = {name: cls(backend.encoder.with_adapter(place)) for name, place in directories.items()}
        return model

    @property
    def adapters(self) -> tuple[str, ...]:
        """The names of the adapters that the model was loaded with."""
        return tuple(self._adapters)

    def adapter(self, name: str) -> Self:
        """The model with one of its adapters, which has its own head and labels: model.adapter("topics").classify(...).

        InputError for an unknown name."""
        if name not in self._adapters:
            known = ", ".join(self._adapters) or "none; load them: bothways.load(MODEL, adapter={NAME: DIRECTORY})"
            raise InputError(f"no adapter is named {name!r:.60} (adapters: {known})")
        return self._adapters[name]

    @property
    def task(self) -> str:
        """The name of the method for the model's head, to be called as getattr(model, model.task)(texts)."""
        return self.backend.task

    @property
    def description(self) -> Description:
        """Labels, pooling and metadata of the model."""
        return self.backend.description

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the classes or tags, in the order of the head's outputs; none for other heads."""
        return self.description.labels

    @property
    def device(self) -> torch.device:
        return self.backend.device

    @property
    def dtype(self) -> torch.dtype:
        """The number format in which the model computes."""
        return self.backend.dtype

    def __repr__(self) -> str:
        labels = f", labels={_shortened(self.labels)}" if self.labels else ""
        dtype = str(self.dtype).removeprefix("torch.")
        return (
            f"{type(self).__name__}(task={self.task!r}, model_type={self.description.model_type!r}{labels}, "
            f"dtype={dtype!r}, device={str(self.device)!r})"
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model into a directory, an encoder with float32 weights in the layout that transformers loads."""
        self.backend.save(Path(path))

    def _need_head(self, head: str, purpose: str, remedy: str) -> None:
        if head not in self.backend.heads:
            heads = ", ".join(self.backend.heads) or "none"
            raise InputError(f"the model has no head for {purpose} (heads: {heads}); {remedy}")

    # --- encoders; InputError, saying what the model is, for others ---------------------------------------------------

    @property
    def encoder(self) -> EncoderBackend:
        """The backend, if it computes hidden states of tokens."""
        return self.backend.encoder

    @property
    def checkpoint(self) -> Checkpoint:
        return self.encoder.checkpoint

    @property
    def module(self) -> Model:
        """The model on its device, in its number format."""
        return self.encoder.model

    @property
    def runner(self) -> BatchRunner:
        return self.encoder.runner

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the checkpoint. InputError if the checkpoint has none."""
        return self.backend.tokenizer

    @property
    def window_policy(self) -> WindowPolicy:
        """How long texts are split by default."""
        return self.encoder.window_policy

    def split(
        self, encodings: Sequence[Encoding], options: ReadOptions | None = None, names: Sequence[str] | None = None
    ) -> list[list[Encoding]]:
        """The windows of each encoding. RowsError if texts are too long for long="error"."""
        return self.encoder.split(encodings, options, names)

    @property
    def truncated_texts(self) -> int:
        """Number of texts that were truncated so far."""
        return self.backend.truncated_texts

    @truncated_texts.setter
    def truncated_texts(self, number: int) -> None:
        self.backend.truncated_texts = number

    # --- pairs --------------------------------------------------------------------------------------------------------

    @property
    def reads_pairs(self) -> bool | None:
        """Whether the model was fine-tuned on pairs; None if unknown."""
        reads_pairs: bool | None = self.description.metadata.get("reads_pairs")
        return reads_pairs

    def ignores_pairs(self, text_column: str | None, pair_column: str | None) -> bool:
        """Whether to drop second texts: the model was fine-tuned on single texts, and only their column is named."""
        return self.reads_pairs is False and text_column is not None and pair_column is None

    def check_pairs(self, has_pairs: bool, source: object) -> None:
        """InputError if a source has pairs and the model was fine-tuned on single texts, or the reverse."""
        check_pairs(self.description, has_pairs, source)


def _shortened(labels: Sequence[str]) -> str:
    more = f", ... {len(labels) - LABELS_SHOWN:,} more" if len(labels) > LABELS_SHOWN else ""
    return f"[{', '.join(map(repr, labels[:LABELS_SHOWN]))}{more}]"
