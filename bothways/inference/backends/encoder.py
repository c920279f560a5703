"""Encoders: hidden states of tokens, heads on them, and vectors and scores of texts of any length.

Letters: N texts, W windows of them, T tokens, S tokens of one text, L layers, H hidden size, C outputs of a head.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bothways.device import choose_device, choose_dtype, single_thread, without_garbage_collection
from bothways.errors import InputError, MissingFile, format_count
from bothways.inference.backends.backend import MAX_SCORES, Backend
from bothways.inference.reading import ReadOptions, Rows, check_names, run_options, trained_window_policy
from bothways.inference.runner import BatchRunner, TokenModel, shown
from bothways.log import muted
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.checkpoint.directory import Directory
from bothways.model.checkpoint.sentence_transformers import vector_notes
from bothways.model.config import encodes_separately
from bothways.model.int8 import is_int8
from bothways.model.model import Model
from bothways.model.parameters import move_model
from bothways.tasks import task_from_heads
from bothways.tasks.pooling import Pooling, pool_rows, pool_windows, pooling_name
from bothways.tasks.windows import is_truncated, own_rows, whole_number
from bothways.text.batch import Batch
from bothways.text.batching import chunked, prefetch
from bothways.text.tokenizer.tokenizer import Encoding, Tokenizer
from bothways.text.tokenizer.worker_processes import num_cores

Words = tuple[list[float], list[int]]  # probabilities and ids of the most probable words, best first
ATTENTION_TOKENS = 512  # of a text at most: the weights of 12 layers with 12 heads then take 151 MB
TEXTS_PER_PART = 16_000  # texts that are sorted by length together, if more are tokenized meanwhile
TEXTS_AHEAD = {"cuda": 20_000}  # number of texts from which processes tokenize ahead of the device


class EncoderBackend(Backend):
    """A checkpoint on a device, in a number format, with defaults for reading texts. Threads may share it."""

    def __init__(
        self,
        loaded: Checkpoint,
        *,
        module: TokenModel | None = None,
        dtype: str = "auto",
        device: str = "auto",
        source: Path | None = None,
        adapter: Path | None = None,
        window: int | None = None,
        batch_tokens: int | None = None,
    ) -> None:
        """module: computes in place of the checkpoint's own model, such as an ONNX session. source: directory of the
        checkpoint, and adapter: of the adapter that it was loaded with, if the loaded weights are not float32. window:
        the default window size; None means as in fine-tuning, else 512."""
        self.device = choose_device(device)
        self.dtype = choose_dtype(dtype, self.device)
        self.checkpoint, self.description, self.source, self.adapter = loaded, loaded, source, adapter
        if module is None:
            # A model in another number format is a copy, so that the exact weights can be saved.
            model = loaded.model if source or self.dtype is torch.float32 else deepcopy(loaded.model)
            move_model(model, self.device, self.dtype)
            module = model.eval()
        self.module, self.heads = module, module.num_outputs
        if batch_tokens is not None:
            batch_tokens = whole_number("batch_tokens", batch_tokens, 1)
        self.runner = BatchRunner(module, device=self.device, dtype=self.dtype, batch_tokens=batch_tokens)
        self.window_policy = trained_window_policy(loaded.settings, module.config.max_position_embeddings, window)
        self.truncated_texts = 0
        self._lock = Lock()  # around the count above

    @classmethod
    def open(
        cls,
        directory: Directory,
        *,
        dtype: str = "auto",
        device: str = "auto",
        adapter: Path | None = None,
        **options: Any,
    ) -> "EncoderBackend":
        """Load a checkpoint, perhaps with an adapter. options: window and batch_tokens."""
        number_format = choose_dtype(dtype, choose_device(device))
        # Rounded weights cannot be saved, so `save` reads the exact ones again from here.
        source = None if number_format is torch.float32 else directory.place.resolve()
        with single_thread():
            if adapter is None:
                loaded = checkpoint.read(directory, number_format)
            else:
                loaded = checkpoint.load(directory.place, dtype=number_format, adapter=adapter)
            backend = cls(loaded, dtype=dtype, device=device, source=source, adapter=adapter, **options)
        if backend.task == "embed":
            for note in vector_notes(directory, loaded.model.config.max_position_embeddings):
                directory.warn(note)
        return backend

    def with_adapter(self, directory: Path) -> "EncoderBackend":
        """This model with an adapter. Its weights are shared, not copied."""
        from bothways.model.checkpoint.adapter import attach
        from bothways.model.checkpoint.formats.adapter import AdapterFiles

        source = Directory(directory)
        dtype, tokens = str(self.dtype).removeprefix("torch."), self.runner.batch_tokens
        attached = attach(AdapterFiles.open(source), self.checkpoint)
        return EncoderBackend(attached, dtype=dtype, device=str(self.device), source=source.path, batch_tokens=tokens)

    @property
    def encoder(self) -> "EncoderBackend":
        return self

    @property
    def task(self) -> str:
        return task_from_heads(self.heads, self.description, fills=self.module.config.direction == "both")

    @property
    def tokenizer(self) -> Tokenizer:
        return self.checkpoint.need_tokenizer()

    @property
    def model(self) -> Model:
        """The module, if it is a Model. InputError for a file of another library."""
        if not isinstance(self.module, Model):
            raise InputError(
                f"{type(self.module).__name__} computes outputs only; load the checkpoint it was made from"
            )
        return self.module

    def refusal(self) -> InputError:
        return InputError(f"a model of type {self.description.model_type} does not support this")

    def facts(self) -> dict[str, Any]:
        loaded = self.checkpoint
        config, model = loaded.model.config, loaded.model
        heads = format_count(config.num_attention_heads, "head")
        size = f"{format_count(config.num_hidden_layers, 'layer')} x {config.hidden_size}, {heads}"
        facts: dict[str, Any] = {
            "model": f"{loaded.model_type}, {size}, up to {config.max_position_embeddings} tokens",
            "parameters": sum(value.numel() for value in model.state_dict().values()),
            "vocabulary": config.vocab_size,
            "heads": ", ".join(model.num_outputs) or "none",
        }
        if isinstance(adapter := loaded.metadata.get("adapter"), Mapping):
            facts["adapter"] = adapter.get("kind")
        if is_int8(model):
            facts["number format"] = "int8, in most linear layers"
        return facts

    # --- saving -------------------------------------------------------------------------------------------------------

    def save(self, target: Path) -> None:
        """Write the checkpoint with float32 weights, in the layout that transformers loads.

        If the model is in another number format, its weights are rounded, so the exact ones are read again from their
        source. InputError if the source is missing, or if either copy has changed.
        """
        if self.dtype is torch.float32 or self.checkpoint.model.adapter is not None:
            checkpoint.save(self.checkpoint, target)
            return
        try:
            with muted():
                exact = self.checkpoint.model
                if self.source:
                    exact = checkpoint.load(self.source, adapter=self.adapter).model
        except MissingFile as error:
            raise MissingFile(f"the float32 weights to be saved are gone ({error})") from None
        if not _is_rounded(self.model, exact):
            dtype = str(self.dtype).removeprefix("torch.")
            raise InputError(
                f"the {dtype} weights are not those of {self.source or 'the checkpoint'} rounded, so one of them has "
                "changed; load the model with dtype='float32' to change or save it"
            )
        checkpoint.save(replace(self.checkpoint, model=exact), target)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state, _lock=Lock())

    # --- windows ------------------------------------------------------------------------------------------------------

    def split(
        self, encodings: Sequence[Encoding], options: ReadOptions | None = None, names: Sequence[str] | None = None
    ) -> list[list[Encoding]]:
        """The windows of each encoding. RowsError if texts are too long for long="error"."""
        options = options or {}
        check_names(options)
        policy = self.window_policy.changed(
            size=options.get("window"), overlap=options.get("overlap"), long=options.get("long")
        )
        windows = policy.split(encodings, names)
        if policy.long == "truncate":
            with self._lock:
                self.truncated_texts += sum(map(is_truncated, windows))
        return windows

    def encode(self, texts: Sequence[str], pairs: Sequence[str] | None, options: ReadOptions) -> list[list[Encoding]]:
        """Each text (or pair) as windows."""
        with without_garbage_collection():
            return self.split(self.tokenizer.encode_many(texts, pairs), options)

    # --- outputs ------------------------------------------------------------------------------------------------------

    def run_vectors(
        self,
        encodings: Sequence[Encoding],
        options: ReadOptions,
        reduce: Callable[..., Iterable[Tensor]],
        *columns: Sequence[Hashable],
    ) -> Rows:
        """The vectors reduce(hidden_TH, batch, ...) of each encoding (runner.py)."""
        return self.runner.run_vectors(encodings, reduce, *columns, **run_options(options))

    def run_rows(
        self, windows: Sequence[Sequence[Encoding]], options: ReadOptions, outputs: Callable[[Tensor], Tensor]
    ) -> list[list[Rows]]:
        """The result of `outputs` for the hidden states of each window of each text: float32, one row per token."""

        def split(hidden_TH: Tensor, batch: Batch) -> list[Tensor]:
            return list(outputs(hidden_TH).float().cpu().split(batch.lengths.tolist()))

        flat = [part for parts in windows for part in parts]
        rows = iter(self.runner.run(flat, split, **run_options(options)))
        return [[next(rows).numpy() for _ in parts] for parts in windows]

    def attention_weights(self, encoding: Encoding) -> NDArray[np.float32]:
        """The attention weights of every layer and head for one text (or pair), float32 [L, N, S, S] with N heads.

        InputError if the text is too long, or if the attention is not one softmax over all tokens."""
        from bothways.model.states import attention_weights

        config = self.module.config
        if len(encoding) > (limit := min(ATTENTION_TOKENS, config.max_position_embeddings)):
            raise InputError(f"the text has {len(encoding)} tokens; attention is for at most {limit}, shorten it")
        if config.sparse_attention is not None:
            raise InputError(
                f"the attention of a model of type {self.description.model_type} is sparse, without a weight for every "
                "pair of tokens; use a model of another family, such as bert"
            )
        with torch.inference_mode():
            weights_LNSS = attention_weights(self.model, Batch.from_encodings([encoding]).to(self.device))
        return weights_LNSS.cpu().numpy()

    def token_scores(self, head: str, windows: Sequence[Sequence[Encoding]], options: ReadOptions) -> list[list[Rows]]:
        """The scores of a head for each token of each window of each text."""
        return self.run_rows(windows, options, partial(self.module.token_scores, head))

    def masked_words(
        self, windows: Sequence[Encoding], rows: Sequence[tuple[int, ...]], top: int, options: ReadOptions
    ) -> list[list[Words]]:
        """The `top` most probable words at these rows of each window."""
        num_words = len(self.tokenizer)

        def guess(hidden_TH: Tensor, batch: Batch, rows_of_windows: list[tuple[int, ...]]) -> list[list[Words]]:
            guesses = []
            for hidden_SH, rows in zip(hidden_TH.split(batch.lengths.tolist()), rows_of_windows, strict=True):
                of_window = []
                for row in rows:
                    scores_V = self.module.word_scores(hidden_SH[row][None])[0].float().softmax(-1).cpu()
                    values, ids = scores_V[:num_words].topk(min(top, num_words))
                    of_window.append((values.tolist(), ids.tolist()))
                guesses.append(of_window)
            return guesses

        return self.runner.run(windows, guess, rows, **run_options(options))

    def text_vectors(self, texts: Sequence[str], pooling: Pooling, options: ReadOptions) -> Rows:
        kind = pooling_name(pooling, self.description.pooling)
        if kind == "cls" and self.module.config.direction != "both":
            raise InputError("pooling 'cls' sees no other token in a one-directional model; use 'mean' or 'max'")
        names_rows = self.window_policy.changed(long=options.get("long")).long == "error"
        if len(texts) < TEXTS_AHEAD.get(self.device.type, math.inf) or names_rows:
            return self._pooled_vectors(self.encode(texts, None, options), kind, options)
        progress: ReadOptions = {**options, "progress": None}
        parts: list[Rows] = []
        with shown(options.get("progress"), len(texts)) as show, without_garbage_collection():
            ahead = chain.from_iterable(self.tokenizer.encode_ahead(texts, num_cores()))
            for encodings in prefetch(chunked(ahead, TEXTS_PER_PART)):
                parts.append(self._pooled_vectors(self.split(encodings, options), kind, progress))
                show(sum(map(len, parts)), len(texts))
        return np.concatenate(parts)

    def _pooled_vectors(self, windows: list[list[Encoding]], kind: str, options: ReadOptions) -> Rows:
        flat = [part for parts in windows for part in parts]
        bounds = [bound for parts in windows for bound in own_rows(parts)]
        pooled = self.run_vectors(flat, options, pool_rows(kind), bounds)
        sizes_W = np.array([last - first for first, last in bounds], np.int64)
        return pool_windows(kind, pooled, _text_rows(windows), len(windows), sizes_W)

    def scored_vectors(
        self, head: str, texts: Sequence[str], pairs: Sequence[str] | None, options: ReadOptions
    ) -> Iterator[tuple[Rows, Rows]]:
        """Without texts, `pairs` may be None for every model."""
        num_outputs = self.heads[head]
        if not texts and not pairs:
            yield np.zeros((0, num_outputs), np.float32), np.zeros((0, self.module.config.hidden_size), np.float32)
            return
        is_bi_encoder = head == "classes" and encodes_separately(self.module.config)
        inputs = _compared_texts(texts, pairs) if is_bi_encoder else [(texts, pairs)]
        windows = [parts for firsts, seconds in inputs for parts in self.encode(firsts, seconds, options)]
        flat = [part for parts in windows for part in parts]
        states_WH = self.run_vectors(flat, options, self.module.text_states)
        states_NH: Rows = pool_windows("mean", states_WH, _text_rows(windows), len(windows))
        if is_bi_encoder:
            states_NH = states_NH.reshape(2, -1, states_NH.shape[1]).swapaxes(0, 1)  # [N, 2, H]
        step = max(1, MAX_SCORES // num_outputs)
        for start in range(0, len(states_NH), step):
            states_nH = states_NH[start : start + step]
            with torch.inference_mode():
                moved_nH = torch.from_numpy(states_nH).to(self.device, self.dtype)
                scores_nC = self.module.text_scores(head, moved_nH).float().cpu().numpy()
            yield scores_nC, states_nH.reshape(len(states_nH), -1)


def _compared_texts(
    texts: Sequence[str], pairs: Sequence[str] | None
) -> list[tuple[Sequence[str], Sequence[str] | None]]:
    """Both texts of each pair as single texts. InputError unless there is a second text for each."""
    if pairs is None:
        raise InputError("the model compares pairs of texts; give pairs too")
    if len(texts) != len(pairs):
        counts = f"{format_count(len(texts), 'text')} but {format_count(len(pairs), 'pair')}"
        raise InputError(f"{counts}: give one pair per text")
    return [(texts, None), (pairs, None)]


def _text_rows(windows: Sequence[Sequence[Encoding]]) -> NDArray[np.int64]:
    """The text of each window, [W]."""
    return np.repeat(np.arange(len(windows)), [*map(len, windows)])


def _is_rounded(module: Model, exact: Model) -> bool:
    """Whether a model has the weights of another one, each rounded to its own number format."""
    rounded, stored = module.state_dict(), exact.state_dict()
    return rounded.keys() == stored.keys() and all(
        stored[name].to(value).equal(value) for name, value in rounded.items()
    )
