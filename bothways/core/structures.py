"""The structures of encode.c, as ctypes has them, and the addresses that they hold."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bothways.core.layout import LINEARS, NORMS, SIZES
from bothways.core.library import LONG, POINTER

Array = NDArray[np.float32]


class CFormat(ctypes.Structure):
    _fields_ = (
        ("kind", LONG),
        ("factor", POINTER),
        ("zero", POINTER),
    )


class CLinear(ctypes.Structure):
    _fields_ = (
        ("panels", POINTER),
        ("bias", POINTER),
        ("inputs", LONG),
        ("outputs", LONG),
        ("format", CFormat),
        ("scale", POINTER),
        ("offset", POINTER),
    )


class CNorm(ctypes.Structure):
    _fields_ = (("scale", POINTER), ("shift", POINTER))


class CLayer(ctypes.Structure):
    _fields_ = (*((name, CLinear) for name in LINEARS), *((name, CNorm) for name in NORMS))


class CAdapter(ctypes.Structure):
    _fields_ = (
        ("qkv_down", CLinear),
        ("qkv_up", CLinear),
        ("inner_down", CLinear),
        ("inner_up", CLinear),
        ("gates", POINTER),
    )


class CModel(ctypes.Structure):
    _fields_ = (
        ("kind", LONG),
        ("activation", LONG),
        *((name, LONG) for name in SIZES),
        ("epsilon", ctypes.c_double),
        ("position_rows", POINTER),
        ("segment_rows", POINTER),
        ("norm", CNorm),
        ("widen", CLinear),
        ("layers", ctypes.POINTER(CLayer)),
    )


class CRaggedBatch(ctypes.Structure):
    _fields_ = (
        ("words", POINTER),
        ("num_words", LONG),
        ("ids", POINTER),
        ("segments", POINTER),
        ("starts", POINTER),
        ("num_texts", LONG),
        ("rows", POINTER),
        ("num_rows", LONG),
        ("out", POINTER),
        ("parts", POINTER),
        ("first_parts", POINTER),
        ("adapters", POINTER),
    )


def address(values: NDArray[Any] | None) -> int | None:
    """Of the first number; the caller keeps the array."""
    return None if values is None else values.ctypes.data
