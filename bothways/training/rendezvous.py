"""Rendezvous of the processes of a run, also after a restart, and detection of processes that the others wait for."""

import time
from collections.abc import Sequence
from itertools import count
from threading import Event, Thread
from typing import Any
from uuid import uuid4

from bothways.log import format_duration, logger

SILENCE = 300.0  # seconds after which a process that the main process waits for is named
LOOKS = 10  # at the other processes, in this time
POLL = 0.02  # seconds between looks for processes that are starting


def new_store(shared: Any, rank: int, world_size: int) -> Any:
    """A key-value store of these processes alone, within a shared one.

    torchrun keeps its store over restarts (pytorch#135712), with the addresses of processes that have ended. So the
    main process chooses a prefix of the keys, and answers all that ask for it, each by a name of its own.
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
    missing, looks = [*range(1, world_size)], count(1)
    while missing := [other for other in missing if not shared.check([f"{name} {other}"])]:
        for other in missing:
            if shared.check([f"asks {other}"]):
                shared.set(f"answer {shared.get(f'asks {other}').decode()}", name)
        if next(looks) % round(SILENCE / POLL) == 0:
            logger.warning(f"waiting for process {', '.join(map(str, missing))} to start")
        time.sleep(POLL)
    return PrefixStore(name, shared)


class Watch(Thread):
    """Counts how often each process has arrived where all wait for each other. In the main process, logs which have not
    come. hosts: by rank."""

    def __init__(self, store: Any, rank: int, hosts: Sequence[str]) -> None:
        super().__init__(daemon=True)
        self.store, self.rank, self.hosts, self.ended = store, rank, hosts, Event()
        if rank == 0:
            self.start()

    def arrive(self) -> None:
        self.store.add(f"arrivals of {self.rank}", 1)

    def run(self) -> None:
        passed, looks = 0, 0
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
