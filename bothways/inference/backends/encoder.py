"""Encoders: hidden states of tokens, heads on them, and vectors and scores of texts of any length.

Letters: N texts, W windows of them, T tokens, S tokens of one text, L layers, H hidden size, C outputs of a head.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bothways.base.device import choose_device, choose_dtype, copy_to, num_cores, single_thread
from bothways.base.errors import InputError, MissingFile
from bothways.base.log import muted
from bothways.inference.backends.tokens import TokenBackend
from bothways.inference.reading import ReadOptions, Rows, distinct_rows, expanded, run_options, showing
from bothways.inference.runner import BatchRunner, Column, RowsRead, TokenModel
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.checkpoint.directory import Directory, read_unchanged
from bothways.model.checkpoint.sentence_transformers import vector_notes
from bothways.model.int8 import is_int8
from bothways.model.model import Model
from bothways.model.parameters import move_model
from bothways.model.rows import pooled_rows, text_rows
from bothways.tasks.pooling import Pooling, pool_rows
from bothways.tasks.windows import whole_number
from bothways.text.batch import Batch
from bothways.text.batching import chunked, prefetch
from bothways.text.token_windows import Integers, TokenWindows, distinct
from bothways.text.tokenizer.encoding import Encoding
from bothways.text.tokenizer.token_arrays import join_arrays
from bothways.text.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from bothways.model.statement_head import StatementHead
    from bothways.model.statements import StatementModel
    from bothways.tasks.fill.decoding import Words
    from bothways.text.statements import StatementBatch

ATTENTION_TOKENS = 512  # of a text at most: the weights of 12 layers with 12 heads then take 151 MB
BLOCKS_PER_PART = 8  # blocks of texts that are sorted by length together, if more are tokenized meanwhile
TEXTS_AHEAD = {"cuda": 20_000}  # number of texts from which processes tokenize ahead of the device

Reader = Callable[[Directory, torch.dtype], Checkpoint]


class EncoderBackend(TokenBackend):
    """A checkpoint on a device, in a number format, with defaults for reading texts. Threads may share it."""

    library = "torch"

    def __init__(
        self,
        loaded: Checkpoint,
        *,
        module: TokenModel | None = None,
        dtype: str = "auto",
        device: str = "auto",
        source: Path | None = None,
        read: Reader = checkpoint.read,
        window: int | None = None,
        batch_tokens: int | None = None,
    ) -> None:
        """A backend for a checkpoint that has been loaded.

        module: computes in place of the checkpoint's own model, such as an ONNX session.
        dtype, device: as in `bothways.load`.
        source: directory of the checkpoint, if the loaded weights are not float32.
        read: reads the checkpoint in that directory.
        window: the default window size; None means as in fine-tuning, else 512.
        batch_tokens: maximum tokens of a batch; None: see runner.py.
        """
        self.torch_device = choose_device(device)
        self.torch_dtype = choose_dtype(dtype, self.torch_device)
        self.device = str(self.torch_device)
        self.dtype = str(self.torch_dtype).removeprefix("torch.")

        self.checkpoint = loaded
        self.description = loaded
        self.source = source
        self.read = read
        if module is None:
            # A model in another number format is a copy, so that the exact weights can be saved.
            model = loaded.model if source or self.torch_dtype is torch.float32 else deepcopy(loaded.model)
            move_model(model, self.torch_device, self.torch_dtype)
            module = model.eval()
        self.module = module
        self.heads = module.num_outputs
        self.config = module.config

        if batch_tokens is not None:
            batch_tokens = whole_number("batch_tokens", batch_tokens, 1)
        self.runner = BatchRunner(
            module,
            device=self.torch_device,
            dtype=self.torch_dtype,
            batch_tokens=batch_tokens,
        )
        self.statements: StatementModel | None = None  # built when the first ones are read
        self.set_windows(window)

    @classmethod
    def open(
        cls,
        directory: Directory,
        *,
        dtype: str = "auto",
        device: str = "auto",
        read: Reader = checkpoint.read,
        **options: Any,
    ) -> EncoderBackend:
        """Load a checkpoint. read: reads it, perhaps with a change. options: window and batch_tokens."""
        number_format = choose_dtype(dtype, choose_device(device))
        # Rounded weights cannot be saved, so `save` reads the exact ones again from here.
        source = None if number_format is torch.float32 else directory.place.resolve()
        # So that a process can be forked after the model was loaded.
        with single_thread():
            loaded = read(directory, number_format)
            backend = cls(loaded, dtype=dtype, device=device, source=source, read=read, **options)

        if backend.task == "embed":
            for note in vector_notes(directory, loaded.model.config.max_position_embeddings):
                directory.warn(note)
        return backend

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

    def facts(self) -> dict[str, Any]:
        model = self.checkpoint.model
        facts = self.size_facts(sum(value.numel() for value in model.state_dict().values()))
        adapter = self.description.metadata.get("adapter")
        if isinstance(adapter, Mapping):
            facts["adapter"] = adapter.get("kind")
        if is_int8(model):
            facts["number format"] = "int8, in most linear layers"
        return facts

    def prepare_to_fork(self) -> None:
        with single_thread():
            self.runner.hidden_states()

    # --- saving -------------------------------------------------------------------------------------------------------

    def save(self, target: Path) -> None:
        """Write the checkpoint with float32 weights, in the layout that transformers loads.

        If the model is in another number format, its weights are rounded, so the exact ones are read again from their
        source. InputError if the source is missing, or if either copy has changed.
        """
        if self.torch_dtype is torch.float32 or self.checkpoint.model.adapter is not None:
            checkpoint.save(self.checkpoint, target)
            return
        exact = self.checkpoint.model
        try:
            with muted():
                if self.source:
                    exact = read_unchanged(self.source, lambda directory: self.read(directory, torch.float32)).model
        except MissingFile as error:
            raise MissingFile(f"the float32 weights to be saved are gone ({error})") from None

        if not _is_rounded(self.model, exact):
            raise InputError(
                f"the {self.dtype} weights are not those of {self.source or 'the checkpoint'} rounded, so one of them "
                "has changed; load the model with dtype='float32' to change or save it"
            )
        checkpoint.save(replace(self.checkpoint, model=exact), target)

    # --- outputs ------------------------------------------------------------------------------------------------------

    def run_vectors(
        self,
        windows: TokenWindows,
        options: ReadOptions,
        reduce: Callable[..., Tensor],
        *columns: Column,
        rows_read: RowsRead | None = None,
    ) -> Rows:
        """The vectors reduce(hidden_TH, batch, ...) of each window (runner.py)."""
        return self.runner.run_vectors(windows, reduce, *columns, **run_options(options), rows_read=rows_read)

    def run_rows(
        self, windows: Sequence[Sequence[Encoding]], options: ReadOptions, outputs: Callable[[Tensor], Tensor]
    ) -> list[list[Rows]]:
        """The result of `outputs` for the hidden states of each window of each text: float32, one row per token."""

        def split(hidden_TH: Tensor, batch: Batch) -> list[Tensor]:
            return list(outputs(hidden_TH).float().cpu().split(batch.lengths.tolist()))

        flat = [part for parts in windows for part in parts]
        distinct, numbers = distinct_rows(flat)
        arrays = TokenWindows.from_encodings([flat[row] for row in distinct])
        rows = self.runner.run(arrays, split, **run_options(options))
        number = iter(numbers)
        return [[rows[next(number)].numpy() for _ in parts] for parts in windows]

    def attention_weights(self, encoding: Encoding) -> NDArray[np.float32]:
        from bothways.model.states import attention_weights

        config = self.config
        limit = min(ATTENTION_TOKENS, config.max_position_embeddings)
        if len(encoding) > limit:
            raise InputError(f"the text has {len(encoding)} tokens; attention is for at most {limit}, shorten it")
        if config.sparse_attention is not None:
            raise InputError(
                f"the attention of a model of type {self.description.model_type} is sparse, without a weight for every "
                "pair of tokens; use a model of another family, such as bert"
            )

        batch = Batch.from_encodings([encoding]).to(self.torch_device)
        with torch.inference_mode():
            weights_LNSS = attention_weights(self.model, batch)
        return weights_LNSS.cpu().numpy()

    def hidden_rows(self, windows: Sequence[Sequence[Encoding]], options: ReadOptions) -> list[list[Rows]]:
        return self.run_rows(windows, options, lambda hidden_TH: hidden_TH)

    def token_scores(self, head: str, windows: Sequence[Sequence[Encoding]], options: ReadOptions) -> list[list[Rows]]:
        return self.run_rows(windows, options, partial(self.module.token_scores, head))

    def masked_words(
        self, windows: Sequence[Encoding], rows: Sequence[tuple[int, ...]], top: int, options: ReadOptions
    ) -> list[list[Words]]:
        num_words = len(self.tokenizer)

        def guess_words(hidden_H: Tensor) -> Words:
            scores_V = self.module.word_scores(hidden_H[None])[0]
            probabilities_V = scores_V.float().softmax(-1).cpu()
            values, ids = probabilities_V[:num_words].topk(min(top, num_words))
            return values.tolist(), ids.tolist()

        def guess(hidden_TH: Tensor, batch: Batch, rows_of_windows: list[tuple[int, ...]]) -> list[list[Words]]:
            words = [guess_words(hidden_H) for hidden_H in hidden_TH[positions_in_batch(batch, rows_of_windows)]]
            ends = np.cumsum([*map(len, rows_of_windows)])
            return [words[end - len(rows) : end] for end, rows in zip(ends, rows_of_windows, strict=True)]

        distinct, numbers = distinct_rows(windows, rows)
        words = self.runner.run(
            TokenWindows.from_encodings([windows[row] for row in distinct]),
            guess,
            [rows[row] for row in distinct],
            **run_options(options),
            rows_read=positions_in_batch,
        )
        return [words[number] for number in numbers]

    def text_vectors(self, texts: Sequence[str], pooling: Pooling, options: ReadOptions) -> Rows:
        kind = self.pooling_kind(pooling)
        is_few = len(texts) < TEXTS_AHEAD.get(self.torch_device.type, math.inf)
        # An error names all texts that are too long, so they are all read first.
        names_rows = self.window_policy.changed(long=options.get("long")).long == "error"
        if is_few or names_rows:
            return super().text_vectors(texts, pooling, options)
        return self._text_vectors_ahead(texts, kind, options)

    def _text_vectors_ahead(self, texts: Sequence[str], kind: str, options: ReadOptions) -> Rows:
        """A vector per text; processes tokenize the next texts while the device computes."""
        part_options: ReadOptions = {**options, "progress": None}
        policy = self.policy_for(options)
        different, rows = distinct(texts)
        times_N = np.bincount(rows)

        vectors: list[Rows] = []
        num_done = 0
        with showing(options.get("progress"), len(different)) as show:
            blocks = self.tokenizer.encode_ahead(different, num_cores())
            for part in prefetch(map(join_arrays, chunked(blocks, BLOCKS_PER_PART))):
                windows = policy.divide(TokenWindows.of_arrays(part, self.tokenizer))
                vectors.append(self.pooled_texts(windows, kind, part_options))
                times_n = times_N[num_done : num_done + len(windows)]
                self.count_truncated(int(times_n[windows.are_truncated].sum()))
                num_done += len(windows)
                show(num_done, len(different))
        return expanded(np.concatenate(vectors), rows)

    def pooled_windows(self, windows: TokenWindows, kind: str, rows_W2: Integers, options: ReadOptions) -> Rows:
        def read(batch: Batch, rows_n2: Integers) -> Tensor | None:
            return pooled_rows(kind, batch)

        return self.run_vectors(windows, options, pool_rows(kind), rows_W2, rows_read=read)

    def window_states(self, windows: TokenWindows, options: ReadOptions) -> Rows:
        return self.run_vectors(windows, options, self.module.text_states, rows_read=partial(text_rows, self.config))

    def head_scores(self, head: str, states_nH: Rows) -> Rows:
        with torch.inference_mode():
            moved_nH = torch.from_numpy(states_nH).to(self.torch_device, self.torch_dtype)
            scores_nC: Rows = self.module.text_scores(head, moved_nH).float().cpu().numpy()
        return scores_nC

    def read_statements(self, batch: StatementBatch, head: StatementHead) -> Rows:
        from bothways.model.statements import StatementModel, states_of

        if self.statements is None:
            self.statements = StatementModel.of_head(self.config, head).to(self.torch_device).eval()
        states_TH = states_of(self.model.encoder, batch, self.statements)
        rows: Rows = states_TH.float().cpu().numpy()
        return rows

    def encoder_parameters(self) -> Iterator[tuple[str, tuple[int, ...], Iterable[NDArray[Any]]]]:
        for name, value in sorted(self.model.encoder.state_dict().items()):
            rounded = value.detach().cpu().to(torch.bfloat16).contiguous()
            yield name, tuple(rounded.shape), (rounded.flatten().view(torch.uint8).numpy(),)


def positions_in_batch(batch: Batch, rows_of_windows: Sequence[Sequence[int]]) -> Tensor:
    """The index in T of each of these rows of the windows of a batch."""
    starts_N = (batch.lengths.cumsum(0) - batch.lengths).tolist()
    positions = [start + row for start, rows in zip(starts_N, rows_of_windows, strict=True) for row in rows]
    return copy_to(torch.tensor(positions, dtype=torch.long), batch.input_ids.device)


def _is_rounded(module: Model, exact: Model) -> bool:
    """Whether a model has the weights of another one, each rounded to its own number format."""
    rounded = module.state_dict()
    stored = exact.state_dict()
    if rounded.keys() != stored.keys():
        return False
    return all(stored[name].to(value).equal(value) for name, value in rounded.items())
