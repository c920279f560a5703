"""Where to compute and in which number format: `auto` resolved once, by what the hardware is fast at."""

import ctypes
import platform
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch

from bothways.errors import InputError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
ALIASES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def choose_device(name: str) -> torch.device:
    """`auto`: a CUDA GPU where there is one, else the processor. InputError if this machine has no such device."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        if device.type == "meta":  # has no numbers
            raise RuntimeError
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, TypeError):  # torch's own text is about how torch was built
        there = ["auto", "cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
        there += ["mps"] if torch.backends.mps.is_available() else []
        raise InputError(f"device {name!r} cannot be used on this machine; one of {', '.join(there)} can") from None
    return device


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """`auto`: bf16 where the device multiplies matrices faster in it, else float32, which is exact."""
    if name == "auto":
        return torch.bfloat16 if fast_bf16(device) else torch.float32
    if ALIASES.get(name, name) not in DTYPES:
        raise InputError(f"dtype {name!r} is not supported; one of auto, {', '.join(DTYPES)} is")
    return DTYPES[ALIASES.get(name, name)]


@contextmanager
def one_thread() -> Iterator[None]:
    """Within it torch computes with one thread, so that its pool is not started: a process that is forked afterwards
    would wait for threads that it does not have."""
    number = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(number)


def fast_bf16(device: torch.device) -> bool:
    """Whether bf16 products run on units of their own (AVX512-BF16, AMX, Arm's BF16; CUDA from Ampere on)."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    able = torch.cpu.get_capabilities()
    return device.type == "cpu" and any(able.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16"))


@cache
def processor() -> str:
    """The processor's name if the system tells it, else its architecture."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def hardware() -> dict[str, Any]:
    """What, beside versions and number format, decides in which order sums are added, and so their last bits."""
    gpu = {"gpu": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}
    kernels = torch.backends.cpu.get_cpu_capability()
    return {"processor": processor(), "kernels": kernels, "threads": torch.get_num_threads(), **gpu}


def matrix_peak(device: torch.device, dtype: torch.dtype, seconds: float = 0.3) -> float:
    """Floating-point operations a second of big matrix products here, measured: the best of as many as fit the time."""
    size = 8192 if device.type == "cuda" else 1024
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end or best == float("inf"):
        began = time.perf_counter()
        torch.mm(left, right)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - began)
    return 2 * size**3 / best


SETTLED = 100  # steps of a run after which `settle_memory` is due
HEAP_SHRINKS, MMAP_FROM, MMAP_MOST = -1, -3, -4  # glibc's numbers of what mallopt sets


def keep_memory() -> None:
    """Have this process keep the memory it frees, for its next step.

    Linux's C library gives big blocks back at once, so that every step asks for the same pages anew: on a processor a
    tenth of our step, 40 % of a step with padded batches and scores of the whole vocabulary (docs/LOG.md).
    """
    _mallopt({HEAP_SHRINKS: 2**31 - 1, MMAP_MOST: 0})


def settle_memory() -> None:
    """Have it keep no more than it has by now: what finds no place in that is given back once it is free.

    Batches differ in size, and so do the blocks of each step; small ones that stay cut what lies between them into
    holes that fit none of the next, and a long run would grow without end (docs/LOG.md).
    """
    _mallopt({MMAP_FROM: 2**20, MMAP_MOST: 2**16})


def release_memory() -> None:
    """Give freed memory back to the system.

    Batches differ in size, and what stays in memory between them (results, oneDNN's kernels) cuts the free heap into
    pieces that do not fit the next one: without this it grows by some 9 MB a batch (docs/LOG.md).
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform.startswith("linux") else None
    if trim:
        trim(0)


def _mallopt(options: Mapping[int, int]) -> None:
    """Nothing where the C library is not Linux's."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform.startswith("linux") else None
    for option, value in options.items():
        if mallopt:
            mallopt(option, value)
