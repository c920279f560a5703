"""The encoder in numpy, for a machine without torch: reads a checkpoint of BERT's layout, computes batches in threads.

forward.py has the model. Packed weights are unpacked once, into a file of the cache directory that is mapped into
memory; of the word table, only the rows of a text are read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from math import prod
from pathlib import Path
from threading import get_ident
from time import time
from typing import TYPE_CHECKING, Any, Self, TypeVar
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from bothways.base.device import num_threads, single_blas_thread
from bothways.base.errors import InputError, needs_package
from bothways.base.io import unpacked_directory
from bothways.inference.backends.forward import Array, Bert, Heads, Ids
from bothways.inference.backends.tokens import TokenBackend
from bothways.inference.reading import ReadOptions, Rows, distinct_rows, run_options, showing
from bothways.model.checkpoint.directory import Directory
from bothways.model.checkpoint.formats.hugging_face import TABLE
from bothways.model.checkpoint.formats.packed import PackedTensors
from bothways.model.checkpoint.model_files import ModelFiles
from bothways.model.checkpoint.sentence_transformers import vector_notes
from bothways.model.checkpoint.weights import TensorFiles, is_finite, not_finite_error, open_safetensors
from bothways.model.config import NO_POOLER, NUM_OUTPUTS, POOLED_HEADS, EncoderConfig
from bothways.tasks.arrays import top_k
from bothways.text.batching import token_batches
from bothways.text.token_windows import Integers, TokenWindows
from bothways.text.tokenizer.tokenizer import Encoding, Tokenizer

if TYPE_CHECKING:
    from bothways.tasks.fill.decoding import Words

Result = TypeVar("Result")
RowsRead = Callable[..., NDArray[np.int64]]  # (lengths, values of further columns ...) -> ascending indices in T
Reduce = Callable[..., Iterable[Result]]  # (hidden states [T, H], lengths, values of further columns ...)
BATCH_TOKENS = 1024  # whose numbers stay in the caches of a core
PIECE = 4096  # rows of the word table in memory at once, for the scores of all words
# Keys in the metadata of a file of unpacked weights.
CHECKSUM = "crc32"
SOURCE = "source"
LEFT_SECONDS = 3600  # after which a temporary file belongs to no process that still writes it


class NumpyBackend(TokenBackend):
    """A checkpoint of BERT's layout on the CPU, in float32."""

    device = "cpu"
    dtype = "float32"
    few_tokens = (
        64  # whose products are so small that threads gain little, and wait long for each other on a busy machine
    )

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
        yield value.T if is_matrix(name, self.shapes[name]) else value


def needs_torch(what: str) -> InputError:
    return needs_package(what, "torch", "train")


