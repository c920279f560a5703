"""The encoder in numpy, for a machine without torch: reads a checkpoint of BERT's layout, computes batches in threads.

forward.py has the model, parameters.py and word_table.py read its weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from bothways.base.device import num_threads, single_blas_thread
from bothways.base.errors import InputError, needs_package
from bothways.core.layout import is_linear
from bothways.inference.backends.forward import Array, Bert, Heads, Ids
from bothways.inference.backends.parameters import read_parameters
from bothways.inference.backends.shapes import parameter_shapes
from bothways.inference.backends.tokens import TokenBackend
from bothways.inference.backends.word_table import WordTable
from bothways.inference.reading import ReadOptions, Rows, distinct_rows, run_options, showing
from bothways.model.checkpoint.directory import Directory
from bothways.model.checkpoint.formats.hugging_face import TABLE
from bothways.model.checkpoint.model_files import ModelFiles
from bothways.model.checkpoint.sentence_transformers import vector_notes
from bothways.tasks.arrays import top_k
from bothways.text.batching import token_batches
from bothways.text.token_windows import Integers, TokenWindows
from bothways.text.tokenizer.encoding import Encoding
from bothways.text.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from bothways.model.statement_head import StatementHead
    from bothways.tasks.fill.decoding import Words
    from bothways.text.statements import StatementBatch

Result = TypeVar("Result")
RowsRead = Callable[..., NDArray[np.int64]]  # (lengths, values of further columns ...) -> ascending indices in T
Reduce = Callable[..., Iterable[Result]]  # (hidden states [T, H], lengths, values of further columns ...)
BATCH_TOKENS = 1024  # whose numbers stay in the caches of a core


class NumpyBackend(TokenBackend):
    """A checkpoint of BERT's layout on the CPU, in float32."""

    device = "cpu"
    dtype = "float32"
    # Whose products are so small that threads gain little, and wait long for each other on a busy machine.
    few_tokens = 64

    def __init__(self, files: ModelFiles, window: int | None = None, batch_tokens: int | None = None) -> None:
        self.description = files.description
        self.config = files.config
        self.heads = files.outputs
        self.shapes = parameter_shapes(self.config, self.heads, pooler=files.has_pooler)
        self.stored_tokenizer = files.read_tokenizer()
        self.words = self.read_words(files)
        self.bert = self.read_model(files)
        self.batch_tokens = run_options({"batch_tokens": batch_tokens})["batch_tokens"] or BATCH_TOKENS
        self.set_windows(window)

    def read_words(self, files: ModelFiles) -> WordTable:
        return WordTable(files, self.shapes[TABLE])

    def read_model(self, files: ModelFiles) -> Heads:
        """What computes scores, and in this class hidden states too."""
        return Bert(self.config, read_parameters(files, self.shapes), self.words)

    @classmethod
    def open(
        cls,
        directory: Directory,
        *,
        dtype: str = "auto",
        device: str = "auto",
        **options: Any,
    ) -> NumpyBackend:
        """Load a checkpoint. options: window and batch_tokens. InputError for all that needs torch."""
        if dtype not in ("auto", "float32", "fp32"):
            raise needs_torch(f"dtype {dtype!r:.40}")
        if device not in ("auto", "cpu"):
            raise needs_torch(f"device {device!r:.40}")
        return cls.of(cls.read_files(directory), **options)

    @classmethod
    def read_files(cls, directory: Directory) -> ModelFiles:
        """The files of a model of BERT's layout. InputError for others."""
        if directory.is_adapter:
            raise needs_torch(f"{directory.path}: an adapter")

        files = ModelFiles.read(directory)
        if not files.config.has_bert_layout or files.naming == "int8":
            kind = "int8 weights" if files.naming == "int8" else f"a model of type {files.family.model_type}"
            raise needs_torch(f"{directory.path}: {kind}")
        return files

    @classmethod
    def of(cls, files: ModelFiles, **options: Any) -> Self:
        """The backend for files, with warnings about their vectors."""
        backend = cls(files, **options)
        if backend.task == "embed":
            for note in vector_notes(files.directory, files.config.max_position_embeddings):
                files.directory.warn(note)
        return backend

    @property
    def tokenizer(self) -> Tokenizer:
        if self.stored_tokenizer is None:
            raise InputError("the checkpoint has no tokenizer files; put its tokenizer.json or vocab.txt there")
        return self.stored_tokenizer

    def facts(self) -> dict[str, Any]:
        return self.size_facts(sum(map(prod, self.shapes.values())))

    def save(self, target: Path) -> None:
        raise needs_torch(f"{target}: saving a model")

    # --- outputs ------------------------------------------------------------------------------------------------------

    def run(
        self,
        windows: TokenWindows,
        options: ReadOptions,
        reduce: Reduce[Result],
        *columns: Sequence[Any] | NDArray[Any],
        rows_read: RowsRead | None = None,
    ) -> list[Result]:
        """The results of reduce(hidden_TH, lengths, ...) for each window, in their order.

        columns: further values per window; `reduce` receives the values of its batch.
        rows_read: from the lengths and columns of a batch to the tokens that are read, whose states alone `reduce`
            receives; None: all.
        """
        limits = run_options(options)
        lengths_W = windows.lengths
        order = lengths_W.argsort(kind="stable").tolist()
        tokens = limits["batch_tokens"] or self.tokens_of_a_batch(int(lengths_W.sum()))
        batches = [*token_batches(order, lengths_W, tokens)]

        # Several batches: each on a thread, with one thread for its matrix products. A batch alone has all threads for
        # these, unless it is small.
        threads = min(len(batches), num_threads())
        has_one_thread = threads > 1 or lengths_W.sum() <= self.few_tokens

        def compute(rows: list[int]) -> list[Result]:
            ids_T, lengths_N, second_N = windows.gather(rows)
            segments_T = windows.segments(lengths_N, second_N)
            values = [[column[row] for row in rows] for column in columns]
            rows_R = None if rows_read is None else rows_read(lengths_N, *values)
            hidden_RH = self.states(ids_T, segments_T, lengths_N, rows_R, 1 if has_one_thread else num_threads())
            return [*reduce(hidden_RH, lengths_N, *values)]

        results: dict[int, Result] = {}
        with (
            showing(limits["progress"], len(order)) as show,
            ThreadPoolExecutor(threads) if threads > 1 else nullcontext() as pool,
            self.products(has_one_thread=has_one_thread),
        ):
            computed = pool.map(compute, batches) if pool else map(compute, batches)
            for rows, reduced in zip(batches, computed, strict=True):
                results.update(zip(rows, reduced, strict=True))
                show(len(results), len(order))
        return [results[row] for row in range(len(order))]

    def states(self, ids_T: Ids, segments_T: Ids, lengths_N: Ids, rows_R: Ids | None, threads: int) -> Array:
        """The last hidden states of a batch, [T, H]; with rows_R, of the tokens that are read, [R, H].

        threads: of its products."""
        assert isinstance(self.bert, Bert)
        return self.bert(ids_T, segments_T, lengths_N.tolist(), rows_R)

    def tokens_of_a_batch(self, total: int) -> int:
        """At most, by default. total: of all texts."""
        return self.batch_tokens

    def products(self, *, has_one_thread: bool) -> AbstractContextManager[None]:
        """A block in which numpy's matrix products have one thread, or all."""
        return single_blas_thread() if has_one_thread else nullcontext()

    def pooled_windows(self, windows: TokenWindows, kind: str, rows_W2: Integers, options: ReadOptions) -> Rows:
        def pool(hidden_TH: Array, lengths_N: Ids, bounds: list[Integers]) -> Iterator[Rows]:
            for start, (first, last) in zip(lengths_N.cumsum() - lengths_N, bounds, strict=True):
                x_SH = hidden_TH[start + first : start + last]
                yield x_SH.max(0) if kind == "max" else x_SH.sum(0)

        if kind == "cls":
            return self._first_states(windows, options)
        return stack(self.run(windows, options, pool, rows_W2), self.config.hidden_size)

    def window_states(self, windows: TokenWindows, options: ReadOptions) -> Rows:
        if self.config.pooling != "mean":
            return self._first_states(windows, options)
        return stack(self.run(windows, options, self.bert.text_states), self.config.hidden_size)

    def _first_states(self, windows: TokenWindows, options: ReadOptions) -> Rows:
        """The state of the first token of each window."""

        def first_tokens(lengths_N: Ids) -> Ids:
            return lengths_N.cumsum() - lengths_N

        def as_they_are(hidden_NH: Array, lengths_N: Ids) -> Array:
            return hidden_NH

        states = self.run(windows, options, as_they_are, rows_read=first_tokens)
        return stack(states, self.config.hidden_size)

    def head_scores(self, head: str, states_nH: Rows) -> Rows:
        return self.bert.scores(head, states_nH)

    def hidden_rows(self, windows: Sequence[Sequence[Encoding]], options: ReadOptions) -> list[list[Rows]]:
        return self._rows(windows, options, lambda hidden_TH: hidden_TH)

    def token_scores(self, head: str, windows: Sequence[Sequence[Encoding]], options: ReadOptions) -> list[list[Rows]]:
        return self._rows(windows, options, lambda hidden_TH: self.bert.scores(head, hidden_TH))

    def _rows(
        self, windows: Sequence[Sequence[Encoding]], options: ReadOptions, outputs: Callable[[Array], Array]
    ) -> list[list[Rows]]:
        def split(hidden_TH: Array, lengths_N: Ids) -> list[Array]:
            return np.split(outputs(hidden_TH), lengths_N.cumsum()[:-1])

        flat = [part for parts in windows for part in parts]
        distinct, numbers = distinct_rows(flat)
        rows = self.run(TokenWindows.from_encodings([flat[row] for row in distinct]), options, split)
        number = iter(numbers)
        return [[rows[next(number)] for _ in parts] for parts in windows]

    def masked_words(
        self, windows: Sequence[Encoding], rows: Sequence[tuple[int, ...]], top: int, options: ReadOptions
    ) -> list[list[Words]]:
        num_words = len(self.tokenizer)

        def read(lengths_N: Ids, rows_of_windows: list[tuple[int, ...]]) -> Ids:
            starts_N = lengths_N.cumsum() - lengths_N
            positions = [start + row for start, rows in zip(starts_N, rows_of_windows, strict=True) for row in rows]
            return np.array(positions, np.int64)

        def guess(hidden_RH: Array, lengths_N: Ids, rows_of_windows: list[tuple[int, ...]]) -> Iterator[list[Words]]:
            ends = np.cumsum([*map(len, rows_of_windows)])
            for end, rows in zip(ends, rows_of_windows, strict=True):
                scores_MV = self.bert.word_scores(hidden_RH[end - len(rows) : end])
                powers_MV = np.exp(scores_MV - scores_MV.max(-1, keepdims=True))
                words_MV = (powers_MV / powers_MV.sum(-1, keepdims=True))[:, :num_words]
                best_Mk = top_k(words_MV, top)
                best_probabilities_Mk = np.take_along_axis(words_MV, best_Mk, 1)
                yield [*zip(best_probabilities_Mk.tolist(), best_Mk.tolist(), strict=True)]

        distinct, numbers = distinct_rows(windows, rows)
        arrays = TokenWindows.from_encodings([windows[row] for row in distinct])
        words = self.run(arrays, options, guess, [rows[row] for row in distinct], rows_read=read)
        return [words[number] for number in numbers]

    def read_statements(self, batch: StatementBatch, head: StatementHead) -> Rows:
        from bothways.inference.backends.statements import Adapter, read_statements

        assert isinstance(self.bert, Bert)
        with single_blas_thread():
            return read_statements(self.bert, batch, Adapter.of_head(head))

    def attention_weights(self, encoding: Encoding) -> NDArray[np.float32]:
        raise needs_torch("attention weights")

    def encoder_parameters(self) -> Iterator[tuple[str, tuple[int, ...], Iterator[NDArray[Any]]]]:
        for name in sorted(name for name in self.shapes if name.startswith("encoder.")):
            yield name.removeprefix("encoder."), self.shapes[name], map(as_bfloat16, self._pieces(name))

    def _pieces(self, name: str) -> Iterator[Array]:
        """The numbers of a parameter, matrices [out, in], the word table a few rows at a time."""
        if name == TABLE:
            yield from self.words.pieces()
            return
        value = self.bert.parameters[name]
        yield value.T if is_linear(name, self.shapes[name]) else value


def needs_torch(what: str) -> InputError:
    return needs_package(what, "torch", "train")


def as_bfloat16(values: Array) -> NDArray[np.uint16]:
    """The bits of the nearest bfloat16 numbers, and the even one of two."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def stack(vectors: Sequence[Array], size: int) -> Rows:
    return np.stack(vectors) if vectors else np.zeros((0, size), np.float32)
