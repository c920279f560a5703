"""What a Predictor has whatever its task: a model with labels, tokenizer and adapters, and streams of results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from bothways.base.errors import InputError, flag
from bothways.base.log import logger
from bothways.inference.reading import ReadOptions, Texts, check_pairs
from bothways.tasks import TASKS
from bothways.tasks.tag.decoding import Tagset
from bothways.tasks.windows import WindowPolicy, whole_number
from bothways.text.tokenizer.encoding import Encoding
from bothways.text.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from bothways.inference.backends.backend import Backend
    from bothways.inference.backends.encoder import EncoderBackend
    from bothways.inference.backends.tokens import TokenBackend
    from bothways.model.checkpoint.contents import Checkpoint
    from bothways.model.checkpoint.description import Description
    from bothways.model.model import Model

Result = TypeVar("Result")
STREAM_ROWS = 1024  # texts that `stream` reads ahead and computes together
LABELS_SHOWN = 5  # in repr(Predictor)


class BasePredictor:
    """A loaded model without the methods of its tasks, which `Predictor` adds."""

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

        self.backend: Backend
        if isinstance(model, Backend):
            self.backend = model
        else:
            from bothways.inference.backends.encoder import EncoderBackend

            self.backend = EncoderBackend(
                model,
                dtype=dtype,
                device=device,
                source=source,
                window=window,
                batch_tokens=batch_tokens,
            )

        self._warned = False
        self._adapters: dict[str, Self] = {}

    @classmethod
    def with_adapters(cls, backend: Backend, directories: Mapping[str, Path]) -> Self:
        """A model with adapters, by name, which share its weights."""
        from bothways.inference.adapters import with_adapter

        model = cls(backend)
        base = model.torch_encoder
        model._adapters = {name: cls(with_adapter(base, directory)) for name, directory in directories.items()}
        return model

    @property
    def adapters(self) -> tuple[str, ...]:
        """The names of the adapters that the model was loaded with."""
        return tuple(self._adapters)

    def adapter(self, name: str) -> Self:
        """The model with one of its adapters, which has its own head and labels: model.adapter("topics").classify(...).

        InputError for an unknown name."""
        if name not in self._adapters:
            names = ", ".join(self._adapters) or "none; load them: bothways.load(MODEL, adapter={NAME: DIRECTORY})"
            raise InputError(f"no adapter is named {name!r:.60} (adapters: {names})")
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
    def tagset(self) -> Tagset:
        """The labels of the tagger and their scheme."""
        return Tagset.from_names(self.labels, self.description.metadata.get("scheme"))

    @property
    def device(self) -> str:
        """Where the model computes, such as "cpu" or "cuda:0"."""
        return self.backend.device

    @property
    def dtype(self) -> str:
        """The number format in which the model computes, such as "float32" or "bfloat16"."""
        return self.backend.dtype

    def __repr__(self) -> str:
        labels = f", labels={_shortened(self.labels)}" if self.labels else ""
        return (
            f"{type(self).__name__}(task={self.task!r}, model_type={self.description.model_type!r}{labels}, "
            f"dtype={self.dtype!r}, device={self.device!r})"
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model into a directory, an encoder with float32 weights in the layout that transformers loads."""
        self.backend.save(Path(path))

    # --- encoders; InputError, saying what the model is, for others ---------------------------------------------------

    @property
    def encoder(self) -> TokenBackend:
        """The backend, if it computes hidden states of tokens."""
        return self.backend.encoder

    @property
    def torch_encoder(self) -> EncoderBackend:
        """The backend, if it computes them by torch. InputError if the backend is numpy's.

        If it is the core's, torch loads the model now, and computes from now on: whoever has the module may change its
        weights."""
        from bothways.inference.backends.core import CoreBackend

        encoder = self.encoder
        if isinstance(encoder, CoreBackend):
            self.backend = encoder = encoder.by_torch

        from bothways.inference.backends.encoder import EncoderBackend

        if not isinstance(encoder, EncoderBackend):
            raise InputError("the model was loaded with backend='numpy', which only computes; load it with 'torch'")
        return encoder

    @property
    def checkpoint(self) -> Checkpoint:
        return self.torch_encoder.checkpoint

    @property
    def module(self) -> Model:
        """The model on its device, in its number format, as a torch module."""
        return self.torch_encoder.model

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

    def warn_of_lost_decoder(self) -> None:
        """Warn once that the decoder of pre-training (DeBERTa's EMD) is missing."""
        if self.description.settings.get("objective") == "enhanced" and not self._warned:
            logger.warning(
                f"the enhanced mask decoder ({flag('objective', 'enhanced')}) is not saved with the model; words are "
                "guessed without it"
            )
            self._warned = True

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

    # --- heads --------------------------------------------------------------------------------------------------------

    def _need_head(self, task: str, purpose: str, remedy: str = "") -> None:
        """InputError if the model lacks the head of a task. remedy: for a task that is not fine-tuned."""
        if TASKS[task].head not in self.backend.heads:
            heads = ", ".join(self.backend.heads) or "none"
            remedy = remedy or f"fine-tune one: bothways finetune {task}"
            raise InputError(f"the model has no head for {purpose} (heads: {heads}); {remedy}")

    # --- streams ------------------------------------------------------------------------------------------------------

    def stream(
        self,
        method: Callable[..., Iterable[Result]],
        texts: Texts,
        pairs: Texts | None = None,
        *,
        rows: int = STREAM_ROWS,
        **options: Any,
    ) -> Iterator[Result]:
        """Yield the results of a method for texts from an iterator that may never end, one by one, in order.

        method: a method of this model, such as `model.embed`; options are passed to it.
        texts: an iterator, or a list.
        pairs: second texts of pairs, for methods that read them.
        rows: number of texts that are read from the iterator and computed together; with 1, each result is available as
        soon as its text arrives.

            for vector in model.stream(model.embed, lines, pooling="cls"): ...
            for answers in model.stream(model.answer, questions, passages, top=3): ...
        """
        rows = whole_number("rows", rows, 1)
        for name, values in (("texts", texts), ("pairs", pairs)):
            if isinstance(values, str):
                raise InputError(f"{name} is one string; give an iterator of {name}")
        firsts = iter(texts)
        seconds = [] if pairs is None else [iter(pairs)]

        def results() -> Iterator[Result]:
            while block := [*islice(firsts, rows)]:
                pair_blocks = [[*islice(second, len(block))] for second in seconds]
                yield from method(block, *pair_blocks, **options)

        return results()


def _shortened(labels: Sequence[str]) -> str:
    """'["cat", "dog", ... 72 more]'"""
    names = [repr(label) for label in labels[:LABELS_SHOWN]]
    if len(labels) > LABELS_SHOWN:
        names.append(f"... {len(labels) - LABELS_SHOWN:,} more")
    return f"[{', '.join(names)}]"