def as_bfloat16(values: Array) -> NDArray[np.uint16]:
    """The bits of the nearest bfloat16 numbers, and the even one of two."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def is_matrix(name: str, shape: Sequence[int]) -> bool:
    """Whether a parameter is the weight of a linear layer, not a table of embeddings."""
    return len(shape) == 2 and name.rsplit(".", 2)[1] not in ("words", "positions", "segments")


def stack(vectors: Sequence[Array], size: int) -> Rows:
    return np.stack(vectors) if vectors else np.zeros((0, size), np.float32)


# --- parameters -------------------------------------------------------------------------------------------------------


class WordTable:
    """The embeddings of words, of which only the rows that are used are read."""

    def __init__(self, files: ModelFiles, shape: tuple[int, ...]) -> None:
        """InputError if the table in the files has another shape."""
        self.arrays = files.arrays
        self.file = files.directory.path
        self.size = shape[0]
        name, *_ = files.family.hf_names(TABLE, ())
        # Some checkpoints hold the encoder alone, without the prefix of a model with heads.
        self.name = name if name in self.arrays else name.removeprefix(files.family.prefix)

        stored = self._stored_shape()
        if stored != shape:
            raise InputError(
                f"{self.file}: {self.name} is {[*stored]}, config.json requires {[*shape]}; use the config.json that "
                "belongs to the weights"
            )
        kind = self._stored_rows(np.arange(1)).dtype
        if kind.kind != "f":
            raise InputError(
                f"{self.file}: wrong shape or type: {self.name} is {kind}, not floating point; use the config.json "
                "that belongs to the weights"
            )

    def _stored_shape(self) -> tuple[int, ...]:
        if isinstance(self.arrays, TensorFiles | PackedTensors):
            return self.arrays.shape(self.name)
        shape: tuple[int, ...] = self.arrays[self.name].shape
        return shape

    def _stored_rows(self, ids_n: Ids) -> Array:
        if isinstance(self.arrays, TensorFiles | PackedTensors):
            return self.arrays.rows(self.name, ids_n)
        rows_nE: Array = self.arrays[self.name][ids_n]
        return rows_nE

    def rows(self, ids_T: Ids) -> Array:
        """[T, E]"""
        ids_n, row_T = np.unique(ids_T, return_inverse=True)
        rows_nE = self._stored_rows(ids_n)
        with np.errstate(over="ignore"):
            rows_nE = rows_nE.astype(np.float32, copy=False)
        if not is_finite(rows_nE):
            raise not_finite_error(self.file, [self.name])
        rows_TE: Array = rows_nE[row_T]
        return rows_TE

    def pieces(self) -> Iterator[Array]:
        """All rows, PIECE at a time."""
        for start in range(0, self.size, PIECE):
            end = min(start + PIECE, self.size)
            yield self.rows(np.arange(start, end))


def parameter_shapes(config: EncoderConfig, heads: Mapping[str, int], *, pooler: bool) -> dict[str, tuple[int, ...]]:
    """The parameters of a model of BERT's layout, by our names, matrices [out, in]."""
    size = config.embedding_size or config.hidden_size
    tables = {
        "words": config.vocab_size,
        "positions": config.position_offset + config.max_position_embeddings,
    }
    if config.type_vocab_size:
        tables["segments"] = config.type_vocab_size
    shapes: dict[str, tuple[int, ...]] = {}
    for name, rows in tables.items():
        shapes[f"encoder.embeddings.{name}.weight"] = (rows, size)
    if "masked_words" in heads:
        shapes["heads.masked_words.bias"] = (config.vocab_size,)

    for name, (outputs, inputs) in _linear_shapes(config, heads, pooler=pooler).items():
        shapes[f"{name}.weight"] = (outputs, inputs)
        shapes[f"{name}.bias"] = (outputs,)
    for name, length in _norm_sizes(config, heads).items():
        shapes[f"{name}.weight"] = (length,)
        shapes[f"{name}.bias"] = (length,)
    return shapes


def _linear_shapes(config: EncoderConfig, heads: Mapping[str, int], *, pooler: bool) -> dict[str, tuple[int, int]]:
    """The number of outputs and of inputs of each linear layer."""
    hidden = config.hidden_size
    inner = config.intermediate_size
    size = config.embedding_size or hidden
    attended = config.num_attention_heads * config.head_size

    shapes: dict[str, tuple[int, int]] = {}
    if size != hidden:
        shapes["encoder.embeddings.widen"] = (hidden, size)
    for index in range(config.num_unique_layers):
        layer = f"encoder.layers.{index}"
        shapes[f"{layer}.attention.qkv"] = (3 * attended, hidden)
        shapes[f"{layer}.attention.output"] = (hidden, attended)
        shapes[f"{layer}.feed_forward.inner"] = (inner, hidden)
        shapes[f"{layer}.feed_forward.output"] = (hidden, inner)

    needs_pooler = pooler or not heads.keys().isdisjoint(POOLED_HEADS)
    if needs_pooler and config.pooler_act not in NO_POOLER:
        shapes["pooler.dense"] = (hidden, hidden)

    for head, outputs in heads.items():
        if head == "masked_words":  # its last layer is the word table
            shapes[f"heads.{head}.transform"] = (size, hidden)
            continue
        if head == "replaced_tokens":
            shapes[f"heads.{head}.transform"] = (hidden, hidden)
        compares_pairs = head == "classes" and config.pooler_act == "pair"
        features = 4 * hidden if compares_pairs else hidden
        shapes[f"heads.{head}.output"] = (NUM_OUTPUTS.get(head, outputs), features)
    return shapes


