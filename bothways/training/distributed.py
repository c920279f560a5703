"""Distributed training with torchrun: data parallel (DDP, Li 2020) or sharded (FSDP, Zhao 2023).

Each process computes its share of the micro-batches of every step. Rank and world size come from the environment that
torchrun sets; a single process uses the same interface. Processes meet also after a restart, and those that the others
wait for are logged.
"""

import os
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from threading import Event, Thread
from typing import Any, TypeVar
from uuid import uuid4

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from bothways.base.errors import InputError, UsageError, flag
from bothways.base.log import logger, muted
from bothways.base.progress import format_duration
from bothways.model.losses import Losses
from bothways.model.parameters import CPU
from bothways.text.batch import Batch
from bothways.training.signals import Stopped

SILENCE = 300.0  # seconds after which a process that the main process waits for is named
LOOKS = 10  # at the other processes, in this time
POLL = 0.02  # seconds between looks for processes that are starting
TIMEOUT = timedelta(hours=12)  # other processes wait while the main process reads a large corpus

Value = TypeVar("Value")


@dataclass(frozen=True)
class Processes:
    """Rank (0..world_size-1) and world size. All processes must call these methods in the same order."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0

    @property
    def is_main_process(self) -> bool:
        """Whether this is rank 0, which writes files and logs."""
        return self.rank == 0

    def device(self, device: torch.device) -> torch.device:
        """The GPU of this process if `device` is CUDA."""
        if device.type == "cuda" and self.world_size > 1:
            return torch.device("cuda", self.local_rank)
        return device

    def gather(self, value: Value) -> list[Value]:
        """The values of all processes, by rank."""
        if self.world_size == 1:
            return [value]
        self.arrive()
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value)
        return values

    def broadcast(self, value: Value | None) -> Value:
        """The value of the main process."""
        values: list[Any] = [value]
        if self.world_size > 1:
            self.arrive()
            dist.broadcast_object_list(values, src=0)
        return values[0]

    def arrive(self) -> None:
        """Note that this process has come to a point where all wait for each other."""
        for arrivals in _arrivals:
            arrivals.add()

    def barrier(self) -> None:
        """Wait for all processes."""
        self.gather(None)

    def broadcast_tensors(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The tensors of the main process, on the CPU. tensors: ignored in the other processes."""
        if self.world_size == 1:
            return tensors

        shapes = self.broadcast({name: (value.shape, value.dtype) for name, value in tensors.items()})
        if not self.is_main_process:
            tensors = {name: torch.empty(shape, dtype=dtype) for name, (shape, dtype) in shapes.items()}
        for value in tensors.values():
            dist.broadcast(value, src=0)
        return tensors

    def sync_parameters(self, module: nn.Module) -> None:
        """Copy the main process's parameters and buffers to all processes."""
        if self.world_size > 1:
            for value in module.state_dict().values():
                dist.broadcast(value, src=0)


SINGLE_PROCESS = Processes()
# Kept alive: if DDP frees a gloo group after an error, the process would hang.
_groups: list[Any] = []
# Of the group of this process, if there is one.
_arrivals: list["Arrivals"] = []


@contextmanager
def process_group(device: torch.device = CPU, timeout: timedelta = TIMEOUT) -> Iterator[Processes]:
    """Initialize torch.distributed in this context: gloo on CPUs, nccl on GPUs. SINGLE_PROCESS without torchrun.
    Only the main process logs.

    InputError if the connection to another process is lost, which also ends the wait for it.
    UsageError if the device is CUDA and this process has no GPU of its own, or if it is the GPU of another process."""
    world_size = _read_env_int("WORLD_SIZE", 1)
    if world_size == 1:
        yield SINGLE_PROCESS
        return

    missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]
    if missing:
        raise InputError(f"WORLD_SIZE is {world_size}, but {', '.join(missing)} are not set; start with torchrun")
    processes = Processes(
        rank=_read_env_int("RANK", 0),
        world_size=world_size,
        local_rank=_read_env_int("LOCAL_RANK", 0),
    )
    if device.type == "cuda":
        _take_gpu(device, processes.local_rank)

    # Python objects are sent through gloo, so they do not wait for the GPU.
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    shared, _, _ = next(rendezvous("env://", timeout=timeout))
    store = new_store(shared, processes.rank, world_size)
    dist.init_process_group(
        backend,
        store=store,
        rank=processes.rank,
        world_size=world_size,
        timeout=timeout,
    )
    _groups.append(dist.group.WORLD)
    _arrivals.append(Arrivals(store, processes.rank, processes.gather(socket.gethostname())))

    try:
        with nullcontext() if processes.is_main_process else muted():
            yield processes
        processes.barrier()
    except Stopped:
        # torchrun would kill processes that are still writing.
        processes.barrier()
        raise
    except RuntimeError as error:
        if "gloo" not in str(error) and not isinstance(error, dist.DistError):
            raise
        raise InputError(
            f"process {processes.rank}: the connection to another process is lost, whose own message says why; "
            f"{flag('resume', True)} goes on from the last checkpoint"
        ) from error
    finally:
        _arrivals.pop().end()
        dist.destroy_process_group()


