"""Base class of Predictor: the loaded checkpoint, reading options, windows and saving."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from os import PathLike
from pathlib import Path
from threading import Lock
from typing import Any, TypedDict, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bothways.batch import Batch
from bothways.checkpoint import checkpoint
from bothways.checkpoint.checkpoint import Checkpoint
from bothways.device import choose_device, choose_dtype
from bothways.errors import InputError, MissingFile
from bothways.inference.runner import BATCH_TOKENS, BatchRunner, Progress
from bothways.inference.task import TaskName, task_from_heads
from bothways.inference.windows import WINDOW, Long, WindowPolicy, is_truncated
from bothways.inputs import whole_number
from bothways.log import muted
from bothways.model.model import Model
from bothways.model.parameters import move_model
from bothways.tokenizer.tokenizer import Encoding, Tokenizer

Result = TypeVar("Result")
Rows = NDArray[np.float32]
Texts = Iterable[str]  # a list, an iterator, a NumPy array, a pandas or Arrow column
LABELS_SHOWN = 5  # in repr(Predictor)


class ReadOptions(TypedDict, total=False):
    """Keyword options of every method that reads texts.

    long: "windows" splits long texts into overlapping windows, "truncate" truncates them (with a message, and counted
    in `truncated_texts`), "error" raises an error. window: maximum tokens of a window, special tokens included.
    overlap: text tokens shared by neighbouring windows. Defaults: as in fine-tuning, else 512 and 128. batch_tokens:
    maximum tokens per batch (default 4096). progress: a function called after each batch with the number of windows
    done and in total, where equal windows count once.
    """

    long: Long | None
    window: int | None
    overlap: int | None
    batch_tokens: int | None
    progress: Progress | None


class PredictorBase:
    """A loaded checkpoint on a device, in a number format, with defaults for reading texts."""

    def __init__(
        self,
        loaded: Checkpoint,
        *,
        dtype: str = "auto",
        device: str = "auto",
        source: Path | None = None,
        window: int | None = None,
        batch_tokens: int = BATCH_TOKENS,
    ) -> None:
        """source: directory of the checkpoint, if the loaded weights are not float32. window: the default window size;
        None means as in fine-tuning, else 512."""
        self.device = choose_device(device)
        self.dtype = choose_dtype(dtype, self.device)
        self.checkpoint, self.source = loaded, source
        # A model in another number format is a copy, so that the exact weights can be saved.
        model = loaded.model if source or self.dtype is torch.float32 else deepcopy(loaded.model)
        move_model(model, self.device, self.dtype)
        self.module: Model = model.eval()
        batch_tokens = whole_number("batch_tokens", batch_tokens, 1)
        self.runner = BatchRunner(self.module, device=self.device, dtype=self.dtype, batch_tokens=batch_tokens)
        self.window_policy = _window_policy(loaded.settings, self.module.config.max_position_embeddings, window)
        self._set_up()

    def _set_up(self) -> None:
        self.truncated_texts = 0
        self._lock = Lock()  # around the count above
        self._warned = False

    @property
    def task(self) -> TaskName:
        """The name of the method for the model's head, to be called as getattr(model, model.task)(texts)."""
        return task_from_heads(self.checkpoint)

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the classes or tags, in the order of the head's outputs; none for other heads."""
        return self.checkpoint.labels

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the checkpoint. InputError if the checkpoint has none."""
        return self.checkpoint.need_tokenizer()

    def __repr__(self) -> str:
        labels = f", labels={_shortened(self.labels)}" if self.labels else ""
        dtype = str(self.dtype).removeprefix("torch.")
        return (
            f"{type(self).__name__}(task={self.task!r}, model_type={self.checkpoint.model_type!r}{labels}, "
            f"dtype={dtype!r}, device={str(self.device)!r})"
        )

    # --- pairs --------------------------------------------------------------------------------------------------------

    @property
    def reads_pairs(self) -> bool | None:
        """Whether the model was fine-tuned on pairs; None if unknown."""
        reads_pairs: bool | None = self.checkpoint.metadata.get("reads_pairs")
        return reads_pairs

    def ignores_pairs(self, text_column: str | None, pair_column: str | None) -> bool:
        """Whether to drop second texts: the model was fine-tuned on single texts, and only their column is named."""
        return self.reads_pairs is False and text_column is not None and pair_column is None

    def check_pairs(self, has_pairs: bool, source: object) -> None:
        """InputError if a source has pairs and the model was fine-tuned on single texts, or the reverse."""
        if self.reads_pairs not in (has_pairs, None):
            given, expected = ("pairs", "single texts") if has_pairs else ("single texts", "pairs")
            option = "--text-column" if has_pairs else "--pair-column"
            raise InputError(
                f"{source}: has {given}, but the model was fine-tuned on {expected}; name the columns to read with "
                f"{option}"
            )

    # --- saving -------------------------------------------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Write the checkpoint with float32 weights, in the layout that transformers loads.

        If the model is in another number format, its weights are rounded, so the exact ones are read again from their
        source. InputError if the source is missing, or if either copy has changed.
        """
        if self.dtype is torch.float32:
            checkpoint.save(self.checkpoint, path)
            return
        try:
            with muted():
                exact = checkpoint.load(self.source).model if self.source else self.checkpoint.model
        except MissingFile as error:
            raise MissingFile(f"the float32 weights to be saved are gone ({error})") from None
        if not _is_rounded(self.module, exact):
            dtype = str(self.dtype).removeprefix("torch.")
            raise InputError(
                f"the {dtype} weights are not those of {self.source or 'the checkpoint'} rounded, so one of them has "
                "changed; load the model with dtype='float32' to change or save it"
            )
        checkpoint.save(replace(self.checkpoint, model=exact), path)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state, _lock=Lock())

    # --- reading ------------------------------------------------------------------------------------------------------

    def _need_head(self, head: str, purpose: str, remedy: str) -> None:
        if head not in self.module.num_outputs:
            heads = ", ".join(self.module.num_outputs) or "none"
            raise InputError(f"the model has no head for {purpose} (heads: {heads}); {remedy}")

    def split(
        self, encodings: Sequence[Encoding], options: ReadOptions | None = None, names: Sequence[str] | None = None
    ) -> list[list[Encoding]]:
        """The windows of each encoding. RowsError if texts are too long for long="error"."""
        options = options or {}
        _check_names(options)
        policy = self.window_policy.changed(
            size=options.get("window"), overlap=options.get("overlap"), long=options.get("long")
        )
        windows = policy.split(encodings, names)
        if policy.long == "truncate":
            with self._lock:
                self.truncated_texts += sum(map(is_truncated, windows))
        return windows

    def _encode(self, texts: Sequence[str], pairs: Sequence[str] | None, options: ReadOptions) -> list[list[Encoding]]:
        """Each text (or pair) as windows."""
        return self.split(self.tokenizer.encode_many(texts, pairs), options)

    def _run(
        self, encodings: Sequence[Encoding], options: ReadOptions, reduce: Callable[..., Iterable[Result]],
        *columns: Sequence[Hashable],
    ) -> list[Result]:  # fmt: skip
        return self.runner.run(encodings, reduce, *columns, **_run_options(options))

    def _run_vectors(
        self, encodings: Sequence[Encoding], options: ReadOptions, reduce: Callable[..., Iterable[Tensor]],
        *columns: Sequence[Hashable],
    ) -> Tensor:  # fmt: skip
        return self.runner.run_vectors(encodings, reduce, *columns, **_run_options(options))

    def _run_rows(
        self, windows: Sequence[Sequence[Encoding]], options: ReadOptions, outputs: Callable[[Tensor], Tensor]
    ) -> list[list[Rows]]:
        """The result of `outputs` for the hidden states of each window of each text: float32, one row per token."""

        def split(hidden_TH: Tensor, batch: Batch) -> list[Tensor]:
            return list(outputs(hidden_TH).float().cpu().split(batch.lengths.tolist()))

        rows = iter(self._run([part for parts in windows for part in parts], options, split))
        return [[next(rows).numpy() for _ in parts] for parts in windows]


