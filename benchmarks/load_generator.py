"""The load generator of benchmarks/serving.py: HTTP/1.1 requests, and how they were answered.

    python -m benchmarks.load_generator '{"port": 8080, "texts": "texts.json", "clients": 32, "seconds": 8}'

Closed loop (rate 0): each client sends its next request when the last one is answered. Open loop (rate > 0): requests
are due at random times (Poisson), whether or not others are answered; their latency counts from when they were due. A
request that is due while all connections wait for answers is not sent, and counted. Timers of asyncio are up to one
millisecond late. Prints one JSON object.
"""

import asyncio
import json
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

LONGEST_IDLE = 2.0  # seconds; uvicorn closes a connection after 5
LONGEST_DRAIN = 120.0  # seconds that answers may take after the last request
SENT_AT_ONCE = 16  # requests that are overdue, before answers are read
PAUSE = 0.01  # seconds between the single requests after an overload
LOST = 0  # status of a request whose connection was refused or closed


@dataclass(frozen=True)
class Load:
    """What to send. texts: JSON file with a list.

    Closed loop: until `seconds` are over or `requests` sent, by so many clients; the first `warm_up` seconds are not
    counted. batch: texts of a request; 1: a string rather than a list. Open loop: `rate` requests per second, through
    at most so many connections. samples: texts, from the first, of which the vectors are returned. normal: if not 0,
    send single requests at the end until one takes at most so many milliseconds.
    """

    port: int
    texts: str
    path: str = "/embed"
    batch: int = 1
    clients: int = 32
    warm_up: float = 0.0
    seconds: float = math.inf
    requests: float = math.inf
    rate: float = 0.0
    connections: int = 1000
    seed: int = 0
    samples: int = 0
    normal: float = 0.0


class Connection(asyncio.Protocol):
    """A keep-alive connection for one request at a time; on_answer(connection, status, body) is called for each."""

    def __init__(self, on_answer: Callable[["Connection", int, bytes], object]) -> None:
        self.on_answer = on_answer
        self.received = bytearray()
        self.expected = self.body = 0  # end and start of the body in what is received
        self.is_waiting = self.is_last = False
        self.index, self.due, self.sent, self.free = 0, 0.0, 0.0, 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def send(self, request: bytes, index: int, due: float) -> None:
        self.index, self.due, self.sent, self.is_waiting = index, due, time.perf_counter(), True
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self.received += data
        if not self.expected:
            head, end, _ = self.received.partition(b"\r\n\r\n")
            if not end:
                return
            head = head.lower()
            self.body = len(head) + len(end)
            self.expected = self.body + content_length(head)
            self.is_last = b"\r\nconnection: close" in head
        if len(self.received) >= self.expected:
            status, body = int(self.received[9:12]), bytes(self.received[self.body : self.expected])
            self.received, self.expected = bytearray(), 0
            if self.is_last:
                self.transport.close()
            self._answer(status, body)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.is_waiting:
            self._answer(LOST, b"")

    @property
    def is_usable(self) -> bool:
        return not self.transport.is_closing() and time.perf_counter() - self.free < LONGEST_IDLE

    def _answer(self, status: int, body: bytes) -> None:
        self.is_waiting, self.free = False, time.perf_counter()
        self.on_answer(self, status, body)


def content_length(head: bytes | bytearray) -> int:
    """Of a head in lower case."""
    start = head.index(b"\r\ncontent-length:") + len(b"\r\ncontent-length:")
    return int(head[start:].partition(b"\r\n")[0])


