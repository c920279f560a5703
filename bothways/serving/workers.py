"""Inference in worker processes, so that the GIL does not block the event loop.

The workers are forked after the models are loaded and before threads are started, which do not survive a fork. They
share the memory of the models. On a GPU, on systems other than Linux, and after a worker has died, this process
computes the batches.
"""

import gc
import os
import pickle
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, Pipe
from queue import SimpleQueue
from typing import Any, Protocol

from bothways.base.device import num_threads, release_memory, set_num_threads
from bothways.base.errors import InputError
from bothways.base.log import logger
from bothways.inference.predictor import Predictor
from bothways.serving.calls import Call
from bothways.tasks.task import Item

Models = Mapping[str, Predictor]  # by name
MAX_WORKERS = 4  # batches that run beside each other; with more, each batch would only be smaller


class Cores:
    """The cores of the machine: a batch alone has all of them; batches that run beside each other share them.

    Two batches beside each other, each with half of the cores, are faster than one after the other, each with all: the
    threads of one product wait for each other whenever the server itself, or another program, needs one of their cores.
    """

    def __init__(self, count: int | None = None) -> None:
        """count: number of cores that batches may use; by default `num_threads()`."""
        self.count = num_threads() if count is None else count
        self._running = 0
        self._lock = threading.Lock()

    def workers(self, device: str) -> int:
        """The number of batches that run beside each other on a device, "cpu" or another."""
        return min(self.count, MAX_WORKERS) if device == "cpu" else 1

    @contextmanager
    def share(self) -> Iterator[int]:
        """The number of threads for a batch that runs inside the block."""
        with self._lock:
            self._running += 1
            # A batch that runs already keeps its threads, so for its rest there may be more threads than cores.
            share = max(1, self.count // self._running)

        try:
            yield share
        finally:
            with self._lock:
                self._running -= 1


class Worker(Protocol):
    """One that computes a batch at a time: LocalWorker or ProcessWorker."""

    def compute(self, name: str, call: Call, items: Sequence[Item], threads: int) -> Sequence[Any]:
        """A result for each item.

        name: of the model.
        call: the computation.
        items: texts, or pairs of texts.
        threads: for the computation.

        InputError for an input that the computation refuses, WorkerLost if the worker has ended.
        """


class Workers:
    """Workers of all models, each of which computes one batch at a time. Threads may share the object.

    Processes and not threads: on two cores 32 clients get 921 to 977 short lines a second instead of 591 to 658, since
    a forward pass of a small batch takes Python's lock some 200 times (docs/LOG.md, "Processes that compute").
    """

    def __init__(self, workers: Sequence[Worker], models: Models, cores: Cores) -> None:
        """
        workers: each stands in the sequence as often as it may compute at a time.
        models: for batches in this process when a worker is lost.
        cores: shared by the workers.
        """
        self.count = len(workers)
        self.cores = cores
        self._all = workers
        self._spare = LocalWorker(models)  # takes the place of each worker that is lost

        self._idle: SimpleQueue[Worker] = SimpleQueue()
        for worker in workers:
            self._idle.put(worker)

    @staticmethod
    def local(models: Models, cores: Cores | None = None) -> "Workers":
        """Workers in this process: on a CPU as many as `Cores` allows, elsewhere one."""
        cores = cores or Cores()
        count = min(cores.workers(model.device) for model in models.values())
        # A LocalWorker has no state, so one object serves several threads.
        return Workers([LocalWorker(models)] * count, models, cores)

    @staticmethod
    def forked(models: Models, cores: Cores | None = None, *, inherited: Sequence[socket.socket] = ()) -> "Workers":
        """Workers in separate processes on Linux CPUs, else `local`.

        models: are all loaded.
        cores: by default all of the machine.
        inherited: sockets of the server, which the processes close.

        InputError if a process ends at its start.
        """
        cores = cores or Cores()
        is_cpu = all(model.device == "cpu" for model in models.values())
        if sys.platform != "linux" or not is_cpu:
            return Workers.local(models, cores)

        for model in models.values():
            model.backend.prepare_to_fork()

        gc.collect()
        # The processes share these objects; a collection would write to their pages, which copies them. With memory
        # that is returned after the first text (`release_memory`) this saves 2 MB (docs/LOG.md, "A server's memory").
        gc.freeze()

        workers: list[ProcessWorker] = []
        for _ in range(cores.workers("cpu")):
            # A process also inherits the connections of the processes before it: while it held one open, such a process
            # would not notice that the server has closed it.
            connections = [worker.connection for worker in workers]
            workers.append(ProcessWorker.fork(models, [*inherited, *connections]))

        # All warm up at the same time.
        for worker in workers:
            worker.wait()
        return Workers(workers, models, cores)

    def compute(self, name: str, call: Call, items: Sequence[Item]) -> Sequence[Any]:
        """A result for each item, as soon as a worker is idle.

        name: of the model.
        call: the computation.
        items: texts, or pairs of texts.

        WorkerLost if the process ends meanwhile; later batches are computed in this process.
        """
        worker = self._idle.get()
        try:
            with self.cores.share() as threads:
                return worker.compute(name, call, items, threads)
        except WorkerLost as error:
            logger.error(f"{error}; the server computes in its own process instead")
            # `finally` makes the spare one idle in the place of the lost one.
            worker = self._spare
            raise
        finally:
            self._idle.put(worker)

    def close(self) -> None:
        """End the processes; those that compute end after their batch."""
        for worker in self._all:
            if isinstance(worker, ProcessWorker):
                worker.connection.close()


class LocalWorker:
    """Computes in the thread that calls it."""

    def __init__(self, models: Models) -> None:
        self.models = models

    def compute(self, name: str, call: Call, items: Sequence[Item], threads: int) -> Sequence[Any]:
        set_num_threads(threads)  # torch keeps the number for each thread of Python
        return call(self.models[name], items)


class WorkerLost(RuntimeError):
    """The process of a worker has ended."""


class ProcessWorker:
    """A process that computes.

    process: its id.
    connection: the end of its pipe in this process.
    """

    def __init__(self, process: int, connection: "Connection[Any, Any]") -> None:
        self.process = process
        self.connection = connection

    @staticmethod
    def fork(models: Models, inherited: "Sequence[socket.socket | Connection[Any, Any]]") -> "ProcessWorker":
        """A worker with a new process.

        models: the process has them by inheritance.
        inherited: sockets and connections that the process closes.
        """
        ours, theirs = Pipe()
        process = os.fork()
        if process:
            theirs.close()
            return ProcessWorker(process, ours)

        # From here on this is the new process, which never returns.
        status = 1
        try:
            # Signals mean the server, which ends this process by closing the connection.
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)

            for connection in (ours, *inherited):
                connection.close()
            _answer(LocalWorker(models), theirs)
            status = 0
        finally:
            os._exit(status)

    def wait(self) -> None:
        """Wait until the process is ready. InputError if it ends instead."""
        try:
            self._receive()
        except WorkerLost:
            advice = "free memory, or set OMP_NUM_THREADS=1"
            raise InputError(f"a process that was to compute batches ended at its start; {advice}") from None

    def compute(self, name: str, call: Call, items: Sequence[Item], threads: int) -> Sequence[Any]:
        try:
            self.connection.send_bytes(pickle.dumps((name, call, items, threads), protocol=5))
        except OSError as error:
            raise WorkerLost(f"process {self.process} is gone") from error

        answer = self._receive()
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, list)
        return answer

    def _receive(self) -> Any:
        """The next answer of the process. WorkerLost if there is none."""
        try:
            return pickle.loads(self.connection.recv_bytes())
        except (EOFError, OSError) as error:
            # Without this the process would stay in the table of processes as a zombie.
            with suppress(ChildProcessError):
                os.waitpid(self.process, os.WNOHANG)
            raise WorkerLost(f"process {self.process} has ended while it computed") from error


def _answer(worker: LocalWorker, connection: "Connection[Any, Any]") -> None:
    """Say that this process is ready, then answer requests until the server closes the connection.

    An answer is the list of results, or the exception that the server is to raise.
    """
    for model in worker.models.values():
        warm_up(model)
    release_memory()
    connection.send_bytes(pickle.dumps(None))  # for `wait`

    with suppress(EOFError, OSError):
        while True:
            request = pickle.loads(connection.recv_bytes())
            try:
                answer: Any = [*worker.compute(*request)]
            # Exceptions are made anew, as one with other arguments could not be unpickled.
            except InputError as error:
                answer = InputError(str(error))
            except Exception as error:
                answer = RuntimeError(f"{type(error).__name__}: {error}")
            connection.send_bytes(pickle.dumps(answer, protocol=5))
            del request, answer  # hold no texts while waiting


def warm_up(model: Predictor) -> None:
    """Compute one text, so that the first request does not wait for lazy initialization."""
    with suppress(InputError):  # a model without vectors
        model.embed("warm up")
