"""The encoder of BERT in C (encode.c), called through ctypes, which frees Python's lock meanwhile.

A library holds the same functions for several instruction sets; the best one that the processor has is chosen once. The
weights are packed for it when they are put into an Encoder.

Environment: BOTHWAYS_CORE=0 turns the core off; BOTHWAYS_CORE_ISA names an instruction set.

Letters: T tokens of all texts of a batch, N texts, R tokens that are read, H hidden size, E embedding size, V rows of a
table of words.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import local
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bothways.base.errors import InputError, UsageError
from bothways.core.build import library_name

Array = NDArray[np.float32]
FOLDER = Path(__file__).parent
SWITCH = "BOTHWAYS_CORE"
CHOICE = "BOTHWAYS_CORE_ISA"
# Instruction sets, best first, with the bit that stands for each in processor.c.
SETS = {"amx": 8, "avx512_bf16": 4, "avx512": 2, "avx2": 1, "neon": 16}
# On which systems and instruction sets all tests of the core have run. Others are compiled, but only chosen by name.
TESTED = {("linux", "x86_64"): ("amx", "avx512_bf16", "avx512", "avx2")}
HAS_BFLOAT16 = ("amx", "avx512_bf16")  # faster than float32 there
KINDS = {"float32": 0, "bfloat16": 1}
ACTIVATIONS = {"gelu": 1, "gelu_tanh": 2, "relu": 3, "silu": 4}
MULTIPLE = 32  # of the sizes of layers
MAX_THREADS = 64  # of one call


# --- the library ------------------------------------------------------------------------------------------------------


class Core:
    """The functions of the library for one instruction set."""

    def __init__(self, library: ctypes.CDLL, instruction_set: str) -> None:
        """Sets `formats`: number formats, the fastest last."""
        self.library = library
        self.instruction_set = instruction_set
        self.formats = ("float32", "bfloat16") if instruction_set in HAS_BFLOAT16 else ("float32",)

    def __reduce__(self) -> tuple[Any, ...]:
        return core_for, (self.instruction_set,)

    def function(self, name: str, *arguments: Any, returns: Any = None) -> Any:
        """A function of C by its name without the instruction set. arguments: their types."""
        found = getattr(self.library, f"{name}_{self.instruction_set}")
        found.argtypes = arguments
        found.restype = returns
        return found


@dataclass(frozen=True)
class Absence:
    """Why the core does not compute, as the end of a sentence."""

    reason: str


@cache
def find_core() -> Core | Absence:
    """The core of this process. UsageError if the environment names an instruction set that is not there."""
    if os.environ.get(SWITCH) == "0":
        return Absence(f"{SWITCH} is 0")
    file = FOLDER / library_name(FOLDER)
    if not file.exists():
        return Absence(
            "it is not compiled: install the wheel of this platform, or with a C compiler, or BOTHWAYS_BUILD=zig"
        )
    try:
        library = ctypes.CDLL(str(file))
    except OSError as error:
        return Absence(f"its library cannot be loaded ({error})")
    return choose(library, os.environ.get(CHOICE, ""))


def core_for(instruction_set: str) -> Core:
    """The core of a process that received a model: weights are packed for an instruction set. InputError for others."""
    core = find_core()
    if isinstance(core, Absence) or core.instruction_set != instruction_set:
        here = core.reason if isinstance(core, Absence) else f"it is {core.instruction_set} here"
        raise InputError(
            f"a model whose weights were packed for {instruction_set} cannot be computed: {here}; load it here"
        )
    return core


def choose(library: ctypes.CDLL, name: str) -> Core | Absence:
    """The functions for an instruction set; "": the best one that has been tested on such a system."""
    available = available_sets(library)
    if name:
        if name not in available:
            raise UsageError(
                f"{CHOICE} is {name!r:.40}; this processor and library have {', '.join(available) or 'none'}"
            )
        return Core(library, name)

    system = (sys.platform, platform.machine().lower())
    for instruction_set in available:
        if instruction_set in TESTED.get(system, ()):
            return Core(library, instruction_set)
    if available:
        return Absence(f"it has not been tested on {' '.join(system)}; {CHOICE}={available[0]} chooses it")
    return Absence("the processor has none of the instruction sets that it is compiled for")


def available_sets(library: ctypes.CDLL) -> list[str]:
    """The instruction sets of this processor that a library has been compiled for, best first."""
    bits = library.instruction_sets()
    return [name for name, bit in SETS.items() if bits & bit and hasattr(library, f"encode_batch_{name}")]


# --- structures of encode.c -------------------------------------------------------------------------------------------


class _Linear(ctypes.Structure):
    _fields_ = (
        ("panels", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("inputs", ctypes.c_int64),
        ("outputs", ctypes.c_int64),
    )


class _Norm(ctypes.Structure):
    _fields_ = (("scale", ctypes.c_void_p), ("shift", ctypes.c_void_p))


LINEARS = ("attention.qkv", "attention.output", "feed_forward.inner", "feed_forward.output")
NORMS = ("attention_norm", "feed_forward_norm")


class _Layer(ctypes.Structure):
    _fields_ = (*((name, _Linear) for name in LINEARS), *((name, _Norm) for name in NORMS))


SIZES = (
    "kind",
    "activation",
    "hidden",
    "embedding",
    "heads",
    "head_size",
    "inner",
    "positions",
    "position_offset",
    "segments",
    "depth",
)


class _Model(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in SIZES),
        ("epsilon", ctypes.c_double),
        ("position_rows", ctypes.c_void_p),
        ("segment_rows", ctypes.c_void_p),
        ("norm", _Norm),
        ("widen", _Linear),
        ("layers", ctypes.POINTER(_Layer)),
    )


class _Batch(ctypes.Structure):
    _fields_ = (
        ("words", ctypes.c_void_p),
        ("num_words", ctypes.c_int64),
        ("ids", ctypes.c_void_p),
        ("segments", ctypes.c_void_p),
        ("starts", ctypes.c_void_p),
        ("num_texts", ctypes.c_int64),
        ("rows", ctypes.c_void_p),
        ("num_rows", ctypes.c_int64),
        ("out", ctypes.c_void_p),
    )


# --- the encoder ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """Sizes of a model of BERT's layout.

    positions: rows of the table of positions.
    position_offset: the row of a text's first token.
    segments: rows of the table of segments; 0: none.
    depth: number of layers; fewer `layers` are shared, each by neighbours (Lan 2020).
    """

    hidden: int
    embedding: int
    heads: int
    head_size: int
    inner: int
    positions: int
    position_offset: int
    segments: int
    depth: int
    layers: int
    activation: str
    epsilon: float

    def refusal(self) -> str:
        """Why the core does not compute such a model; "" if it does."""
        if self.activation not in ACTIVATIONS:
            return f"it has no activation {self.activation}"
        attended = self.heads * self.head_size
        for name, size in (
            ("hidden size", self.hidden),
            ("embedding size", self.embedding),
            ("inner size", self.inner),
            ("size of all heads", attended),
        ):
            if size % MULTIPLE:
                return f"the {name} is {size}, not a multiple of {MULTIPLE}"
        if self.head_size % 16:
            return f"the size of a head is {self.head_size}, not a multiple of 16"
        return ""


class Encoder:
    """An encoder whose weights are put into it part by part. Any number of threads may call it."""

    def __init__(self, core: Core, layout: Layout, dtype: str) -> None:
        """dtype: "float32", or "bfloat16" for products and what enters them. InputError if the core has no such."""
        if dtype not in core.formats:
            raise InputError(f"dtype {dtype!r:.40}: this processor computes in {' or '.join(core.formats)}")
        if refusal := layout.refusal():
            raise InputError(f"the core cannot compute this model: {refusal}")
        self.core = core
        self.layout = layout
        self.dtype = dtype
        self.kind = KINDS[dtype]
        self.shapes = parameter_shapes(layout)

        # Matrices of linear layers as panels, all else as it is.
        self.panels: dict[str, NDArray[np.uint8]] = {}
        self.tables: dict[str, Array] = {}
        for name, shape in self.shapes.items():
            if is_linear(name, shape):
                self.panels[name] = np.zeros(self._packed_size(shape), np.uint8)
            else:
                self.tables[name] = np.zeros(shape, np.float32)
        self._prepare()

    def _packed_size(self, shape: Sequence[int]) -> int:
        """Bytes of the panels of a matrix."""
        integer = ctypes.c_int64
        size: int = self.core.function("packed_size", ctypes.c_int, integer, integer, returns=integer)(
            self.kind, *shape
        )
        return size

    def put(self, name: str, start: int, rows: Array) -> None:
        """Set rows from `start` on of a parameter, float32; matrices are [out, in]."""
        rows = np.ascontiguousarray(rows, np.float32)
        if name in self.tables:
            self.tables[name][start : start + len(rows)] = rows
            return
        inputs = self.shapes[name][1]
        if rows.shape[1] != inputs or start + len(rows) > self.shapes[name][0]:
            raise ValueError(f"{name}: rows {rows.shape} from {start} on do not fit {self.shapes[name]}")
        self._pack(self.kind, address(rows), start, start + len(rows), inputs, address(self.panels[name]))

    def get(self, name: str) -> Array:
        """A parameter, float32, as it is computed with: matrices are [out, in], rounded to the number format."""
        if name in self.tables:
            return self.tables[name]
        outputs, inputs = self.shapes[name]
        numbers = self.panels[name].view(np.float32 if self.dtype == "float32" else np.uint16)
        per_word = 4 // numbers.itemsize
        panel = self._packed_size((1, inputs)) // (inputs * numbers.itemsize)
        rows = numbers.reshape(-1, inputs // per_word, panel, per_word).swapaxes(1, 2).reshape(-1, inputs)[:outputs]
        if self.dtype == "float32":
            return rows
        return (rows.astype(np.uint32) << 16).view(np.float32)

    def __call__(
        self,
        words_VE: Array,
        ids_T: NDArray[np.int32],
        segments_T: NDArray[Any] | None,
        lengths: Sequence[int] | NDArray[Any],
        rows_R: NDArray[np.int64] | None = None,
        threads: int = 1,
    ) -> Array:
        """The last hidden states [T, H], or [R, H] of the tokens that are read.

        words_VE: a table of words, of which ids_T are rows.
        lengths: tokens of each text.
        rows_R: ascending.
        InputError for what is out of range.
        """
        lengths = np.asarray(lengths, np.int64)
        starts = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=starts[1:])
        num_tokens = len(ids_T)
        longest = int(lengths.max(initial=0))

        words_VE = contiguous(words_VE, np.float32)
        ids_T = contiguous(ids_T, np.int32)
        segments_T = None if segments_T is None else contiguous(segments_T, np.int32)
        rows_R = None if rows_R is None else contiguous(rows_R, np.int64)
        self._check_shapes(words_VE, ids_T, segments_T)

        num_rows = num_tokens if rows_R is None else len(rows_R)
        out = np.empty((num_rows, self.layout.hidden), np.float32)
        batch = _Batch(
            words=address(words_VE),
            num_words=len(words_VE),
            ids=address(ids_T),
            segments=address(segments_T),
            starts=address(starts),
            num_texts=len(lengths),
            rows=address(rows_R),
            num_rows=num_rows,
            out=address(out),
        )
        threads = max(1, min(threads, MAX_THREADS))
        memory = self._memory(self._memory_size(self._model, num_tokens, longest, threads))
        place = ctypes.c_int64()
        fault = self._encode_batch(self._model, batch, num_tokens, longest, threads, address(memory), place)
        if fault:
            raise self._error(fault, place.value, ids_T, len(words_VE))
        return out

    def _check_shapes(self, words_VE: Array, ids_T: NDArray[Any], segments_T: NDArray[Any] | None) -> None:
        if words_VE.ndim != 2 or words_VE.shape[1] != self.layout.embedding:
            raise ValueError(f"words {words_VE.shape}: expected [V, {self.layout.embedding}]")
        if segments_T is not None and segments_T.shape != ids_T.shape:
            raise ValueError(f"segments {segments_T.shape}: expected {ids_T.shape}, one for each token")

    def _error(self, fault: int, place: int, ids_T: NDArray[np.int32], num_words: int) -> InputError:
        limit = self.layout.positions - self.layout.position_offset
        messages = {
            1: f"text {place}: its tokens do not follow those before it; lengths must be 0 or more and sum up to {len(ids_T)}",
            2: f"token {place} has the id {ids_T[place] if place < len(ids_T) else '?'}; ids are from 0 to {num_words - 1}",
            3: f"token {place} has a segment that the model does not have; segments are from 0 to {self.layout.segments - 1}",
            4: f"text {place} is longer than the {limit} tokens that the model has positions for",
            5: f"row {place} of the tokens that are read: they must ascend, from 0 to {len(ids_T) - 1}",
        }
        return InputError(messages[fault])

    def _memory(self, size: int) -> NDArray[np.uint8]:
        """This thread's memory, which its next calls use again."""
        memory: NDArray[np.uint8] | None = getattr(self._local, "memory", None)
        if memory is None or len(memory) < size:
            memory = self._local.memory = np.empty(size, np.uint8)
        return memory

    # --- structures that hold addresses -------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        names = ("core", "layout", "dtype", "kind", "shapes", "panels", "tables")
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare()

    def _prepare(self) -> None:
        """Make what cannot be copied to another process."""
        core = self.core
        integer = ctypes.c_int64
        pointer = ctypes.c_void_p
        self._local = local()
        self._pack = core.function("pack", ctypes.c_int, pointer, integer, integer, integer, pointer)
        self._memory_size = core.function(
            "memory_size", ctypes.POINTER(_Model), integer, integer, ctypes.c_int, returns=integer
        )
        self._encode_batch = core.function(
            "encode_batch",
            ctypes.POINTER(_Model),
            ctypes.POINTER(_Batch),
            integer,
            integer,
            ctypes.c_int,
            pointer,
            ctypes.POINTER(integer),
            returns=ctypes.c_int,
        )

        layout = self.layout
        distinct = [self._layer(f"layers.{index}.") for index in range(layout.layers)]
        layers = [distinct[index * layout.layers // layout.depth] for index in range(layout.depth)]
        sizes = {name: getattr(layout, name) for name in SIZES if name not in ("kind", "activation")}
        self._model = _Model(
            kind=self.kind,
            activation=ACTIVATIONS[layout.activation],
            **sizes,
            epsilon=layout.epsilon,
            position_rows=address(self.tables["embeddings.positions.weight"]),
            segment_rows=address(self.tables.get("embeddings.segments.weight")),
            norm=self._norm("embeddings.norm"),
            widen=self._linear("embeddings.widen") if layout.embedding != layout.hidden else _Linear(),
            layers=(_Layer * layout.depth)(*layers),
        )

    def _layer(self, prefix: str) -> _Layer:
        linears = {name: self._linear(prefix + name) for name in LINEARS}
        norms = {name: self._norm(prefix + name) for name in NORMS}
        return _Layer(**linears, **norms)

    def _linear(self, name: str) -> _Linear:
        outputs, inputs = self.shapes[f"{name}.weight"]
        return _Linear(
            panels=address(self.panels[f"{name}.weight"]),
            bias=address(self.tables[f"{name}.bias"]),
            inputs=inputs,
            outputs=outputs,
        )

    def _norm(self, name: str) -> _Norm:
        return _Norm(scale=address(self.tables[f"{name}.weight"]), shift=address(self.tables[f"{name}.bias"]))


def parameter_shapes(layout: Layout) -> dict[str, tuple[int, ...]]:
    """The parameters of an encoder by our names, without the table of words; matrices are [out, in]."""
    hidden = layout.hidden
    attended = layout.heads * layout.head_size
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.positions.weight": (layout.positions, layout.embedding),
        "embeddings.norm.weight": (layout.embedding,),
        "embeddings.norm.bias": (layout.embedding,),
    }
    if layout.segments:
        shapes["embeddings.segments.weight"] = (layout.segments, layout.embedding)

    linears = {}
    if layout.embedding != hidden:
        linears["embeddings.widen"] = (hidden, layout.embedding)
    for index in range(layout.layers):
        prefix = f"layers.{index}."
        linears[f"{prefix}attention.qkv"] = (3 * attended, hidden)
        linears[f"{prefix}attention.output"] = (hidden, attended)
        linears[f"{prefix}feed_forward.inner"] = (layout.inner, hidden)
        linears[f"{prefix}feed_forward.output"] = (hidden, layout.inner)
        for norm in NORMS:
            shapes[f"{prefix}{norm}.weight"] = (hidden,)
            shapes[f"{prefix}{norm}.bias"] = (hidden,)
    for name, (outputs, inputs) in linears.items():
        shapes[f"{name}.weight"] = (outputs, inputs)
        shapes[f"{name}.bias"] = (outputs,)
    return shapes


def is_linear(name: str, shape: Sequence[int]) -> bool:
    """Whether a parameter is the weight of a linear layer, not a table of embeddings."""
    return len(shape) == 2 and not name.endswith(("positions.weight", "segments.weight"))


def contiguous(values: NDArray[Any], kind: Any) -> NDArray[Any]:
    return np.ascontiguousarray(values, kind)


def address(values: NDArray[Any] | None) -> int | None:
    """Of the first number. The caller keeps the array."""
    return None if values is None else values.ctypes.data


class PackedTable:
    """A table whose rows have few bits for each number, with a scale for each 32 (formats/packed.py)."""

    def __init__(self, core: Core, codes: NDArray[np.uint8], scales_RG: Array, bits: int) -> None:
        """codes: of all numbers. scales_RG: [rows, groups], float32."""
        self.codes = contiguous(codes, np.uint8)
        self.scales_RG = contiguous(scales_RG, np.float32)
        self.bits = bits
        self.shape = (len(scales_RG), 32 * scales_RG.shape[1])
        self.core = core

    def rows(self, ids_n: NDArray[Any]) -> Array:
        """Rows of the table, float32 [n, columns]. InputError for an id out of range."""
        ids_n = contiguous(ids_n, np.int32)
        out = np.empty((len(ids_n), self.shape[1]), np.float32)
        unpack = self.core.function(
            "unpack_rows",
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_int,
            ctypes.c_int64,
            ctypes.c_int64,
            ctypes.c_void_p,
            ctypes.c_int64,
            ctypes.c_void_p,
            returns=ctypes.c_int64,
        )
        done = unpack(
            address(self.codes),
            address(self.scales_RG),
            self.bits,
            *self.shape,
            address(ids_n),
            len(ids_n),
            address(out),
        )
        if done < len(ids_n):
            raise InputError(f"token {done} has the id {ids_n[done]}; ids are from 0 to {self.shape[0] - 1}")
        return out