def requests_of(texts: Sequence[str], port: int, path: str, batch: int) -> list[bytes]:
    """The bytes of a request for each text, or for each so many texts."""
    requests = []
    for start in range(0, len(texts), batch):
        body = json.dumps({"inputs": texts[start] if batch == 1 else texts[start : start + batch]}).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        requests.append(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return requests


class Generator:
    """Sends a load and records the answers. Times are seconds on the clock of `time.perf_counter`."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.requests = requests_of(
            json.loads(Path(load.texts).read_text(encoding="utf-8")), load.port, load.path, load.batch
        )
        self.idle: list[Connection] = []
        self.opened = self.sent = self.unsent = self.waiting = self.in_time = 0
        self.statuses: Counter[int] = Counter()
        self.since_due: list[float] = []  # seconds of the accepted requests
        self.since_sent: list[float] = []
        self.late: list[float] = []  # seconds that requests were sent after they were due
        self.samples: dict[int, bytes] = {}
        self.begin = self.end = 0.0  # of what is counted
        self.drained = asyncio.Event()
        self.opening: set[asyncio.Task[None]] = set()

    async def run(self) -> dict[str, Any]:
        after = await (self.open_loop() if self.load.rate else self.closed_loop())
        return {**self.result(), "after": after}

    async def connect(self, on_answer: Callable[[Connection, int, bytes], object]) -> Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: Connection(on_answer), "127.0.0.1", self.load.port)
        self.opened += 1
        return connection

    def send(self, connection: Connection, due: float) -> None:
        index = self.sent % len(self.requests)
        self.sent += 1
        self.waiting += 1
        connection.send(self.requests[index], index, due)

    def record(self, connection: Connection, status: int, body: bytes) -> None:
        self.waiting -= 1
        if status == 200 and connection.index < self.load.samples:
            self.samples.setdefault(connection.index, body)
        self.in_time += status == 200 and self.begin <= connection.free < self.end
        if connection.due >= self.begin:
            self.statuses[status] += 1
            self.late.append(connection.sent - connection.due)
            if status == 200:
                self.since_due.append(connection.free - connection.due)
                self.since_sent.append(connection.free - connection.sent)

    # --- closed loop --------------------------------------------------------------------------------------------------

    async def closed_loop(self) -> None:
        connections = [await self.connect(self.answer_closed) for _ in range(self.load.clients)]
        self.begin = time.perf_counter() + self.load.warm_up
        self.end = self.begin + self.load.seconds
        for connection in connections:
            self.send_next(connection)
        await self.drained.wait()
        self.end = min(self.end, time.perf_counter())

    def answer_closed(self, connection: Connection, status: int, body: bytes) -> None:
        self.record(connection, status, body)
        self.send_next(connection)

    def send_next(self, connection: Connection) -> None:
        now = time.perf_counter()
        if now < self.end and self.sent < self.load.requests and not connection.transport.is_closing():
            self.send(connection, now)
        elif not self.waiting:
            self.drained.set()

    # --- open loop ----------------------------------------------------------------------------------------------------

    async def open_loop(self) -> dict[str, float | None] | None:
        chance = random.Random(self.load.seed)
        self.begin = due = time.perf_counter()
        self.end = self.begin + self.load.seconds
        for number in count():
            due += chance.expovariate(self.load.rate)
            if due >= self.end:
                break
            if (wait := due - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            elif number % SENT_AT_ONCE == 0:
                await asyncio.sleep(0)
            self.start(due)
        after = await recovery(self) if self.load.normal else None
        if self.opening:
            await asyncio.wait(self.opening)
        self.drained.clear()
        if self.waiting:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.drained.wait(), LONGEST_DRAIN)
        return after

    def start(self, due: float) -> None:
        """Send a request on a connection that is free, else on a new one."""
        while self.idle:
            connection = self.idle.pop()
            if connection.is_usable:
                return self.send(connection, due)
            self.close(connection)
        if self.opened + len(self.opening) >= self.load.connections:
            self.unsent += 1
            return None
        task = asyncio.create_task(self.start_on_new(due))
        self.opening.add(task)
        task.add_done_callback(self.opening.discard)
        return None

    async def start_on_new(self, due: float) -> None:
        try:
            connection = await self.connect(self.answer_open)
        except OSError:
            self.statuses[LOST] += 1
        else:
            self.send(connection, due)

    def answer_open(self, connection: Connection, status: int, body: bytes) -> None:
        self.record(connection, status, body)
        if connection.transport.is_closing():
            self.close(connection)
        else:
            self.idle.append(connection)
        if not self.waiting and time.perf_counter() >= self.end:
            self.drained.set()

    def close(self, connection: Connection) -> None:
        connection.transport.close()
        self.opened -= 1

    # --- results ------------------------------------------------------------------------------------------------------

    def result(self) -> dict[str, Any]:
        """Times in milliseconds."""
        seconds = self.end - self.begin
        return {
            "seconds": seconds,
            "sent": self.sent,
            "unsent": self.unsent,
            "unanswered": self.waiting,
            "statuses": {str(status): count for status, count in sorted(self.statuses.items())},
            "per_second": self.in_time / seconds,
            "p50": percentile(self.since_due, 0.5),
            "p99": percentile(self.since_due, 0.99),
            "p99_since_sent": percentile(self.since_sent, 0.99),
            "p99_late": percentile(self.late, 0.99),
            "samples": {index: json.loads(body)[0] for index, body in self.samples.items()},
        }


async def recovery(generator: Generator) -> dict[str, float | None]:
    """Single requests, one after another, until one is answered in normal time.

    Seconds from now until the first status 200, and until the first in normal time.
    """
    loop, begin = asyncio.get_running_loop(), time.perf_counter()
    answered: float | None = None
    while time.perf_counter() - begin < LONGEST_DRAIN:
        future: asyncio.Future[int] = loop.create_future()
        connection = await generator.connect(lambda _, status, body, future=future: future.set_result(status))  # type: ignore[misc]
        connection.send(generator.requests[0], 0, time.perf_counter())
        status = await future
        generator.close(connection)
        spent = time.perf_counter() - begin
        if status == 200 and answered is None:
            answered = spent
        if status == 200 and 1000 * (connection.free - connection.sent) <= generator.load.normal:
            return {"answered": answered, "normal": spent}
        await asyncio.sleep(PAUSE)
    return {"answered": answered, "normal": None}


def percentile(values: Sequence[float], fraction: float) -> float | None:
    """In milliseconds of values in seconds; the smallest value that this fraction does not exceed."""
    return 1000 * sorted(values)[math.ceil(fraction * len(values)) - 1] if values else None


def main() -> None:
    load = Load(**json.loads(sys.argv[1]))

    async def run() -> dict[str, Any]:
        return await Generator(load).run()

    print(json.dumps(asyncio.run(run())))


if __name__ == "__main__":
    main()
