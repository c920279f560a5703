"""The library of the core: whether it is there, and for which instruction set of this processor it computes.

A library holds the same functions several times, each compiled for one instruction set; the best one that the processor
has is chosen once in a process.

Environment: BOTHWAYS_CORE=0 turns the core off; BOTHWAYS_CORE_ISA names an instruction set.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from bothways.base.errors import InputError, UsageError
from bothways.core.build import SUFFIXES, library_name, this_system

FOLDER = Path(__file__).parent
SUFFIX = SUFFIXES[this_system()]
SWITCH = "BOTHWAYS_CORE"
CHOICE = "BOTHWAYS_CORE_ISA"
# Instruction sets, best first, with the bit that stands for each in processor.c.
SETS = {"amx": 8, "avx512_bf16": 4, "avx512": 2, "avx2": 1, "neon": 16}
AMD_DOTS = 32  # the bit for a processor whose products in bfloat16 are faster than those in float32, without AMX
# On which systems and instruction sets all tests of the core have run. Others are compiled, but only chosen by name.
TESTED = {
    ("linux", "x86_64"): ("amx", "avx512_bf16", "avx512", "avx2"),
    ("linux", "aarch64"): ("neon",),
}

INT = ctypes.c_int
LONG = ctypes.c_int64
DOUBLE = ctypes.c_double
POINTER = ctypes.c_void_p
# What each function of C returns, and its arguments.
SIGNATURES: dict[str, tuple[Any, ...]] = {
    # encode.c
    "memory_size": (LONG, POINTER, LONG, LONG, INT, INT),
    "encode_batch": (INT, POINTER, POINTER, LONG, LONG, INT, POINTER, POINTER),
    "attention_bytes": (LONG, LONG, LONG),
    "kind_of_attention": (INT, INT, LONG),
    "attend_ragged": (None, INT, POINTER, POINTER, LONG, LONG, LONG, POINTER, POINTER),
    "add_norm": (None, POINTER, POINTER, LONG, LONG, POINTER, POINTER, DOUBLE),
    "activate": (None, INT, INT, POINTER, LONG),
    "store_inputs": (None, POINTER, POINTER, LONG, POINTER),
    "multiply_rows": (None, POINTER, POINTER, LONG, INT, POINTER, POINTER),
    # product.c
    "packed_size": (LONG, INT, LONG, LONG),
    "pack": (None, INT, POINTER, LONG, LONG, LONG, POINTER),
    # packed.c
    "unpack_rows": (LONG, POINTER, POINTER, INT, LONG, LONG, POINTER, LONG, POINTER),
    "scale_rows": (LONG, POINTER, POINTER, LONG, LONG, POINTER, LONG, POINTER),
}


class Core:
    """The functions of the library for one instruction set, as attributes: core.encode_batch(...).

    formats: the number formats in which it computes, the fastest last.
    """

    def __init__(self, library: ctypes.CDLL, instruction_set: str) -> None:
        self.library = library
        self.instruction_set = instruction_set
        has_fast_dots = instruction_set == "avx512_bf16" and library.instruction_sets() & AMD_DOTS
        self.formats: tuple[str, ...] = ("float32",)
        if instruction_set == "amx" or has_fast_dots:
            self.formats = ("float32", "bfloat16")
        elif instruction_set == "avx512_bf16":
            self.formats = ("bfloat16", "float32")

        for name, (returns, *arguments) in SIGNATURES.items():
            function = getattr(library, f"{name}_{instruction_set}")
            function.restype = returns
            function.argtypes = arguments
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:
        """Of functions that are not there; type checkers learn from this method that there are some."""
        raise AttributeError(name)

    def __reduce__(self) -> tuple[Any, ...]:
        return core_for, (self.instruction_set,)


@dataclass(frozen=True)
class Absence:
    """Why the core does not compute."""

    reason: str


@cache
def find_core() -> Core | Absence:
    """The core of this process. UsageError if the environment names an instruction set that is not there."""
    if os.environ.get(SWITCH) == "0":
        return Absence(f"{SWITCH} is 0")

    file = FOLDER / library_name(FOLDER, SUFFIX)
    if not file.exists():
        return Absence(
            "it is not compiled; install a wheel of the platform, or with a C compiler or BOTHWAYS_BUILD=zig"
        )
    try:
        library = ctypes.CDLL(str(file))
    except OSError as error:
        return Absence(f"its library cannot be loaded ({error})")
    return choose(library, os.environ.get(CHOICE, ""))


def core_for(instruction_set: str) -> Core:
    """The core of a process that receives a model, whose weights are packed for an instruction set.

    InputError if it is another one here."""
    core = find_core()
    if isinstance(core, Absence):
        raise InputError(f"a model of the core cannot be computed here: {core.reason}")
    if core.instruction_set != instruction_set:
        raise InputError(
            f"a model that was packed for {instruction_set} cannot be computed for {core.instruction_set}; load it here"
        )
    return core


def choose(library: ctypes.CDLL, name: str) -> Core | Absence:
    """The functions for an instruction set; "": the best one that has been tested on such a system."""
    available = available_sets(library)
    if name:
        if name not in available:
            names = ", ".join(available) or "none"
            raise UsageError(f"{CHOICE} is {name!r:.40}; this processor and library have {names}")
        return Core(library, name)

    system = (sys.platform, platform.machine().lower())
    for instruction_set in available:
        if instruction_set in TESTED.get(system, ()):
            return Core(library, instruction_set)
    if available:
        return Absence(f"it has not been tested on {' '.join(system)}; {CHOICE}={available[0]} chooses it")
    return Absence("the processor has none of the instruction sets that it is compiled for")


def available_sets(library: ctypes.CDLL) -> list[str]:
    """The instruction sets of this processor that a library is compiled for, best first."""
    bits = library.instruction_sets()
    return [name for name, bit in SETS.items() if bits & bit and hasattr(library, f"encode_batch_{name}")]
