"""The encoder in C (core/), for models of BERT's layout on a CPU; heads are numpy's.

It computes what numpy.py does, which is the specification: in float32, or in bfloat16 where the processor is faster
with it. Linear layers that are stored in int8 are computed in int8 (model/int8.py is the specification), the rest of
such a model in one of these formats. Weights are packed for its products when a model is loaded. The first use of
something that needs torch, such as `checkpoint`, loads the model a second time, by torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bothways.base.device import ALIASES, num_threads
from bothways.base.errors import InputError
from bothways.base.io import stat_files
from bothways.core.core import CoreEncoder, TextParts
from bothways.core.layout import CoreLayout, is_linear, parameter_shapes
from bothways.core.library import Absence, Core, find_core
from bothways.core.tables import Int8Table, PackedTable
from bothways.inference.backends.forward import Array, Heads, Ids
from bothways.inference.backends.numpy import NumpyBackend, as_bfloat16, needs_torch
from bothways.inference.backends.word_table import WordTable
from bothways.model.checkpoint.description import CONFIG
from bothways.model.checkpoint.directory import FILE_ENDINGS, Directory
from bothways.model.checkpoint.formats.format import StoredModel
from bothways.model.checkpoint.formats.hugging_face import TABLE
from bothways.model.checkpoint.formats.packed import CODES, SCALES, PackedTensors
from bothways.model.checkpoint.model_files import ModelFiles, detect, read_family
from bothways.model.checkpoint.weights import INT8_WEIGHTS, TensorFiles, is_finite, shorten
from bothways.model.config import EncoderConfig
from bothways.model.int8_tensors import (
    TABLE_INT8,
    TABLE_SCALE,
    Stored,
    int8_layers,
    layer_tensors,
    stored_tensors,
)
from bothways.text.tokenizer.encoding import Encoding

if TYPE_CHECKING:
    from bothways.core.statements import CoreAdapter
    from bothways.inference.backends.encoder import EncoderBackend
    from bothways.model.statement_head import StatementHead
    from bothways.text.statements import StatementBatch

PREFIX = "encoder."  # of the names of the encoder's parameters
IN_MEMORY = 1 << 28  # bytes of a table of words; of a larger one, rows are read from the file as they are used
TOKENS_OF_A_THREAD = 32  # at least, where threads share a batch
MOST_THREADS = 16  # that share a batch: more wait for each other longer than they compute
BATCHES_OF_A_THREAD = 4  # so that none is alone with the last one for long
LEAST_TOKENS = 256  # of a batch by default; that many stay in the caches of a core


class NotByCore(InputError):
    """The core does not compute a model. reason: why."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"backend 'core' does not compute the model: {reason}; another backend may")
        self.reason = reason


