"""Ray: tasks placed on a cluster, and models as stages of pipelines of Ray Data (extra `ray`).

Ray Data only places tasks: each is one row and one block, and reads and writes its data itself. Errors are returned
and never skipped, and a job whose workers have no room, or of which nothing ends, fails with a line instead of waiting.
"""

import logging
import os
import pickle
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from queue import Empty, Queue
from socket import create_connection
from threading import Thread
from typing import Any, TypeVar

from bothways.base.device import num_cores, set_num_threads
from bothways.base.errors import InputError, flag, join_names, require
from bothways.inference.load import load
from bothways.inference.predictor import Predictor
from bothways.tasks import TASKS
from bothways.text.data.model_inputs import ModelInput

Task = TypeVar("Task")
Result = TypeVar("Result")
CONNECT_WAIT = 10  # seconds
ROOM_WAIT = 20  # seconds until a cluster must have free CPUs
STALL = 1800  # seconds in which at least one task must end
ENVIRONMENT = ("AWS_", "GOOGLE_", "AZURE_", "BOTHWAYS_")  # variables that workers on other machines are given


def in_any_order(
    function: Callable[[Task], Result], tasks: Sequence[tuple[str, Task]], address: str, workers: int | None
) -> Iterator[Result]:
    """function(task) for each task, as they end. tasks: with their names.

    address: of a cluster, "auto" for the one of this machine, or "local" for a new one. workers: actors of one CPU
    each; None: all CPUs but one. InputError, without waiting: if they have no room; if no task ends within STALL
    seconds; or if a task raises an InputError. Actors that are killed are replaced, and their tasks begin again.
    """
    with _cluster(address, workers) as num_workers:
        import ray.data

        logging.getLogger("ray.data").setLevel(logging.ERROR)
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = context.print_on_execution_start = False
        items = [{"task": pickle.dumps((function, task))} for _, task in tasks]
        done = ray.data.from_items(items, override_num_blocks=len(items)).map_batches(
            _Worker, batch_size=1, compute=ray.data.ActorPoolStrategy(min_size=1, max_size=num_workers), num_cpus=1
        )
        yield from _watched(done, [name for name, _ in tasks])


class _Worker:
    """An actor: computes pickled tasks."""

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, list[bytes]]:
        (content,) = batch["task"]
        function, task = pickle.loads(content)
        try:
            return {"result": [pickle.dumps((function(task), None))]}
        except InputError as error:
            return {"result": [pickle.dumps((None, error))]}


def _watched(done: Any, names: list[str]) -> Iterator[Any]:
    """The results of a dataset, which another thread waits for."""
    queue = Queue[Any](maxsize=64)

    def read() -> None:
        try:
            for row in done.iter_rows():
                queue.put(pickle.loads(row["result"]))
        except Exception as error:
            queue.put((None, error))

    Thread(target=read, daemon=True).start()
    for index in range(len(names)):
        try:
            result, error = queue.get(timeout=STALL)
        except Empty:
            raise InputError(
                f"no part has ended for {STALL / 60:g} minutes, of {len(names) - index:,} that Ray should place "
                f"({join_names(names, 3)} ...); look at the cluster (ray status), then continue with "
                f"{flag('resume', True)}"
            ) from None
        if isinstance(error, InputError):
            raise error
        if error is not None:
            raise InputError(
                f"Ray: {str(error).strip().splitlines()[-1]}; continue with {flag('resume', True)}"
            ) from error
        yield result


@contextmanager
def _cluster(address: str, workers: int | None) -> Iterator[int]:
    """The number of workers, connected. Disconnects at the end, unless it was connected before."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal", **os.environ}
    require("ray", "ray")
    import ray

    cluster: Any = ray  # partly without types
    is_ours = not cluster.is_initialized()
    if is_ours:
        _connect(cluster, address, workers)
    try:
        num_cpus = int(cluster.cluster_resources().get("CPU", 0))
        num_workers = max(1, num_cpus - 1) if workers is None else workers
        if num_workers >= num_cpus:
            raise InputError(
                f"workers ({num_workers}) must be fewer than the CPUs of the cluster, which has {num_cpus}: Ray needs "
                "one for itself, and would wait for ever; use fewer workers, or a larger cluster"
            )
        _wait_for_room(cluster, num_workers + 1)
        yield num_workers
    finally:
        if is_ours:
            cluster.shutdown()


def _connect(ray: Any, address: str, workers: int | None) -> None:
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address == "local":
        options |= {"num_cpus": max(num_cores(), workers or 1) + 1, "include_dashboard": False}
        options |= {"address": "local", "_node_ip_address": "127.0.0.1"}
    else:
        variables = {name: value for name, value in os.environ.items() if name.startswith(ENVIRONMENT)}
        options |= {"address": address, "runtime_env": {"env_vars": variables}}
    try:
        if "://" not in address and ":" in address:  # Ray itself would try for minutes
            host, _, port = address.rpartition(":")
            create_connection((host, int(port)), CONNECT_WAIT).close()
        ray.init(**options)
    except (OSError, RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"ray ({address}): no cluster to connect to ({reason}); start one, or use local") from None


def _wait_for_room(ray: Any, needed: int) -> None:
    end = time.monotonic() + ROOM_WAIT
    while (free := int(ray.available_resources().get("CPU", 0))) < needed:
        if time.monotonic() > end:
            raise InputError(
                f"the cluster has {free} free CPUs, and {needed - 1} workers and Ray itself need {needed}; use fewer "
                "workers, or wait for the jobs that are running"
            )
        time.sleep(0.5)


# --- stages of your own pipelines -------------------------------------------------------------------------------------


class _Stage:
    """model: a checkpoint, run or name. column, pair_column: with the texts. threads: of an actor; as its num_cpus."""

    def __init__(
        self,
        model: str = "bothways-en",
        column: str = "text",
        pair_column: str | None = None,
        *,
        threads: int = 1,
        device: str = "auto",
        dtype: str = "auto",
    ) -> None:
        self.model: Predictor = load(model, device=device, dtype=dtype)
        set_num_threads(threads)
        self.columns = [column] if pair_column is None else [column, pair_column]

    def texts(self, batch: Mapping[str, Any]) -> list[list[str]]:
        """The texts of each column. InputError if one is missing."""
        if missing := [name for name in self.columns if name not in batch]:
            raise InputError(f"no column {missing[0]!r} (there are: {join_names([*batch])}); name it with column=")
        return [[str(text) for text in batch[name]] for name in self.columns]


class Embed(_Stage):
    """Adds a column "vector", float32 [rows, size], of the texts: dataset.map_batches(Embed, ...)."""

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        return {**batch, "vector": self.model.embed(self.texts(batch)[0])}


class Predict(_Stage):
    """Adds the columns of the predictions, such as label and score: dataset.map_batches(Predict, ...)."""

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        texts = zip(*self.texts(batch), strict=True)
        rows = [ModelInput(*row)._replace(id=str(index)) for index, row in enumerate(texts)]
        results = TASKS[self.model.task].load().predict_rows(self.model, rows)
        return {**batch, **{name: [result[name] for result in results] for name in (results[0] if results else ())}}
