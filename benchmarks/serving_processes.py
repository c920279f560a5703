"""Processes of benchmarks/serving.py: servers, the load generator, and embedding without a server."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any, Literal

from benchmarks.load_generator import Load

Answer = dict[str, Any]
Kind = Literal["offline", "ours", "torch", "single", "batched"]
LONGEST_START = 180.0  # seconds
LONGEST_STOP = 30.0
POLL = 0.005  # seconds between questions to /health


@dataclass(frozen=True)
class Side:
    """What is measured, in one number format. model: directory; "": the packaged model (ours only)."""

    kind: Kind
    dtype: str
    model: str
    threads: int

    @property
    def name(self) -> str:
        names = {
            "offline": "Bothways without a server", "ours": "bothways serve",
            "torch": "bothways serve by torch",
            "single": "FastAPI, an encode per request", "batched": "FastAPI, batches of requests",
        }  # fmt: skip
        return f"{names[self.kind]}, {self.dtype}"


class Server:
    """A server in its own process, which answers /health. A context manager.

    seconds_to_ready: from the start of the process to the first status 200 of /health. resident: memory then, of all
    its processes, in MB.
    """

    def __init__(self, side: Side) -> None:
        begin = time.perf_counter()
        self.process = subprocess.Popen(
            server_command(side), env=environment_of(side), stderr=subprocess.PIPE, text=True,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        self.log: deque[str] = deque(maxlen=20)
        self.port, self.has_port = 0, Event()
        self.reader = Thread(target=self._read_log, daemon=True)
        self.reader.start()
        try:
            self._wait_until_healthy(begin)
            self.seconds_to_ready = time.perf_counter() - begin
            self.resident = self.memory()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def memory(self) -> float:
        """Resident memory of the server and the processes that it has started, shared pages counted once, in MB."""
        return sum(map(_proportional_memory, _process_tree(self.process.pid)))

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
            text: str = answer.read().decode()
        return text

    def close(self) -> None:
        """End this process, by force if it does not end by itself."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(LONGEST_STOP)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.reader.join()

    def _read_log(self) -> None:
        assert self.process.stderr
        with self.process.stderr as lines:
            for line in lines:
                self.log.append(line)
                if not self.port and (found := re.search(r"http://127\.0\.0\.1:(\d+)", line)):
                    self.port = int(found[1])
                    self.has_port.set()
        self.has_port.set()  # or never will have

    def _wait_until_healthy(self, begin: float) -> None:
        self.has_port.wait(LONGEST_START)
        while time.perf_counter() - begin < LONGEST_START and self.process.poll() is None:
            with contextlib.suppress(OSError):
                self.get("/health")
                return
            time.sleep(POLL)
        raise RuntimeError(f"the server does not start: {''.join(self.log) or 'no error message'}")


def _process_tree(process: int) -> list[int]:
    children = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii").split()
    return [process, *(one for child in children for one in _process_tree(int(child)))]


def _proportional_memory(process: int) -> float:
    """MB, in which a page that n processes share counts as 1 / n."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith("Pss:")).split()[1]) * 1024 / 1e6


def server_command(side: Side) -> list[str]:
    if side.kind not in ("ours", "torch"):
        return [sys.executable, "-m", "benchmarks.serving_peers", side.kind, side.model, side.dtype]
    models = [f"model={side.model}"] if side.model else []
    options = ["--dtype", side.dtype, "--device", "cpu", "--port", "0", "--no-access-log"]
    return [sys.executable, "-m", "bothways", "serve", *models, *options]


def environment(threads: int) -> dict[str, str]:
    quiet = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    return {**os.environ, **quiet, "OMP_NUM_THREADS": str(threads)}


def environment_of(side: Side) -> dict[str, str]:
    """Without the core, torch computes."""
    return environment(side.threads) | ({"BOTHWAYS_CORE": "0"} if side.kind == "torch" else {})


def send(load: Load) -> Answer:
    """The answers to a load (benchmarks/load_generator.py). Only what is not the default can be infinite in JSON."""
    fields = {name: value for name, value in vars(load).items() if value != getattr(Load, name, None)}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.load_generator", json.dumps(fields)], stdout=subprocess.PIPE, check=True
    )
    answer: Answer = json.loads(done.stdout)
    return answer


def embed_offline(side: Side, files: Sequence[str], *, seconds: float, samples: int) -> list[Answer]:
    """Texts per second for each file of texts, and the vectors of its first texts."""
    command = [sys.executable, "-m", "benchmarks.serving_peers", "offline", side.model, side.dtype, str(seconds)]
    done = subprocess.run(
        [*command, str(samples), *files], env=environment(side.threads), stdout=subprocess.PIPE, check=True
    )
    answers: list[Answer] = json.loads(done.stdout.splitlines()[-1])
    return answers
