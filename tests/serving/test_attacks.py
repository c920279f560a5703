"""What strangers may send: offers of other protocols, connections without end, large lists; and not reading answers."""

import asyncio
import json
import re
import socket
import threading
import time
from contextlib import ExitStack, suppress

import pytest

from bothways.search.indexing import index
from bothways.search.store import Store
from bothways.serving import connections
from bothways.serving.guard import PART, Access, Guard
from bothways.serving.limits import Limits
from bothways.serving.metrics import Metrics
from bothways.serving.protocol import GentleTransport, TimedProtocol
from bothways.serving.reply import LARGE_ANSWER, encode_pieces, is_large, json_response
from bothways.text.retrieval.words import Analyzer
from tests.serving.live import SECONDS
from tests.serving.test_limits import until
from tests.serving.test_live import on_port, read_all

BODY = json.dumps({"inputs": "the cat"}).encode()


@pytest.fixture
def client(serve, predictors):
    return serve({"encoder": predictors["encoder"]}, max_texts=5, max_text_tokens=40, queue_tokens=100)


# --- offers of other protocols ----------------------------------------------------------------------------------------


def post(path, body, *lines, last=False):
    head = [
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    ]
    head += [*lines, *["Connection: close"] * last]
    return "\r\n".join([*head, "", ""]).encode() + body


OFFERS = {
    "HTTP/2": ["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"],
    "WebSocket": ["Connection: keep-alive, Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"],
    "TLS": ["Upgrade: TLS/1.0, HTTP/1.1", "Connection: Upgrade"],
    "any": ["connection: uPGRADE", "upgrade: anything-else/7"],
}


@pytest.mark.parametrize("size", [1, 100, 1 << 16])
@pytest.mark.parametrize("offer", OFFERS)
def test_an_offer_is_ignored_and_each_request_has_one_answer(offer, size, client):
    """size: bytes of a packet."""
    hidden = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"  # a body that would be a request
    sent = post("/embed", BODY, *OFFERS[offer]) + post("/embed", hidden, *OFFERS[offer])
    sent += post("/tokenize", BODY) + post("/embed", BODY, *OFFERS[offer][:1]) + post("/embed", BODY, last=True)

    def use(port):
        with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for start in range(0, len(sent), size):
                connection.sendall(sent[start : start + size])
            return read_all(connection)

    assert re.findall(rb"HTTP/1\.1 (\d+)", on_port(client.app, use)) == [b"200", b"400", b"200", b"200", b"200"]


def test_an_offer_with_a_chunked_body_and_one_without_a_body_are_read(client):
    chunked = post("/embed", b"", *OFFERS["HTTP/2"]).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    chunked += b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
    plain = "\r\n".join(["GET /health HTTP/1.1", "Host: localhost", *OFFERS["HTTP/2"], "", ""]).encode()

    def use(port):
        with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
            connection.sendall(plain + chunked + plain + post("/embed", BODY, last=True))
            return read_all(connection)

    assert re.findall(rb"HTTP/1\.1 (\d+)", on_port(client.app, use)) == [b"200"] * 4


def test_a_tunnel_is_refused(client):
    def use(port):
        with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
            connection.sendall(b"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org\r\n\r\n")
            return read_all(connection)

    assert on_port(client.app, use).startswith(b"HTTP/1.1 400")


# --- answers that nobody reads ----------------------------------------------------------------------------------------


def guard_of(size, ends=None, **limits):
    """A guard before an application that answers each request with so many bytes. ends: for the number of requests in
    flight when an answer has been taken, or its client ended."""

    async def answer(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % size)]})
        await send({"type": "http.response.body", "body": b"a" * size})
        if ends is not None:
            ends.append(guard.in_flight)

    guard = Guard(answer, access=Access(), limits=Limits(**limits), metrics=Metrics(), write_log=None)
    return guard


LARGE = 64 << 20  # more than the buffers of a connection hold


def wait_for(condition):
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


def test_a_client_that_takes_no_byte_is_ended_and_counts_as_in_flight_until_then():
    ends = []
    guard = guard_of(LARGE, ends)

    def use(port):
        with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
            connection.sendall(post("/embed", BODY))
            wait_for(lambda: ends and guard.in_flight == 0)
            with suppress(ConnectionResetError):
                assert len(read_all(connection)) < LARGE
        return ends, guard.unread

    assert on_port(guard, use, write_seconds=0.3) == ([1], 0)


