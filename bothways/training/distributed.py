"""Several processes, through torch.distributed: each computes its part of every step's micro-batches, and gradients are
added up (DistributedDataParallel, Li 2020), or weights, gradients and moments shared out (FSDP, Zhao 2023).

torchrun starts the processes and tells each its number in the environment. A process alone is the same object.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from bothways.batch import Batch
from bothways.errors import InputError
from bothways.log import muted
from bothways.training.losses import Losses
from bothways.training.signals import Stopped

Value = TypeVar("Value")
TIMEOUT = timedelta(hours=12)  # the others wait while the first process reads a large corpus


@dataclass(frozen=True)
class Processes:
    """Which one this is (0..world-1) of how many. All must call the same of these functions in the same order."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0

    @property
    def leads(self) -> bool:
        """Whether this is the one that writes and tells."""
        return self.rank == 0

    def device(self, device: torch.device) -> torch.device:
        """This process's own GPU where `device` means GPUs."""
        return torch.device("cuda", self.local_rank) if device.type == "cuda" and self.world > 1 else device

    def gather(self, value: Value) -> list[Value]:
        """Each process's value, by rank: the same list everywhere."""
        if self.world == 1:
            return [value]
        found: list[Any] = [None] * self.world
        dist.all_gather_object(found, value)
        return found

    def share(self, value: Value | None) -> Value:
        """The first process's value."""
        found: list[Any] = [value]
        if self.world > 1:
            dist.broadcast_object_list(found, src=0)
        return found[0]

    def wait(self) -> None:
        """Until all are here."""
        self.gather(None)

    def equalize(self, module: nn.Module) -> None:
        """Give every process the first one's weights."""
        if self.world > 1:
            for value in module.state_dict().values():
                dist.broadcast(value, src=0)


ALONE = Processes()
# Held to the end: freed by DDP, as happens where an error outlives the group, gloo's would wait for Python for ever.
_groups: list[Any] = []


@contextmanager
def joined(timeout: timedelta = TIMEOUT) -> Iterator[Processes]:
    """The processes torchrun started, connected while inside: gloo on processors, nccl on GPUs. Without torchrun,
    ALONE. Only the first process logs."""
    world = _number("WORLD_SIZE", 1)
    if world == 1:
        yield ALONE
        return
    if missing := [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]:
        raise InputError(f"WORLD_SIZE is {world}, but {', '.join(missing)} are not set; start with torchrun")
    processes = Processes(_number("RANK", 0), world, _number("LOCAL_RANK", 0))
    if torch.cuda.is_available():
        if processes.local_rank >= (found := torch.cuda.device_count()):
            raise InputError(f"process {processes.local_rank} has no GPU of its own; start {found} (--nproc-per-node)")
        torch.cuda.set_device(processes.local_rank)
    # Python objects go through gloo even where tensors go through nccl, so that they need not wait for the GPU.
    dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=timeout)
    _groups.append(dist.group.WORLD)
    try:
        with nullcontext() if processes.leads else muted():
            yield processes
        processes.wait()
    except Stopped:
        processes.wait()  # one that left early would make torchrun end the others while they still write
        raise
    finally:
        dist.destroy_process_group()


def _number(name: str, default: int) -> int:
    """A variable of the environment; InputError where it is no number."""
    value = os.environ.get(name) or str(default)
    if not value.isdecimal():
        raise InputError(f"{name} ({value}) must be a whole number; start with torchrun, or unset it")
    return int(value)


class Replica(nn.Module):
    """A module with its losses as one forward, so that the hooks of DDP and FSDP see all of it."""

    def __init__(self, module: nn.Module, losses: Losses, *, sharded: bool = False) -> None:
        super().__init__()
        self.module, self.losses, self.sharded = module, losses, sharded
        self.seen: Batch | None = None

    def forward(self, batch: Batch | None, totals: Mapping[str, int]) -> tuple[Tensor, dict[str, Tensor]]:
        """What a micro-batch adds to the mean losses of a step, as a sum to differentiate and by name; totals: the
        step's counts. None, where a process has no text: zero."""
        if batch is None:
            return self._nothing(totals), {}
        if self.sharded:
            self.seen = batch
        means = {name: value / max(1, totals[name]) for name, (value, _) in self.losses(self.module, batch).items()}
        total = torch.stack([mean.float() for mean in means.values()]).sum()
        return total, {name: mean.detach() for name, mean in means.items()}

    def _nothing(self, totals: Mapping[str, int]) -> Tensor:
        if not self.sharded:
            return torch.stack([(value * 0).sum().float() for value in self.module.parameters()]).sum()
        if self.seen is None:  # sharded weights are put together layer by layer, in a real forward only
            raise InputError(
                "a process has no text in its first step, which shared-out weights need; use larger batches"
            )
        return self.forward(self.seen, totals)[0] * 0


def replicate(replica: Replica, processes: Processes) -> nn.Module:
    """The same, with gradients averaged over the processes at the end of a backward."""
    if processes.world == 1:
        return replica
    # Which parameters a micro-batch uses depends on its labels. torch warns when all are used; here one never is.
    replica.register_parameter("never_used", nn.Parameter(torch.zeros((), device=next(replica.parameters()).device)))
    return DistributedDataParallel(replica, find_unused_parameters=True, gradient_as_bucket_view=True, init_sync=False)


def shard(replica: Replica, dtype: torch.dtype) -> None:
    """Share out the float32 weights over the processes, layer by layer, in place; computes in dtype, adds gradients in
    float32."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    device = next(replica.parameters()).device.type
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    for stack in [part for part in replica.modules() if isinstance(part, nn.ModuleList)]:
        for layer in stack:
            fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(replica, mesh=mesh, mp_policy=policy)


def exchanging(replica: Any, exchange: bool) -> AbstractContextManager[None]:
    """Whether a backward inside exchanges gradients: once a step is enough, at its last micro-batch."""
    if isinstance(replica, DistributedDataParallel) and not exchange:
        return replica.no_sync()
    if hasattr(replica, "set_requires_gradient_sync"):
        replica.set_requires_gradient_sync(exchange)
    return nullcontext()


def local(value: Tensor) -> Tensor:
    """This process's rows of a shared-out tensor; any other as it is."""
    return value.to_local() if hasattr(value, "to_local") else value


def whole(rows: Tensor, parameter: Any) -> Tensor:
    """The tensor whose rows are shared out as the parameter's are, put together; any other as it is, and a number."""
    if not hasattr(parameter, "full_tensor") or rows.ndim == 0:
        return rows
    from torch.distributed.tensor import DTensor

    shape, stride = parameter.shape, parameter.stride()
    return DTensor.from_local(
        rows, parameter.device_mesh, parameter.placements, shape=shape, stride=stride
    ).full_tensor()  # fmt: skip


def rows_of(value: Tensor, parameter: Any) -> Tensor:
    """The inverse of `whole`: what this process holds of a whole tensor."""
    if not hasattr(parameter, "full_tensor") or value.ndim == 0:
        return value
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(
        value, parameter.device_mesh, parameter.placements, src_data_rank=None
    ).to_local()  # fmt: skip


def added(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Sums by name."""
    sums: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            sums[name] = sums.get(name, 0) + value
    return sums