def _take_gpu(device: torch.device, local_rank: int) -> None:
    num_gpus = torch.cuda.device_count()
    if local_rank >= num_gpus:
        raise UsageError(f"process {local_rank} has no GPU; start {num_gpus} processes (--nproc-per-node)")
    if device.index not in (None, local_rank):
        raise UsageError(
            f"device '{device}' is not that of process {local_rank}; with torchrun each process has the GPU of its "
            "LOCAL_RANK: use cuda or auto"
        )
    torch.cuda.set_device(local_rank)


def check_single_process(verb: str) -> None:
    """InputError if torchrun has started several processes."""
    world_size = _read_env_int("WORLD_SIZE", 1)
    if world_size > 1:
        raise InputError(f"{verb} uses a single process, but WORLD_SIZE is {world_size}; start it without torchrun")


def _read_env_int(name: str, default: int) -> int:
    """An environment variable as int; InputError if it is not a number."""
    value = os.environ.get(name) or str(default)
    if not value.isdecimal():
        raise InputError(f"{name} ({value}) must be a whole number; start with torchrun, or unset it")
    return int(value)


def new_store(shared: Any, rank: int, world_size: int) -> Any:
    """A key-value store of these processes alone, within a shared one.

    shared: the store that torchrun keeps over restarts (pytorch#135712), with the addresses of processes that have
        ended. So the main process chooses a prefix of the keys, and answers all that ask for it, each by a name of its
        own.
    rank: of this process.
    world_size: number of processes.
    """
    from torch.distributed.distributed_c10d import PrefixStore

    name = uuid4().hex
    if rank:
        shared.set(f"asks {rank}", name)
        while not shared.check([f"answer {name}"]):
            time.sleep(POLL)
        name = shared.get(f"answer {name}").decode()
        shared.set(f"{name} {rank}", "")
        return PrefixStore(name, shared)

    missing = list(range(1, world_size))
    for look in count(1):
        missing = [other for other in missing if not shared.check([f"{name} {other}"])]
        if not missing:
            break
        for other in missing:
            if shared.check([f"asks {other}"]):
                question = shared.get(f"asks {other}").decode()
                shared.set(f"answer {question}", name)
        if look % round(SILENCE / POLL) == 0:
            logger.warning(f"waiting for process {', '.join(map(str, missing))} to start")
        time.sleep(POLL)
    return PrefixStore(name, shared)


class Arrivals(Thread):
    """Counts how often each process has arrived where all wait for each other. The main process logs which are missing.

    store: of these processes.
    rank: of this process.
    hosts: by rank.
    """

    def __init__(self, store: Any, rank: int, hosts: Sequence[str]) -> None:
        super().__init__(daemon=True)
        self.store = store
        self.rank = rank
        self.hosts = hosts
        self.ended = Event()
        if rank == 0:
            self.start()

    def add(self) -> None:
        """Count an arrival of this process."""
        self.store.add(f"arrivals of {self.rank}", 1)

    def run(self) -> None:
        passed = 0
        looks = 0  # without an arrival of the main process
        while not self.ended.wait(SILENCE / LOOKS):
            before = passed
            passed, *others = (self.store.add(f"arrivals of {rank}", 0) for rank in range(len(self.hosts)))
            looks = looks + 1 if passed == before else 0
            missing = [f"{rank} on {self.hosts[rank]}" for rank, arrivals in enumerate(others, 1) if arrivals < passed]
            if missing and looks and looks % LOOKS == 0:
                duration = format_duration(looks * SILENCE / LOOKS)
                logger.warning(f"waiting for process {', '.join(missing)}, since {duration}")

    def end(self) -> None:
        self.ended.set()
        if self.is_alive():
            self.join()


