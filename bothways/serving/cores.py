"""The cores of the machine, divided among the batches that run at the same time."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

MAX_WORKERS = 4  # batches beside each other; more would only make each smaller


class Cores:
    """A batch alone has all cores; batches that run beside each other share them.

    Two batches with half of the cores each are faster than one after the other with all: threads of one product wait
    for each other whenever the server itself, or another program, needs one of their cores.
    """

    def __init__(self, count: int | None = None) -> None:
        """count: of threads; by default those of torch."""
        self.count = torch.get_num_threads() if count is None else count
        self._running = 0
        self._lock = threading.Lock()

    def workers(self, device: torch.device) -> int:
        """Batches that run beside each other on a device."""
        return min(self.count, MAX_WORKERS) if device.type == "cpu" else 1

    @contextmanager
    def share(self) -> Iterator[int]:
        """This batch's share of the cores."""
        with self._lock:
            self._running += 1
            share = max(1, self.count // self._running)
        try:
            yield share
        finally:
            with self._lock:
                self._running -= 1
