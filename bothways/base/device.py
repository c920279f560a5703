"""Device and dtype: resolve `auto`, describe hardware, measure FLOPS, manage threads and memory.

Torch is imported where it is used."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from bothways.base.errors import InputError, UsageError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

DTYPES = ("float32", "bfloat16", "float16")
ALIASES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def choose_device(name: str) -> torch.device:
    """`auto`: CUDA if available, else the CPU. UsageError if this machine lacks the device."""
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        if device.type == "meta":  # tensors without data
            raise RuntimeError
        if device.type != "cuda":
            torch.empty(1, device=device)
        elif (device.index or 0) >= torch.cuda.device_count():  # a tensor would start CUDA on a GPU of another process
            raise RuntimeError
    except (RuntimeError, AssertionError, TypeError):  # torch's message is about its own build
        reason = cuda_problem() if str(name).startswith("cuda") else ""
        names = ", ".join(available_devices())
        raise UsageError(
            f"device {name!r} is not available{reason and f' ({reason})'}; choose one of {names}"
        ) from None
    return device


def cuda_problem() -> str:
    """Why torch can use no GPU: its build, the driver, or none that is visible; "" if it can."""
    import torch

    if torch.version.cuda is None:
        return f"PyTorch {torch.__version__} is built without CUDA"
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1"):
        return f"CUDA_VISIBLE_DEVICES is {os.environ['CUDA_VISIBLE_DEVICES']!r}"
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError) as error:
        return str(error).strip().split("\n")[0].split(". ")[0]
    return ""


def copy_to(values: Tensor, device: torch.device) -> Tensor:
    """The values on a device. The processor does not wait for a GPU: it copies from pinned memory."""
    if device.type == "cuda" and values.device.type == "cpu":
        values = values.pin_memory()
    return values.to(device, non_blocking=device.type != "mps")


def available_devices() -> list[str]:
    """The names of this machine's devices."""
    import torch

    gpus = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    apple = ["mps"] if torch.backends.mps.is_available() else []
    return ["auto", "cpu", *(["cuda"] if gpus else []), *gpus, *apple]


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """`auto`: bf16 if the device multiplies matrices faster in it, else float32."""
    import torch

    if name == "auto":
        return torch.bfloat16 if has_fast_bf16(device) else torch.float32
    if ALIASES.get(name, name) not in DTYPES:
        raise InputError(f"dtype {name!r} is not supported; choose one of auto, {', '.join(DTYPES)}")
    dtype: torch.dtype = getattr(torch, ALIASES.get(name, name))
    return dtype


@contextmanager
def single_thread() -> Iterator[None]:
    """Run torch with one thread inside the block, so that its thread pool is not started.

    A process that is forked after the pool was started would wait for threads that it does not have.
    """
    import torch

    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)


def has_fast_bf16(device: torch.device) -> bool:
    """Whether the device has instructions for bf16 products (AVX512-BF16, AMX, Arm BF16; CUDA from Ampere on)."""
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    capabilities = torch.cpu.get_capabilities()
    return device.type == "cpu" and any(capabilities.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16"))


@cache
def processor_name() -> str:
    """The CPU model if the system reports it, else its architecture."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def describe_hardware(device: torch.device) -> dict[str, Any]:
    """The hardware properties that affect the order of summation, and so the last bits of results."""
    import torch

    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    kernels = torch.backends.cpu.get_cpu_capability()
    return {"device": name, "processor": processor_name(), "kernels": kernels, "threads": torch.get_num_threads()}


@cache
def measure_peak_flops(device: torch.device, dtype: torch.dtype, seconds: float = 0.3) -> float:
    """Measured FLOPS of large matrix products: the best of the repetitions in `seconds`, once per process."""
    import torch

    size = 8192 if device.type == "cuda" else 1024
    noise = torch.Generator(device).manual_seed(0)
    left, right = (torch.randn(size, size, device=device, generator=noise).to(dtype) for _ in range(2))
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end or best == float("inf"):
        start = time.perf_counter()
        torch.mm(left, right)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best


STEPS_BEFORE_CAP = 100  # steps of a run before `cap_retained_memory` is called
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4  # options of glibc's mallopt


def retain_freed_memory() -> None:
    """Make this process keep the memory it frees for later allocations.

    By default, glibc returns large blocks to the system at once, so every step allocates the same pages again. On a CPU
    that takes a tenth of a step, and 40 % of a step with padded batches and logits over the vocabulary (docs/LOG.md).
    """
    _mallopt({M_TRIM_THRESHOLD: 2**31 - 1, M_MMAP_MAX: 0})


def cap_retained_memory() -> None:
    """Keep the memory that is retained now, and return later growth to the system when it is freed.

    Batches differ in size, and so do their memory blocks. Small long-lived allocations fragment the free space into
    holes that are too small for the next batch, so without a cap the memory of a long run grows without bound
    (docs/LOG.md).
    """
    _mallopt({M_MMAP_THRESHOLD: 2**20, M_MMAP_MAX: 2**16})


def release_memory() -> None:
    """Return freed memory to the system.

    Batches differ in size, and allocations that outlive them (results, oneDNN kernels) fragment the free heap. Without
    this call it grows by about 9 MB a batch (docs/LOG.md).
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform.startswith("linux") else None
    if trim:
        trim(0)


def _mallopt(options: Mapping[int, int]) -> None:
    """Set malloc options; does nothing without glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform.startswith("linux") else None
    for option, value in options.items():
        if mallopt:
            mallopt(option, value)


# --- threads ----------------------------------------------------------------------------------------------------------


def num_cores() -> int:
    """The number of CPU cores available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_threads = 0  # that were set; 0: none


def num_threads() -> int:
    """Threads that compute: torch's where it is loaded, else as set, else OMP_NUM_THREADS, at most the cores."""
    if torch := sys.modules.get("torch"):
        return int(torch.get_num_threads())
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return _threads or min(int(limit) if limit.isdigit() and int(limit) else num_cores(), num_cores())


def set_num_threads(number: int) -> None:
    """Set the number of threads that compute: of torch, else of numpy's matrix products."""
    global _threads
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(number)
    elif number != _threads:
        _blas().limit(limits=number)
        os.environ["OMP_NUM_THREADS"] = str(number)  # which torch reads when it is loaded
        _threads = number


@cache
def _blas() -> Any:
    import numpy  # noqa: F401, loads its BLAS
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


class _SingleThread:
    """Blocks, in any thread, in which each of numpy's matrix products has one thread; they may overlap."""

    def __init__(self) -> None:
        self.lock, self.open = Lock(), 0
        self.limit: Any = None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self.lock:
            self.open += 1
            if self.open == 1:
                self.limit = _blas().limit(limits=1)
        try:
            yield
        finally:
            with self.lock:
                self.open -= 1
                if self.open == 0:
                    self.limit.restore_original_limits()


single_blas_thread = _SingleThread()