class CoreBackend(NumpyBackend):
    """A checkpoint of BERT's layout on the CPU, by the core."""

    library = "core"
    words: CoreWords
    adapter: CoreAdapter | None = None  # of statements, packed when the first ones are read
    few_tokens = 32

    def __init__(self, files: ModelFiles, core: Core, dtype: str, **options: Any) -> None:
        self.core = core
        self.dtype = dtype
        self.directory = files.directory
        self.options = options
        self.seen = self._files()
        layout = layout_of(files.config)
        self.int8_layers = find_int8_layers(files, layout)
        layers = [name.removeprefix(PREFIX) for name in self.int8_layers]
        self.encoder_in_c = CoreEncoder(core, layout, dtype, layers)
        super().__init__(files, **options)

    @classmethod
    def open(
        cls,
        directory: Directory,
        *,
        dtype: str = "auto",
        device: str = "auto",
        **options: Any,
    ) -> CoreBackend:
        """Load a checkpoint. options: window and batch_tokens. NotByCore for all that the core cannot compute."""
        core = find_core()
        if isinstance(core, Absence):
            raise NotByCore(core.reason)
        if device not in ("auto", "cpu"):
            raise NotByCore(f"it computes on a CPU, not on the device {device!r:.40}")
        number_format = choose_format(core, dtype)
        stored = detect(directory).open(directory)
        if not isinstance(stored, StoredModel):
            raise NotByCore("the directory holds an adapter")
        check_layout(stored, directory.path / CONFIG)
        files = ModelFiles.of(directory, stored)
        return cls.of(files, core=core, dtype=number_format, **options)

    def read_words(self, files: ModelFiles) -> CoreWords:
        if files.naming == "int8":
            check_tensors(files, stored_tensors(self.shapes, self.int8_layers))
            return Int8Words(files, self.core)
        return CoreWords(files, self.shapes[TABLE], self.core)

    def read_model(self, files: ModelFiles) -> Heads:
        """The heads. The parameters of the encoder are packed one by one."""
        of_heads: dict[str, Array] = {}

        def write(name: str, start: int, value: Array) -> bool:
            with np.errstate(over="ignore"):  # numbers of float64 may be too large for float32
                value = value.astype(np.float32, copy=False)
            if name.startswith(PREFIX):
                self.encoder_in_c.put(name.removeprefix(PREFIX), start, value)
            else:
                self._put(of_heads, name, start, value)
            return is_finite(value)

        if files.naming == "int8":
            self._read_int8(files, write)
        else:
            files.read_parameters(self.shapes, write, skip=(TABLE,))
        return Heads(self.config, of_heads, self.words)

    def _read_int8(self, files: ModelFiles, write: Callable[[str, int, Array], bool]) -> None:
        """Put int8 layers one by one, and all other parameters by `write`. Their numbers are known to be finite."""
        arrays = files.arrays
        parts: set[str] = {TABLE}
        for layer in self.int8_layers:
            tensors = {end: arrays[f"{layer}.{end}"] for end in layer_tensors(0, 0)}
            try:
                self.encoder_in_c.put_int8(layer.removeprefix(PREFIX), **tensors)
            except ValueError as error:
                raise misfit(files, str(error)) from None
            parts |= {f"{layer}.weight", f"{layer}.bias"}

        for name in sorted(self.shapes.keys() - parts):
            write(name, 0, arrays[name])

    def _put(self, parameters: dict[str, Array], name: str, start: int, value: Array) -> None:
        """Set rows of a parameter of a head, matrices [in, out]."""
        shape = self.shapes[name]
        if name not in parameters:
            parameters[name] = np.empty(shape[::-1], np.float32)
        parameters[name].T[start : start + len(value)] = value

    def states(self, ids_T: Ids, segments_T: Ids, lengths_N: Ids, rows_R: Ids | None, threads: int) -> Array:
        words_VE, rows_T = self.words.lookup(ids_T)
        has_segments = self.config.type_vocab_size > 1  # RoBERTa has one
        threads = min(threads, max(1, len(ids_T) // TOKENS_OF_A_THREAD), MOST_THREADS)
        return self.encoder_in_c(words_VE, rows_T, segments_T if has_segments else None, lengths_N, rows_R, threads)

    def read_statements(self, batch: StatementBatch, head: StatementHead) -> Array:
        from bothways.core.statements import CoreAdapter

        if self.adapter is None:
            self.adapter = CoreAdapter(self.core, self.encoder_in_c.layout, head.products, head.gates_LA)
        words_VE, rows_T = self.words.lookup(batch.ids_T)
        threads = max(1, min(num_threads(), len(rows_T) // TOKENS_OF_A_THREAD, MOST_THREADS))
        parts = TextParts(batch.starts, batch.first_parts)
        return self.encoder_in_c.read_statements(words_VE, rows_T, parts, self.adapter, threads)

    def tokens_of_a_batch(self, total: int) -> int:
        """Few enough that all threads have some batches, since a text has the same result in each."""
        share = total // (BATCHES_OF_A_THREAD * num_threads())
        return min(self.batch_tokens, max(LEAST_TOKENS, share))

    def products(self, *, has_one_thread: bool) -> AbstractContextManager[None]:
        return nullcontext()

    @property
    def computed_by(self) -> str:
        formats = f"{self.dtype}, int8" if self.int8_layers else self.dtype
        return f"core ({self.core.instruction_set}, {formats})"

    def facts(self) -> dict[str, Any]:
        facts = super().facts()
        if self.int8_layers:
            facts["number format"] = "int8, in most linear layers"
        return facts

    def encoder_parameters(self) -> Iterator[tuple[str, tuple[int, ...], Iterator[NDArray[Any]]]]:
        """Of int8 layers the tensors that a file has, as torch's backend does."""
        shapes = {name: shape for name, shape in self.shapes.items() if name.startswith(PREFIX)}
        tensors: dict[str, Callable[[], Array]] = {}
        for layer in self.int8_layers:
            outputs, inputs = shapes.pop(f"{layer}.weight")
            for end, stored in layer_tensors(outputs, inputs).items():
                shapes[f"{layer}.{end}"] = stored.shape
                if end != "bias":
                    tensors[f"{layer}.{end}"] = partial(self.encoder_in_c.get_int8, layer.removeprefix(PREFIX), end)

        for name in sorted(shapes):
            short = name.removeprefix(PREFIX)
            if name == TABLE:
                pieces = self.words.pieces()
            else:
                read = tensors.get(name, partial(self.encoder_in_c.get, short))
                pieces = iter([read()])
            yield short, shapes[name], map(as_bfloat16, pieces)

    # --- what needs torch ---------------------------------------------------------------------------------------------

    @cached_property
    def by_torch(self) -> EncoderBackend:
        """The same model by torch, with the same options. InputError without torch, or if its files have changed."""
        if find_spec("torch") is None:
            raise needs_torch("a module, a checkpoint, attention weights or a copy of the model")
        from bothways.inference.backends.encoder import EncoderBackend

        if self._files() != self.seen:
            raise InputError(
                f"{self.directory.path}: the files have changed or gone since the model was loaded, and torch needs "
                "them now; load the model with backend='torch' before they change"
            )
        return EncoderBackend.open(self.directory, dtype=self.dtype, device="cpu", **self.options)

    def _files(self) -> object:
        """Times and sizes of the model's files."""
        return stat_files([self.directory.path], FILE_ENDINGS)

    def save(self, target: Path) -> None:
        self.by_torch.save(target)

    def attention_weights(self, encoding: Encoding) -> NDArray[np.float32]:
        return self.by_torch.attention_weights(encoding)


class CoreWords(WordTable):
    """The embeddings of words, in memory if that is small."""

    def __init__(self, files: ModelFiles, shape: tuple[int, ...], core: Core) -> None:
        """InputError if the table in the files has another shape, or numbers that are not finite."""
        super().__init__(files, shape)
        self.packed: PackedTable | Int8Table | None = None
        self.table_VE: Array | None = None
        arrays = self.arrays
        if isinstance(arrays, PackedTensors) and self.name in arrays.bits:
            # Mapped: of 6 MB, a process reads the pages of the words that it meets.
            codes = arrays.stored.mapped(self.name + CODES)
            scales_RG = arrays.stored[self.name + SCALES].astype(np.float32)
            self.packed = PackedTable(core, codes, scales_RG, arrays.bits[self.name])
        elif 4 * shape[0] * shape[1] <= IN_MEMORY:
            self.table_VE = np.ascontiguousarray(super().rows(np.arange(shape[0])))

    def rows(self, ids_T: Ids) -> Array:
        if self.packed is not None:
            return self.packed.rows(ids_T)
        if self.table_VE is not None:
            return self.table_VE[ids_T]
        return super().rows(ids_T)

    def lookup(self, ids_T: Ids) -> tuple[Array, NDArray[np.int32]]:
        """A table that holds the rows of these words, and their rows in it."""
        if self.table_VE is not None:
            return self.table_VE, ids_T
        return self.rows(ids_T), np.arange(len(ids_T), dtype=np.int32)


class Int8Words(CoreWords):
    """The embeddings of words in int8, which become float32 as they are used."""

    def __init__(self, files: ModelFiles, core: Core) -> None:
        self.packed = Int8Table(core, files.arrays[TABLE_INT8], files.arrays[TABLE_SCALE])
        self.table_VE = None
        self.size = len(self.packed.scales_V)


def check_layout(stored: StoredModel, file: Path) -> None:
    """NotByCore for a model that the core does not compute. file: its config."""
    config, _ = read_family(stored.hf_config, file).parse_config(stored.hf_config, file)
    config = config.replace(**stored.changes)
    if not config.has_bert_layout:
        raise NotByCore("it does not have BERT's layout")
    if refusal := layout_of(config).refusal():
        raise NotByCore(refusal)


def layout_of(config: EncoderConfig) -> CoreLayout:
    return CoreLayout(
        hidden=config.hidden_size,
        embedding=config.embedding_size or config.hidden_size,
        heads=config.num_attention_heads,
        head_size=config.head_size,
        inner=config.intermediate_size,
        positions=config.position_offset + config.max_position_embeddings,
        position_offset=config.position_offset,
        segments=config.type_vocab_size,
        depth=config.num_hidden_layers,
        layers=config.num_unique_layers,
        activation=config.hidden_act,
        epsilon=config.layer_norm_eps,
    )


def choose_format(core: Core, dtype: str) -> str:
    """The number format of a name; "auto": bfloat16 where the processor is faster with it. NotByCore for others."""
    dtype = ALIASES.get(dtype, dtype)
    if dtype == "auto":
        return core.formats[-1]
    if dtype not in core.formats:
        raise NotByCore(f"it computes in {' or '.join(core.formats)} on this processor, not in {dtype!r:.40}")
    return dtype


def find_int8_layers(files: ModelFiles, layout: CoreLayout) -> list[str]:
    """The layers of a model that are int8. InputError if some are no layers of the encoder."""
    if files.naming != "int8":
        return []
    layers = int8_layers(files.arrays)
    known = {f"{PREFIX}{name}" for name, shape in parameter_shapes(layout).items() if is_linear(name, shape)}
    if unknown := sorted(layer for layer in layers if f"{layer}.weight" not in known):
        raise misfit(files, f"no layers of the encoder: {shorten(unknown)}")
    return layers


def check_tensors(files: ModelFiles, expected: Mapping[str, Stored]) -> None:
    """InputError if the tensors of an int8 model are not these."""
    arrays = files.arrays
    if missing := sorted(expected.keys() - arrays.keys()):
        raise misfit(files, f"missing: {shorten(missing)}")
    if unknown := sorted(arrays.keys() - expected.keys()):
        raise misfit(files, f"no part of the model: {shorten(unknown)}")

    assert isinstance(arrays, TensorFiles)
    for name, stored in expected.items():
        location = arrays.locations[name]
        if location.shape != stored.shape:
            raise misfit(files, f"{name} is {[*location.shape]}, not {[*stored.shape]}")
        if location.dtype not in stored.formats:
            raise misfit(files, f"{name} has the number format {location.dtype}, not {' or '.join(stored.formats)}")


def misfit(files: ModelFiles, what: str) -> InputError:
    """The error of an int8 model whose tensors do not fit its config."""
    file = files.directory.path / INT8_WEIGHTS
    return InputError(f"{file}: does not fit config.json ({what}); quantize the model again")