def _norm_sizes(config: EncoderConfig, heads: Mapping[str, int]) -> dict[str, int]:
    size = config.embedding_size or config.hidden_size
    sizes = {"encoder.embeddings.norm": size}
    for index in range(config.num_unique_layers):
        sizes[f"encoder.layers.{index}.attention_norm"] = config.hidden_size
        sizes[f"encoder.layers.{index}.feed_forward_norm"] = config.hidden_size
    if "masked_words" in heads:
        sizes["heads.masked_words.norm"] = size
    return sizes


def read_parameters(files: ModelFiles, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
    """The parameters in float32 but for the word table, matrices [in, out]. Packed weights are read from a file in the
    cache directory, which is written if it is missing; without such a directory they are unpacked in memory."""
    if not isinstance(files.arrays, PackedTensors):
        return unpack(files, shapes)
    try:
        file = unpacked_directory() / f"{files.arrays.digest[:16]}.safetensors"
    except RuntimeError:  # a user without a home
        return unpack(files, shapes)
    with suppress(InputError, OSError, ValueError):
        return map_parameters(file, shapes)

    parameters = unpack(files, shapes)
    try:
        write_parameters(file, parameters, files.directory.path)
        return map_parameters(file, shapes)
    except (InputError, OSError, SafetensorError):  # a full disk, or a directory that cannot be written
        return parameters


def write_parameters(file: Path, parameters: dict[str, Array], source: Path) -> None:
    """Write the file that `map_parameters` reads, as a whole. source: the directory of the packed weights."""
    from safetensors.numpy import save_file

    file.parent.mkdir(parents=True, exist_ok=True)
    for leftover in file.parent.glob(".*.tmp"):  # by a process that was killed
        with suppress(OSError):
            if time() - leftover.stat().st_mtime > LEFT_SECONDS:
                leftover.unlink()

    temporary = file.with_name(f".{file.stem}-{os.getpid()}-{get_ident()}.tmp")
    try:
        save_file(parameters, temporary, {CHECKSUM: checksum(parameters), SOURCE: str(source)})
        os.replace(temporary, file)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def map_parameters(file: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
    """The parameters in a file that `read_parameters` has written. InputError if it is missing, or if names, shapes,
    number formats or any number differ from what was written."""
    stored = open_safetensors(file)
    expected: dict[str, tuple[int, ...]] = {}
    for name, shape in shapes.items():
        if name != TABLE:
            expected[name] = shape[::-1] if is_matrix(name, shape) else shape

    if {name: location.shape for name, location in stored.locations.items()} != expected:
        raise InputError(f"{file}: made by another version")
    if {location.dtype for location in stored.locations.values()} != {"F32"}:
        raise InputError(f"{file}: not float32")

    parameters = {name: stored.mapped(name) for name in stored}
    with safe_open(file, framework="numpy") as opened:
        metadata = opened.metadata() or {}
    if metadata.get(CHECKSUM) != checksum(parameters):
        raise InputError(f"{file}: damaged")
    return parameters


def checksum(parameters: Mapping[str, Array]) -> str:
    """Of all numbers, in the order of the names."""
    value = 0
    for name in sorted(parameters):
        value = crc32(np.ascontiguousarray(parameters[name]).data, value)
    return f"{value:08x}"


def unpack(files: ModelFiles, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
    """All parameters but the word table, in memory."""
    parameters: dict[str, Array] = {}

    def write(name: str, start: int, value: Array) -> bool:
        shape = shapes[name]
        is_transposed = is_matrix(name, shape)
        if name not in parameters:
            parameters[name] = np.empty(shape[::-1] if is_transposed else shape, np.float32)
        parameter = parameters[name]
        rows = (parameter.T if is_transposed else parameter)[start : start + len(value)]
        with np.errstate(over="ignore"):
            rows[:] = value
        return is_finite(rows)  # numbers of float64 may be too large for float32

    files.read_parameters(shapes, write, skip=(TABLE,))
    return parameters
