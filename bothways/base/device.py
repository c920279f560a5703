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
from importlib.util import find_spec
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
        raise _unavailable(name) from None
    return device


def _unavailable(name: str) -> UsageError:
    reason = cuda_problem() if str(name).startswith("cuda") else ""
    because = f" ({reason})" if reason else ""
    return UsageError(f"device {name!r} is not available{because}; choose one of {', '.join(available_devices())}")


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


class HostCopy:
    """Values on their way from a device to the processor, which goes on meanwhile.

    A GPU copies them into pinned memory when it has computed them. To read them then waits for the work that was queued
    before this object was made, and for nothing that was queued after it. In other memory nothing is on its way.
    """

    def __init__(self, values: Tensor) -> None:
        import torch

        is_on_gpu = values.device.type == "cuda"
        self.values = values.to("cpu", non_blocking=is_on_gpu)
        self.arrived: torch.cuda.Event | None = None
        if is_on_gpu:
            self.arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self.arrived.record(torch.cuda.current_stream(values.device))

    def read(self) -> Tensor:
        """The values."""
        if self.arrived is not None:
            self.arrived.synchronize()
        return self.values


# Files by which the drivers of NVIDIA, of AMD, and of both in Windows' Linux can be reached.
DRIVERS = ("/dev/nvidiactl", "/dev/nvhost-ctrl", "/dev/kfd", "/dev/dxg")


def has_gpu() -> bool:
    """Whether torch has a GPU for device "auto". It is only asked, and imported, where there is a driver."""
    if sys.platform == "linux" and not any(map(os.path.exists, DRIVERS)):
        return False
    if sys.platform == "darwin" or not find_spec("torch"):
        return False
    import torch

    return torch.cuda.is_available()


def available_devices() -> list[str]:
    """The names of this machine's devices."""
    import torch

    names = ["auto", "cpu"]
    num_gpus = torch.cuda.device_count()
    if num_gpus:
        names.append("cuda")
    names += [f"cuda:{index}" for index in range(num_gpus)]
    if torch.backends.mps.is_available():
        names.append("mps")
    return names


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """`auto`: bf16 if the device multiplies matrices faster in it, else float32."""
    import torch

    if name == "auto":
        return torch.bfloat16 if has_fast_bf16(device) else torch.float32
    full_name = ALIASES.get(name, name)
    if full_name not in DTYPES:
        raise InputError(f"dtype {name!r} is not supported; choose one of auto, {', '.join(DTYPES)}")
    dtype: torch.dtype = getattr(torch, full_name)
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
    if device.type != "cpu":
        return False
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16"))


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

    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "processor": processor_name(),
        "kernels": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
    }


@cache
def measure_peak_flops(device: torch.device, dtype: torch.dtype, seconds: float = 0.3) -> float:
    """Measured FLOPS of large matrix products: the best of the repetitions in `seconds`, once per process."""
    import torch

    size = 8192 if device.type == "cuda" else 1024
    noise = torch.Generator(device).manual_seed(0)
    left, right = (torch.randn(size, size, device=device, generator=noise).to(dtype) for _ in range(2))

    best = float("inf")
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or best == float("inf"):
        start = time.perf_counter()
        torch.mm(left, right)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - start)

    return 2 * size**3 / best


STEPS_BEFORE_CAP = 100  # steps of a run before `cap_retained_memory` is called
# Options of glibc's mallopt.
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
M_MMAP_MAX = -4


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
    trim = _glibc("malloc_trim")
    if trim:
        trim(0)


def _mallopt(options: Mapping[int, int]) -> None:
    """Set malloc options; does nothing without glibc."""
    mallopt = _glibc("mallopt")
    if mallopt:
        for option, value in options.items():
            mallopt(option, value)


def _glibc(name: str) -> Any:
    """A function of the C library; None where it has none of this name."""
    if not sys.platform.startswith("linux"):
        return None
    return getattr(ctypes.CDLL(None), name, None)


# --- threads ----------------------------------------------------------------------------------------------------------


def num_cores() -> int:
    """The number of CPU cores available to this process."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_threads = 0  # that were set; 0: none


def num_threads() -> int:
    """Threads that compute: torch's where it is loaded, else as set, else OMP_NUM_THREADS, at most the cores."""
    torch = sys.modules.get("torch")
    if torch:
        return int(torch.get_num_threads())
    if _threads:
        return _threads

    limit = os.environ.get("OMP_NUM_THREADS", "")
    if limit.isdigit() and int(limit):
        return min(int(limit), num_cores())
    return num_cores()


def set_num_threads(number: int) -> None:
    """Set the number of threads that compute: of torch, else of numpy's matrix products."""
    global _threads
    torch = sys.modules.get("torch")
    if torch:
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
        self.lock = Lock()
        self.open = 0
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
