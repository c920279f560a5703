"""Loads over the wire: broken requests, silent connections and answers that nobody reads leave the server as it was."""

import http.client
import json
import os
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import make_model, make_predictor, tokenizer  # noqa: F401
from tests.fuzz import mutated_bytes
from tests.serving.conftest import predictors  # noqa: F401
from tests.serving.live import Server, serving
from tests.serving.test_limits import malformed

NUMBER, CLIENTS = 20_000, 8
ROUTES = (
    "/embed /embed_all /predict /rerank /similarity /tokenize /decode /tag /answer /fill /next /attention "
    "/v1/embeddings / /models/tagger/tag /models/reader/answer /models/classifier/predict /models/ranker/rerank "
    "/models/no/embed /nowhere"
).split()
TYPES = ("application/json",) * 12 + ("text/plain", "application/json; charset=utf-16", "multipart/form-data", "")
SECONDS = 60.0


def request_of(draw: random.Random) -> tuple[bytes, str]:
    """A broken request, and what the client does after sending it: read, leave, or break off with a reset."""
    body = malformed(draw)
    length = draw.choice((len(body),) * 12 + (len(body) + 1, max(0, len(body) - 1), 10**12, -1))
    lines = [f"POST {draw.choice(ROUTES)} HTTP/1.1", "Host: localhost", f"Content-Length: {length}"]
    if kind := draw.choice(TYPES):
        lines.append(f"Content-Type: {kind}")
    data = "\r\n".join([*lines, "", ""]).encode() + body
    if draw.random() < 0.1:
        data = mutated_bytes(data, draw)
    if draw.random() < 0.1:
        data = data[: draw.randrange(len(data))]
    return data, draw.choice(("read",) * 8 + ("leave", "reset"))


def status_of(port: int, data: bytes, then: str) -> int | None:
    """The status of the answer; None if there is none."""
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(data)
        if then == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if then != "read":
            return None
        with suppress(OSError):
            connection.shutdown(socket.SHUT_WR)
        answer = http.client.HTTPResponse(connection)
        try:
            answer.begin()
            answer.read()
        except (ConnectionResetError, http.client.HTTPException):
            return None
        return answer.status


def threads_and_memory(process: int) -> tuple[int, int, int]:
    """Processes, threads and resident memory in kB of a process and those that it has started."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines())
    own = (1, int(lines["Threads"]), int(lines["VmRSS"].split()[0]))
    processes, threads, memory = map(
        sum, zip(own, *(threads_and_memory(int(child)) for child in children), strict=True)
    )
    return processes, threads, memory


@pytest.mark.timeout(3600)
def test_twenty_thousand_broken_requests_leave_the_server_as_it_was(predictors, tmp_path, capsys):  # noqa: F811
    for name, model in predictors.items():
        model.save(tmp_path / name)
    options = "--dtype float32 --read-timeout 0.2 --max-text-tokens 500 --max-texts 40 --no-access-log".split()
    expected = predictors["encoder"].embed(["the cat"])
    statuses: Counter[int | None] = Counter()
    errors: list[BaseException] = []

    with serving(*(f"{name}={tmp_path / name}" for name in predictors), *options) as running:

        def client(seed: int, number: int) -> None:
            draw = random.Random(seed)
            try:
                statuses.update(status_of(running.port, *request_of(draw)) for _ in range(number))
            except BaseException as error:
                errors.append(error)

        def send(number: int, seed: int) -> None:
            threads = [threading.Thread(target=client, args=(seed + one, number // CLIENTS)) for one in range(CLIENTS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        send(NUMBER // 10, seed=0)
        before = threads_and_memory(running.process.pid)
        send(NUMBER - NUMBER // 10, seed=100)
        after = threads_and_memory(running.process.pid)
        status, _, vectors = running.post("/embed", {"inputs": "the cat"})
        health, metrics = running.get("/health")[0], running.get("/metrics")[2].decode()

    with capsys.disabled():
        print(f"\nbroken requests by status: {dict(sorted(statuses.items(), key=str))}")
        print(f"processes, threads, kB: {before} before, {after} after")
    assert errors == [] and statuses.total() == NUMBER // CLIENTS * CLIENTS
    assert not [one for one in statuses if one is not None and one >= 500]
    assert {200, 400, 404, 413, 415, 422} <= {*statuses}
    assert (status, health) == (200, 200)
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    assert 'te_queue_tokens{model="encoder"} 0.0' in metrics
    assert after[0] == before[0] and after[1] <= before[1] + 1 and after[2] <= 1.1 * before[2]


# --- connections that are silent, and answers that nobody reads ------------------------------------------------------

SILENT, SLOW, FILES = 400, 100, 300
MINUTES = float(os.environ.get("BOTHWAYS_SOAK_MINUTES", "10"))


def state_of(process: int) -> tuple[int, int]:
    """Resident memory in kB, and open file descriptors."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines())
    return int(lines["VmRSS"].split()[0]), len(os.listdir(f"/proc/{process}/fd"))