def test_a_client_that_reads_in_small_parts_gets_all_of_its_answer():
    def use(port):
        received = 0
        with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
            connection.sendall(post("/embed", BODY, last=True))
            while part := connection.recv(1 << 16):
                received += len(part)
        return received

    assert on_port(guard_of(8 << 20), use) > 8 << 20


def test_a_client_is_ended_when_it_takes_no_byte_in_the_time_between_two_looks():
    class Connection:
        size, is_ended = 0, False

        def write(self, data):
            self.size += len(data)

        def get_write_buffer_size(self):
            return self.size

        def abort(self):
            self.is_ended = True

    calls = []

    class Loop:
        def call_later(self, *call):
            calls.append(call)
            return len(calls)

    protocol = TimedProtocol.__new__(TimedProtocol)
    protocol.loop, protocol.connection, protocol.write_seconds, protocol.unread = Loop(), Connection(), 60.0, None
    protocol.answers = GentleTransport(protocol.connection, None, protocol._watch_reading)

    def look():
        seconds, function, *arguments = calls.pop()
        assert seconds == 60.0
        function(*arguments)

    protocol.answers.write(b"a" * 100)
    protocol.answers.write(b"a" * 100)
    protocol.connection.size = 199  # one byte was taken, and as many are there again
    protocol.answers.write(b"a")
    assert len(calls) == 1
    look()
    assert not protocol.connection.is_ended and len(calls) == 1
    protocol.answers.write(b"a" * 100)  # more is written, nothing taken
    look()
    assert protocol.connection.is_ended and not calls


def test_no_request_is_read_while_too_much_is_unread():
    guard = guard_of(LARGE, max_unread=LARGE // 4)

    def status_of(port, request):
        with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
            connection.sendall(request)
            return connection.recv(12)

    def use(port):
        with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
            connection.sendall(post("/embed", BODY))
            wait_for(lambda: guard.unread > LARGE // 2)
            refused = status_of(port, post("/embed", BODY, last=True))
            read = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            answered = status_of(port, read)
        wait_for(lambda: guard.unread == 0)
        return refused, answered, status_of(port, post("/embed", BODY, last=True))

    assert on_port(guard, use) == (b"HTTP/1.1 429", b"HTTP/1.1 200", b"HTTP/1.1 200")


@pytest.mark.parametrize("size", [0, 1, PART - 1, PART, PART + 1, 3 * PART])
def test_an_answer_in_parts_is_whole(size):
    def use(port):
        with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
            connection.sendall(post("/embed", BODY) + post("/embed", BODY, last=True))
            return [len(body) for body in re.findall(rb"\r\n\r\n(a*)", read_all(connection))]

    assert on_port(guard_of(size), use) == [size, size]


# --- connections without end ------------------------------------------------------------------------------------------


def test_more_connections_than_allowed_are_refused_with_one_line(client):
    lines = []

    def use(port):
        with ExitStack() as stack:
            opened = [
                stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=SECONDS)) for _ in range(6)
            ]
            refused = [read_all(one) for one in opened[3:]]
            for one in opened[:3]:
                one.sendall(post("/embed", BODY, last=True))
            return refused, [read_all(one)[:12] for one in opened[:3]]

    refused, answers = on_port(client.app, use, most_connections=3, say=lines.append)
    assert all(answer.startswith(b"HTTP/1.1 503 ") for answer in refused)
    assert answers == [b"HTTP/1.1 200"] * 3
    assert len({*lines}) == 1 and "3 connections" in lines[0]