def _window_policy(settings: Mapping[str, Any], max_length: int, window: int | None) -> WindowPolicy:
    """The window policy recorded by fine-tuning; or windows of `window` tokens with the default overlap."""
    size, overlap = settings.get("window") or WINDOW, settings.get("overlap")
    policy = WindowPolicy(
        size=size,
        overlap=size // 4 if overlap is None else overlap,
        long="truncate" if settings.get("long") == "truncate" else "windows",
        max_length=max_length,
    )
    changed = policy.changed(size=window)
    if window and window > max_length:
        raise InputError(f"window ({window}) must be at most {max_length}, which is what the model reads")
    return changed


def _check_names(options: Mapping[str, Any]) -> None:
    """TypeError for an unknown option, as Python raises for any unknown keyword."""
    if unknown := [name for name in options if name not in ReadOptions.__annotations__]:
        known = ", ".join(ReadOptions.__annotations__)
        raise TypeError(f"got an unexpected keyword argument {unknown[0]!r}; reading options are {known}")


def _run_options(options: ReadOptions) -> dict[str, Any]:
    batch_tokens = options.get("batch_tokens")
    if batch_tokens is not None:
        batch_tokens = whole_number("batch_tokens", batch_tokens, 1)
    return {"batch_tokens": batch_tokens, "progress": options.get("progress")}


def _is_rounded(module: Model, exact: Model) -> bool:
    """Whether a model has the weights of another one, each rounded to its own number format."""
    rounded, stored = module.state_dict(), exact.state_dict()
    return rounded.keys() == stored.keys() and all(
        stored[name].to(value).equal(value) for name, value in rounded.items()
    )


def _shortened(labels: Sequence[str]) -> str:
    more = f", ... {len(labels) - LABELS_SHOWN:,} more" if len(labels) > LABELS_SHOWN else ""
    return f"[{', '.join(map(repr, labels[:LABELS_SHOWN]))}{more}]"