@pytest.mark.timeout(3600)
def test_silent_connections_and_slow_readers_leave_memory_log_and_files_bounded(predictors, tmp_path, capsys):  # noqa: F811
    """With fewer file descriptors than connections that are tried."""
    predictors["encoder"].save(tmp_path / "encoder")
    body = json.dumps({"inputs": ["the cat sat on the mat " * 1500]}).encode()
    lines = ["POST /embed_all HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    request = "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body
    ended, errors = threading.Event(), []
    counted: Counter[str] = Counter()

    def connect(port: int) -> socket.socket:
        return socket.create_connection(("127.0.0.1", port), timeout=SECONDS)

    def be_silent(port: int) -> None:
        while not ended.is_set():
            with suppress(OSError), connect(port) as connection:
                connection.recv(1)  # until the server ends it
                counted["silent connections"] += 1
            ended.wait(1)

    def read_slowly(port: int) -> None:
        while not ended.is_set():
            with suppress(OSError), connect(port) as connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                connection.sendall(request)
                counted["answers that are not read"] += 1
                ended.wait(5)

    def run(work: Callable[[int], None], port: int) -> None:
        try:
            work(port)
        except BaseException as error:
            errors.append(error)

    options = "--dtype float32 --read-timeout 2 --write-timeout 2 --no-access-log".split()
    running = Server(tmp_path / "encoder", *options, files=FILES)
    states = []
    works = [be_silent] * SILENT + [read_slowly] * SLOW
    threads = [threading.Thread(target=run, args=(work, running.port)) for work in works]
    try:
        for thread in threads:
            thread.start()
        end = time.monotonic() + 60 * MINUTES
        while time.monotonic() < end:
            time.sleep(min(5.0, MINUTES * 6))
            states.append(state_of(running.process.pid))
        ended.set()
        for thread in threads:
            thread.join()
        wait = time.monotonic() + SECONDS
        while state_of(running.process.pid)[1] > 60 and time.monotonic() < wait:
            time.sleep(0.5)
        answer, last = running.post("/embed", {"inputs": "the cat"})[0], state_of(running.process.pid)
    finally:
        ended.set()
        running.signal()
        status = running.wait()
    with capsys.disabled():
        print(f"\n{MINUTES:g} minutes: {dict(counted)}; the log has {len(running.lines)} lines")
        memory, files = zip(*states, strict=True)
        print(
            f"memory: first {memory[0]:,} kB, most {max(memory):,} kB, at the end {last[0]:,} kB; files: {max(files)}"
        )
    assert errors == [] and (answer, status) == (200, 0)
    assert counted["silent connections"] > 0 and counted["answers that are not read"] > 0
    assert len(running.lines) < 20 and max(files) <= FILES
    # Beyond the first minute it does not grow.
    assert max(memory[len(memory) // 2 :]) < 1.3 * max(memory[: len(memory) // 2 + 1])