class Replica(nn.Module):
    """A module with its losses in one forward, as DDP and FSDP require."""

    def __init__(self, module: nn.Module, losses: Losses, *, sharded: bool = False) -> None:
        super().__init__()
        self.module = module
        self.losses = losses
        self.sharded = sharded
        self.last_batch: Batch | None = None

    def forward(self, batch: Batch | None, totals: Mapping[str, int]) -> tuple[Tensor, dict[str, Tensor]]:
        """A micro-batch's part of the mean losses of a step: their sum, and each by name.

        batch: None if no text is left for this process; the losses are then zero.
        totals: counts of the whole step.
        """
        if batch is None:
            return self._zero_loss(totals), {}
        if self.sharded:
            self.last_batch = batch

        losses = self.losses(self.module, batch)
        means = {name: value / max(1, totals[name]) for name, (value, _) in losses.items()}
        total = torch.stack([mean.float() for mean in means.values()]).sum()
        return total, {name: mean.detach() for name, mean in means.items()}

    def _zero_loss(self, totals: Mapping[str, int]) -> Tensor:
        if not self.sharded:
            return torch.stack([(value * 0).sum().float() for value in self.module.parameters()]).sum()

        # FSDP gathers weights only in a real forward.
        if self.last_batch is None:
            raise InputError(
                f"a process has no text in the first step, which {flag('shard', True)} needs; use larger batches"
            )
        total, _ = self.forward(self.last_batch, totals)
        return total * 0


def replicate(replica: Replica, processes: Processes) -> nn.Module:
    """Wrap in DDP, which averages gradients over the processes."""
    if processes.world_size == 1:
        return replica

    # Unused parameters vary by batch, so DDP must look for them; it warns if none is unused, hence this one.
    device = next(replica.parameters()).device
    replica.register_parameter("never_used", nn.Parameter(torch.zeros((), device=device)))
    return DistributedDataParallel(
        replica,
        find_unused_parameters=True,
        gradient_as_bucket_view=True,
        init_sync=False,
    )


def shard(replica: Replica, dtype: torch.dtype) -> None:
    """Apply FSDP in place, layer by layer: float32 weights, computation in dtype, gradients reduced in float32."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    device = next(replica.parameters()).device.type
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    stacks = [part for part in replica.modules() if isinstance(part, nn.ModuleList)]
    for stack in stacks:
        for layer in stack:
            fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(replica, mesh=mesh, mp_policy=policy)


def gradient_sync(replica: Any, enabled: bool) -> AbstractContextManager[None]:
    """Context in which backward passes synchronize gradients across processes only if `enabled`, which callers set for
    the last micro-batch of a step."""
    if isinstance(replica, DistributedDataParallel) and not enabled:
        return replica.no_sync()
    if hasattr(replica, "set_requires_gradient_sync"):
        replica.set_requires_gradient_sync(enabled)
    return nullcontext()


def local_shard(value: Tensor) -> Tensor:
    """The local rows of a sharded tensor; other tensors unchanged."""
    return value.to_local() if hasattr(value, "to_local") else value


def gather_shards(rows: Tensor, parameter: Any) -> Tensor:
    """The full tensor from rows that are sharded as the parameter is; other tensors and scalars unchanged.

    A plain all-gather: DTensor.full_tensor() goes through the functional collectives, where a process was once aborted
    for a corrupt heap (torch 2.13, gloo)."""
    if not hasattr(parameter, "full_tensor") or rows.ndim == 0:
        return rows

    # An all-gather needs equal sizes, so the last shards are padded to the size of the first.
    world_size = dist.get_world_size()
    num_rows = -(-len(parameter) // world_size)
    rest = rows.shape[1:]
    padded = rows.new_zeros(num_rows, *rest)
    padded[: len(rows)] = rows

    full = rows.new_empty(world_size * num_rows, *rest)
    dist.all_gather(list(full.chunk(world_size)), padded)
    return full[: len(parameter)]


def to_shard(value: Tensor, parameter: Any) -> Tensor:
    """The inverse of `gather_shards`: the local rows of a full tensor."""
    if not hasattr(parameter, "full_tensor") or value.ndim == 0:
        return value
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value, parameter.device_mesh, parameter.placements, src_data_rank=None).to_local()


def sum_by_name(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The sums of the values with the same name."""
    sums: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            sums[name] = sums.get(name, 0) + value
    return sums