@pytest.mark.parametrize(
    ("soft", "hard", "raised", "most"),
    [(1024, 4096, 4096, 4096 - connections.SPARE_FILES - 10), (256, 256, 256, 256 - connections.SPARE_FILES - 10),
     (1024, 1 << 20, connections.MOST_FILES, connections.MOST_CONNECTIONS), (20, 20, 20, 1)],
)  # fmt: skip
def test_connections_are_fewer_than_file_descriptors(soft, hard, raised, most, monkeypatch):
    resource = pytest.importorskip("resource")
    limits = [(soft, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda kind: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda kind, pair: limits.append(pair))
    monkeypatch.setattr(connections, "_open_files", lambda: 10)
    assert connections.most_connections() == most
    assert limits[-1] == (raised, hard)


def test_a_connection_that_cannot_be_accepted_is_logged_once(caplog):
    say, others = connections.said_once(), []

    class Loop:
        default_exception_handler = staticmethod(others.append)

    for _ in range(1000):
        context = {"message": "socket.accept() out of system resource", "exception": OSError(24, "Too many open files")}
        connections.log_loop_error(say, Loop, context)
    connections.log_loop_error(say, Loop, {"message": "another"})
    assert len(caplog.messages) == 1 and "Too many open files" in caplog.text
    assert others == [{"message": "another"}]


# --- work in the event loop -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "body", "method"),
    [
        ("/tokenize", {"inputs": "the cat"}, "encode"),
        ("/embed", {"inputs": [[7, 8]]}, "decode"),
        ("/embed_all", {"inputs": [[7, 8], "a"]}, "decode"),
        ("/v1/embeddings", {"input": [7, 8]}, "decode"),
        ("/decode", {"ids": [7, 8]}, "decode"),
    ],
)
def test_the_health_is_answered_while_a_tokenizer_works(path, body, method, client, monkeypatch):
    tokenizer = client.models["encoder"].model.tokenizer
    begun, opened, plain = threading.Event(), threading.Event(), getattr(tokenizer, method)

    def held(*arguments, **options):
        begun.set()
        assert opened.wait(SECONDS)
        return plain(*arguments, **options)

    async def go():
        waiting = asyncio.create_task(client.send("POST", path, json.dumps(body).encode()))
        await until(begun.is_set)
        assert (await client.send("GET", "/health")).status == 200
        assert not waiting.done()
        opened.set()
        return await waiting

    monkeypatch.setattr(tokenizer, method, held)
    assert asyncio.run(go()).status == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/decode", {"ids": [7] * 41}),
        ("/decode", {"ids": [[7]] * 6}),
        ("/decode", {"ids": [[7] * 30] * 4}),
        ("/embed", {"inputs": [7] * 41}),
        ("/embed", {"inputs": [[7]] * 6}),
        ("/embed_all", {"inputs": [[7] * 30] * 4}),
        ("/v1/embeddings", {"input": [[7] * 41]}),
        ("/v1/embeddings", {"input": ["a"] * 6}),
        ("/tokenize", {"inputs": ["a"] * 6}),
    ],
)
def test_too_much_is_refused_before_any_of_it_is_read(path, body, client, monkeypatch):
    tokenizer = client.models["encoder"].model.tokenizer
    for method in ("decode", "encode", "ids"):
        monkeypatch.setattr(tokenizer, method, lambda *arguments, **options: pytest.fail("it is read"))
    assert client.post(path, body).status == 413


def test_a_large_answer_is_encoded_in_pieces_to_the_same_bytes():
    import numpy as np

    rows = np.random.default_rng(0).standard_normal((300, 400)).astype(np.float32)
    for content in (
        [*rows],
        rows,
        {"data": [{"embedding": row} for row in rows], "é": 1},
        [[*map(float, rows[0])] * 200],
    ):
        assert is_large(content)
        pieces = [*encode_pieces(content)]
        assert b"".join(pieces) == json_response(content).body
        assert max(map(len, pieces)) < 25 * LARGE_ANSWER and len(pieces) > 100
    assert not is_large({"data": [1, 2, 3]}) and not is_large(rows[:100])


def test_while_a_search_is_held_the_health_is_answered_and_another_search_ends(
    serve, predictors, tmp_path, monkeypatch
):
    (tmp_path / "a.md").write_text("# Cats\n\nA slow cat sat.\n\n# Dogs\n\nA dog ran.")
    index([tmp_path / "a.md"], tmp_path / "store", static_model="bothways-en-static", encoder=None)
    begun, opened, terms = threading.Event(), threading.Event(), Analyzer.terms

    def held(self, text):
        if text == "slow cat":
            begun.set()
            assert opened.wait(SECONDS)
        return terms(self, text)

    async def go(client):
        def search(query):
            return client.send("POST", "/search", json.dumps({"query": query, "how": "words"}).encode())

        waiting = asyncio.create_task(search("slow cat"))
        await until(begun.is_set)
        for path in ("/health", "/info"):
            assert (await client.send("GET", path)).status == 200
        assert "A dog ran" in (await search("dog")).json()["hits"][0]["text"]
        assert not waiting.done()
        opened.set()
        return (await waiting).json()["hits"][0]["text"]

    monkeypatch.setattr(Analyzer, "terms", held)
    with Store(tmp_path / "store") as store:
        assert "slow cat" in asyncio.run(go(serve({"encoder": predictors["encoder"]}, store=store)))
