"""The encoder of BERT in C (encode.c), called through ctypes, which frees Python's lock meanwhile.

Letters: T tokens of all texts of a batch, R tokens that are read, H hidden size, E embedding size, V rows of a table of
words, O outputs and I inputs of a linear layer.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from threading import local
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bothways.base.errors import InputError
from bothways.core.layout import (
    ACTIVATIONS,
    LINEARS,
    NORMS,
    SIZES,
    CoreLayout,
    is_linear,
    parameter_shapes,
)
from bothways.core.library import LONG, Core
from bothways.core.structures import (
    Array,
    CFormat,
    CLayer,
    CLinear,
    CModel,
    CNorm,
    CRaggedBatch,
    address,
)

if TYPE_CHECKING:
    from bothways.core.statements import CoreAdapter

KINDS = {"float32": 0, "bfloat16": 1, "int8": 2}
NUMBERS: dict[str, Any] = {  # of packed weights; numpy lacks bfloat16
    "float32": np.float32,
    "bfloat16": np.uint16,
    "int8": np.int8,
}
MAX_THREADS = 64  # of one call
WHOLE_INPUTS = 64  # inputs that are packed without further ones, in all formats
MAX_INPUTS = 1 << 16  # of an int8 layer, whose sums are integers of 32 bits
MAX_INTEGER = 255  # of an input of an int8 layer


class Int8Scales:
    """What an int8 layer has beside its integers and its bias (model/int8.py).

    weight_scale: float32 [O].
    input_factor: float32 [I].
    input_scale, input_zero: float32 [1].
    sum_scale: the scale of sums of products, float32 [O].
    offset: `input_zero` times the sum of an output's integers, which sums of products have too much, int32 [O].
    """

    def __init__(self, outputs: int, inputs: int) -> None:
        self.weight_scale = np.zeros(outputs, np.float32)
        self.input_factor = np.zeros(inputs, np.float32)
        self.input_scale = np.zeros(1, np.float32)
        self.input_zero = np.zeros(1, np.float32)
        self.sum_scale = np.zeros(outputs, np.float32)
        self.offset = np.zeros(outputs, np.int32)


@dataclass(frozen=True)
class TextParts:
    """Texts and the statements behind them, as encode.c has them.

    starts: each part's first token, and the end of the last one, int64 [P + 1].
    first_parts: each text's first part, and the number of parts, int64 [N + 1].
    """

    starts: NDArray[np.int64]
    first_parts: NDArray[np.int64]


class CoreEncoder:
    """An encoder, whose weights are put into it one after another. Any number of threads may call it then."""

    def __init__(self, core: Core, layout: CoreLayout, dtype: str, int8: Collection[str] = ()) -> None:
        """An encoder without weights.

        core: what computes.
        layout: the sizes.
        dtype: "float32"; or "bfloat16", for the weights and inputs of products.
        int8: names of linear layers that are int8, such as "layers.0.attention.qkv".

        InputError for what the core cannot compute.
        """
        if dtype not in core.formats:
            raise InputError(f"dtype {dtype!r:.40}: the core has {' and '.join(core.formats)} on this processor")
        if refusal := layout.refusal():
            raise InputError(f"the core cannot compute this model: {refusal}")
        self.core = core
        self.layout = layout
        self.dtype = dtype
        self.kind = KINDS[dtype]
        self.shapes = parameter_shapes(layout)
        self.scales = {name: Int8Scales(*self._int8_shape(name)) for name in int8}

        # Matrices of linear layers in the order in which products read them; all else as it is.
        self.panels: dict[str, NDArray[np.uint8]] = {}
        self.tables: dict[str, Array] = {}
        for name, shape in self.shapes.items():
            if is_linear(name, shape):
                kind = KINDS[self.format_of(name)]
                self.panels[name] = np.zeros(core.packed_size(kind, *shape), np.uint8)
            else:
                self.tables[name] = np.zeros(shape, np.float32)
        self._prepare()

    def _int8_shape(self, layer: str) -> tuple[int, int]:
        """The outputs and inputs of a layer that is int8. InputError if there is none, or if sums could overflow."""
        name = f"{layer}.weight"
        if name not in self.shapes or not is_linear(name, self.shapes[name]):
            raise InputError(f"{layer}: the model has no such linear layer")
        outputs, inputs = self.shapes[name]
        if inputs > MAX_INPUTS:
            raise InputError(f"{layer} has {inputs} inputs; int8 layers have at most {MAX_INPUTS}")
        return outputs, inputs

    def format_of(self, name: str) -> str:
        """The number format of a weight of a linear layer."""
        return "int8" if name.removesuffix(".weight") in self.scales else self.dtype

    # --- parameters ---------------------------------------------------------------------------------------------------

    def put(self, name: str, start: int, rows: Array) -> None:
        """Set the rows of a parameter from `start` on, float32; matrices are [out, in]."""
        shape = self.shapes[name]
        end = start + len(rows)
        if rows.shape[1:] != shape[1:] or not 0 <= start <= end <= shape[0]:
            raise ValueError(f"{name}: rows {rows.shape} from {start} on do not fit {shape}")

        if name in self.tables:
            self.tables[name][start:end] = rows
            return
        if self.format_of(name) == "int8":
            raise ValueError(f"{name}: the layer is int8")
        rows = np.ascontiguousarray(rows, np.float32)
        self.core.pack(self.kind, address(rows), start, end, shape[1], address(self.panels[name]))

    def put_int8(
        self,
        layer: str,
        *,
        weight_int8: NDArray[np.int8],
        weight_scale: Array,
        bias: Array,
        input_factor: Array,
        input_scale: float | Array,
        input_zero: int | NDArray[Any],
    ) -> None:
        """Set all of a layer that is int8, with the tensors of model/int8.py.

        layer: its name.
        weight_int8: [O, I]
        weight_scale, bias: [O]
        input_factor: [I]
        input_scale: one number.
        input_zero: likewise, from 0 to 255.

        ValueError for what does not fit.
        """
        outputs, inputs = self.shapes[f"{layer}.weight"]
        shapes = (weight_int8.shape, weight_scale.shape, bias.shape, input_factor.shape)
        expected = ((outputs, inputs), (outputs,), (outputs,), (inputs,))
        if shapes != expected or weight_int8.dtype != np.int8:
            raise ValueError(f"{layer}: {weight_int8.dtype} {shapes} do not fit int8 {expected}")
        if not 0 <= input_zero <= MAX_INTEGER:
            raise ValueError(f"{layer}: input_zero ({input_zero}) must be from 0 to {MAX_INTEGER}")

        scales = self.scales[layer]
        scales.weight_scale[:] = weight_scale
        scales.input_factor[:] = input_factor
        scales.input_scale[:] = input_scale
        scales.input_zero[:] = input_zero
        scales.sum_scale[:] = scales.weight_scale * scales.input_scale
        scales.offset[:] = weight_int8.sum(1, dtype=np.int32) * int(input_zero)
        self.tables[f"{layer}.bias"][:] = bias

        rows = np.ascontiguousarray(weight_int8)
        panels = self.panels[f"{layer}.weight"]
        self.core.pack(KINDS["int8"], address(rows), 0, outputs, inputs, address(panels))

    def get(self, name: str) -> Array:
        """A parameter, float32, matrices [out, in], rounded to the number format."""
        if name in self.tables:
            return self.tables[name]

        rows_OI = self.stored(name)
        number_format = self.format_of(name)
        if number_format == "float32":
            return rows_OI
        if number_format == "bfloat16":
            return (rows_OI.astype(np.uint32) << 16).view(np.float32)

        scales = self.scales[name.removesuffix(".weight")]
        values_OI: Array = rows_OI.astype(np.float32)
        values_OI *= scales.sum_scale[:, None]
        values_OI *= scales.input_factor
        return values_OI

    def get_int8(self, layer: str, end: str) -> Array:
        """A tensor of an int8 layer, float32. end: of its name, but for the bias: "weight_int8", "weight_scale",
        "input_factor", "input_scale" or "input_zero"."""
        if end == "weight_int8":
            return self.stored(f"{layer}.weight").astype(np.float32)
        values: Array = getattr(self.scales[layer], end)
        return values

    def stored(self, name: str) -> NDArray[Any]:
        """The weight of a linear layer [out, in] as the core has it: float32, bits of bfloat16, or integers."""
        outputs, inputs = self.shapes[name]
        number_format = self.format_of(name)
        numbers = self.panels[name].view(NUMBERS[number_format])
        # Outputs of a panel, which a matrix with one output fills.
        width = self.core.packed_size(KINDS[number_format], 1, WHOLE_INPUTS) // (WHOLE_INPUTS * numbers.itemsize)
        per_word = 4 // numbers.itemsize

        num_panels = -(-outputs // width)
        panels = numbers.reshape(num_panels, -1, width, per_word)
        rows_OI: NDArray[Any] = panels.swapaxes(1, 2).reshape(num_panels * width, -1)
        return rows_OI[:outputs, :inputs]

    # --- computing ----------------------------------------------------------------------------------------------------

    def __call__(
        self,
        words_VE: Array,
        ids_T: NDArray[np.int32],
        segments_T: NDArray[Any] | None,
        lengths: Sequence[int] | NDArray[Any],
        rows_R: NDArray[np.int64] | None = None,
        threads: int = 1,
    ) -> Array:
        """The last hidden states [T, H]; with rows_R, of the tokens that are read, [R, H].

        words_VE: a table of words, of which ids_T are rows.
        segments_T: None: all 0.
        lengths: number of tokens of each text.
        rows_R: ascending.
        threads: as many as can be started.

        InputError for what is out of range.
        """
        lengths_N = np.asarray(lengths, np.int64)
        rows_R = None if rows_R is None else np.ascontiguousarray(rows_R, np.int64)
        return self._compute(words_VE, ids_T, segments_T, lengths_N, rows_R, threads)

    def read_statements(
        self,
        words_VE: Array,
        ids_T: NDArray[np.int32],
        parts: TextParts,
        adapter: CoreAdapter | None = None,
        threads: int = 1,
    ) -> Array:
        """The last hidden states [T, H] of texts and of the statements behind them.

        words_VE: a table of words, of which ids_T are rows.
        parts: the tokens of each text and of each statement.
        adapter: of the statements.

        InputError for what is out of range.
        """
        lengths_N = np.diff(parts.starts[parts.first_parts])
        return self._compute(
            words_VE,
            ids_T,
            segments_T=None,
            lengths_N=lengths_N,
            rows_R=None,
            threads=threads,
            parts=parts,
            adapter=adapter,
        )

    def _compute(
        self,
        words_VE: Array,
        ids_T: NDArray[np.int32],
        segments_T: NDArray[Any] | None,
        lengths_N: NDArray[np.int64],
        rows_R: NDArray[np.int64] | None,
        threads: int,
        parts: TextParts | None = None,
        adapter: CoreAdapter | None = None,
    ) -> Array:
        words_VE = np.ascontiguousarray(words_VE, np.float32)
        ids_T = np.ascontiguousarray(ids_T, np.int32)
        segments_T = None if segments_T is None else np.ascontiguousarray(segments_T, np.int32)
        self._check_shapes(words_VE, ids_T, segments_T)

        starts = np.zeros(len(lengths_N) + 1, np.int64)
        np.cumsum(lengths_N, out=starts[1:])
        num_tokens = len(ids_T)
        longest = max(0, int(lengths_N.max(initial=0)))

        num_rows = num_tokens if rows_R is None else len(rows_R)
        out = np.empty((num_rows, self.layout.hidden), np.float32)
        batch = CRaggedBatch(
            words=address(words_VE),
            num_words=len(words_VE),
            ids=address(ids_T),
            segments=address(segments_T),
            starts=address(starts),
            num_texts=len(lengths_N),
            rows=address(rows_R),
            num_rows=num_rows,
            out=address(out),
            parts=parts and address(parts.starts),
            first_parts=parts and address(parts.first_parts),
            adapters=adapter and adapter.address,
        )

        threads = max(1, min(threads, MAX_THREADS))
        model = ctypes.addressof(self._model)
        longest = min(longest, num_tokens)
        size = self.core.memory_size(model, num_tokens, longest, adapter is not None, threads)
        memory = self._memory(size)
        place = LONG()
        fault = self.core.encode_batch(
            model,
            ctypes.addressof(batch),
            num_tokens,
            longest,
            threads,
            address(memory),
            ctypes.addressof(place),
        )
        if fault:
            raise self._error(fault, place.value, ids_T, len(words_VE))
        return out

    def _check_shapes(self, words_VE: Array, ids_T: NDArray[Any], segments_T: NDArray[Any] | None) -> None:
        if words_VE.ndim != 2 or words_VE.shape[1] != self.layout.embedding:
            raise ValueError(f"words {words_VE.shape}: expected [V, {self.layout.embedding}]")
        if ids_T.ndim != 1:
            raise ValueError(f"ids {ids_T.shape}: expected [T]")
        if segments_T is not None and segments_T.shape != ids_T.shape:
            raise ValueError(f"segments {segments_T.shape}: expected {ids_T.shape}, one for each token")

    def _error(self, fault: int, place: int, ids_T: NDArray[np.int32], num_words: int) -> InputError:
        """The error for a fault that encode.c has found, at the index of a text, token or row."""
        layout = self.layout
        limit = layout.positions - layout.position_offset
        last = len(ids_T) - 1
        value = ids_T[place] if place <= last else ""
        messages = {
            1: f"text {place}: lengths must be 0 or more, and sum up to the {len(ids_T)} tokens",
            2: f"token {place} has the id {value}; ids are from 0 to {num_words - 1}",
            3: f"token {place}: segments are from 0 to {layout.segments - 1}",
            4: f"text {place} has more than {limit} tokens, for which the model has positions",
            5: f"row {place} of the tokens that are read: rows must ascend, from 0 to {last}",
            6: f"text {place}: it and its statements must have all of its tokens",
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
        names = ("core", "layout", "dtype", "kind", "shapes", "scales", "panels", "tables")
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare()

    def _prepare(self) -> None:
        """Make what cannot be sent to another process."""
        layout = self.layout
        distinct = [self._layer(f"layers.{index}.") for index in range(layout.layers)]
        layers = [distinct[index * layout.layers // layout.depth] for index in range(layout.depth)]
        self._local = local()
        self._layers = (CLayer * layout.depth)(*layers)
        self._model = CModel(
            kind=self.kind,
            activation=ACTIVATIONS[layout.activation],
            **{name: getattr(layout, name) for name in SIZES},
            epsilon=layout.epsilon,
            position_rows=address(self.tables["embeddings.positions.weight"]),
            segment_rows=address(self.tables.get("embeddings.segments.weight")),
            norm=self._norm("embeddings.norm"),
            widen=CLinear() if layout.embedding == layout.hidden else self._linear("embeddings.widen"),
            layers=self._layers,
        )

    def _layer(self, prefix: str) -> CLayer:
        linears = {name: self._linear(prefix + name) for name in LINEARS}
        norms = {name: self._norm(prefix + name) for name in NORMS}
        return CLayer(**linears, **norms)

    def _linear(self, name: str) -> CLinear:
        outputs, inputs = self.shapes[f"{name}.weight"]
        linear = CLinear(
            panels=address(self.panels[f"{name}.weight"]),
            bias=address(self.tables[f"{name}.bias"]),
            inputs=inputs,
            outputs=outputs,
            format=CFormat(kind=self.kind),
        )
        if scales := self.scales.get(name):
            linear.format = CFormat(
                kind=KINDS["int8"],
                factor=address(scales.input_factor),
                zero=address(scales.input_zero),
            )
            linear.scale = address(scales.sum_scale)
            linear.offset = address(scales.offset)
        return linear

    def _norm(self, name: str) -> CNorm:
        return CNorm(scale=address(self.tables[f"{name}.weight"]), shift=address(self.tables[f"{name}.bias"]))
