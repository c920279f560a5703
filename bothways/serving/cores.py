"""The cores of the machine, divided among the batches that run at the same time."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

MAX_WORKERS = 4  # more inference threads of one process would wait for Python's lock


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
        """Inference threads of a model on a device."""
        return min(self.count, MAX_WORKERS) if device.type == "cpu" else 1

    @contextmanager
    def share(self) -> Iterator[None]:
        """Run torch with this batch's share of the cores; torch counts threads per calling thread."""
        with self._lock:
            self._running += 1
            share = max(1, self.count // self._running)
        torch.set_num_threads(share)
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1
