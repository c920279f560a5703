"""A server in a separate process: clients that people have, signals, slow and broken clients, errors at the start."""

import asyncio
import http.client
import json
import os
import socket
import struct
import subprocess
import sys
import threading
from contextlib import suppress
from functools import partial
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest

from bothways.base.errors import InputError, UsageError
from bothways.cli.parser import parse
from bothways.serving import models, server
from bothways.serving.guard import Access
from bothways.serving.protocol import MOST_DROPPED, TimedProtocol
from bothways.settings import Serve
from tests.serving.live import SECONDS, Server, serving

TEXTS = ["the cat sat", "a dog ran on the mat", "cats"]
BODY = json.dumps({"inputs": TEXTS})


@pytest.fixture(scope="module")
def directories(predictors, tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    for name, model in predictors.items():
        model.save(root / name)
    (root / "encoder" / "config_sentence_transformers.json").write_text('{"prompts": {"query": "the cat "}}')
    return root


@pytest.fixture(scope="module")
def live(directories, predictors):
    with serving(*(f"{name}={directories / name}" for name in predictors), "--dtype", "float32") as running:
        yield running


@pytest.fixture(scope="module")
def impatient(directories):
    """Waits a second for what a client sends."""
    with serving(directories / "encoder", "--read-timeout", "1", "--dtype", "float32") as running:
        yield running


# --- clients ----------------------------------------------------------------------------------------------------------


def test_the_client_of_openai(live, predictors):
    from openai import NotFoundError, OpenAI

    with OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0, timeout=SECONDS) as client:
        assert [model.id for model in client.models.list()] == [*predictors]
        for encoding in ({}, {"encoding_format": "float"}):  # base64 by default
            reply = client.embeddings.create(input=TEXTS, model="encoder", **encoding)
            vectors = [row.embedding for row in reply.data]
            np.testing.assert_allclose(vectors, predictors["encoder"].embed(TEXTS), atol=1e-5)
        assert len(client.embeddings.create(input="a", model="encoder", dimensions=5).data[0].embedding) == 5
        with pytest.raises(NotFoundError, match="the models are encoder, classifier"):
            client.embeddings.create(input="a", model="gpt")
        assert client.models.retrieve("tagger").id == "tagger"
        with pytest.raises(NotFoundError, match="the models are encoder, classifier"):
            client.models.retrieve("gpt")


def test_the_client_of_hugging_face(live, predictors, monkeypatch):
    from huggingface_hub import InferenceClient, constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)  # other tests may have switched it off at its import
    client = InferenceClient(live.url, timeout=SECONDS)
    np.testing.assert_allclose(client.feature_extraction(TEXTS[0]), [predictors["encoder"].embed(TEXTS[0])], atol=1e-5)
    scores = InferenceClient(f"{live.url}/similarity", timeout=SECONDS).sentence_similarity("cat", TEXTS)
    np.testing.assert_allclose(
        scores, predictors["encoder"].embed(TEXTS) @ predictors["encoder"].embed("cat"), atol=1e-5
    )
    prompted = client.feature_extraction("sat", prompt_name="query")
    np.testing.assert_allclose(prompted, [predictors["encoder"].embed("the cat sat")], atol=1e-5)
    labels = InferenceClient(f"{live.url}/models/classifier/predict", timeout=SECONDS).text_classification(TEXTS[0])
    expected = predictors["classifier"].classify(TEXTS[0])
    assert (labels[0].label, labels[0].score) == (
        expected.label,
        pytest.approx(max(expected.scores.values()), rel=1e-5),
    )


def test_vectors_entities_answers_and_labels_are_the_offline_ones(live, predictors):
    status, headers, vectors = live.post("/embed", {"inputs": TEXTS})
    assert status == 200 and headers["x-vector-space"] and headers["x-request-id"]
    np.testing.assert_allclose(vectors, predictors["encoder"].embed(TEXTS), atol=1e-5)
    tagged = live.post("/models/tagger/tag", {"inputs": TEXTS})[2]
    for row, entities in zip(tagged, predictors["tagger"].tag(TEXTS), strict=True):
        assert [(one["label"], one["start"], one["end"]) for one in row] == [
            (one.label, one.start, one.end) for one in entities
        ]
    answer = live.post("/models/reader/answer", {"question": "the cat", "context": TEXTS[1]})[2]
    [best] = predictors["reader"].answer("the cat", TEXTS[1])
    assert (answer["start"], answer["end"], answer["answer"]) == (best.start, best.end, best.text)
    labels = live.post("/models/classifier/predict", {"inputs": [[text] for text in TEXTS]})[2]
    assert [row[0]["label"] for row in labels] == [one.label for one in predictors["classifier"].classify(TEXTS)]


def test_the_page_is_served_with_a_policy_that_allows_this_server_alone(live):
    for path, kind in {"/": "text/html", "/page.css": "text/css", "/page.js": "text/javascript"}.items():
        status, headers, content = live.get(path)
        assert status == 200 and headers["content-type"].startswith(kind) and content
        assert "default-src 'self'" in headers["content-security-policy"]
    assert json.loads(live.get("/info?model=tagger")[2])["model_id"] == "tagger"


# --- clients that are slow, broken or gone ----------------------------------------------------------------------------


def read_all(connection):
    """What the server sends until it closes the connection."""
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)


def head(length, path="/embed"):
    lines = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    )
    return lines.encode()


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"", b""),  # nothing
        (b"POST /embed HTTP/1.1\r\nHost: local", b""),  # half a head
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 200_000, b""),  # a head without an end
        (head(50) + b'{"inputs": ', b"408"),  # half a body
    ],
)
def test_slow_clients_are_answered_or_closed(impatient, sent, answer):
    assert answer_to(impatient, sent).split(b" ")[1:2] == ([answer] if answer else [])
    assert impatient.process.poll() is None


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"400"),  # TLS
        (b"nonsense\r\n\r\n", b"400"),
        (b"POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n", b"400"),
        (head(10**12), b"413"),
        (b"GET /caf\xe9 HTTP/1.1\r\nHost: localhost\r\n\r\n", b"400"),
        (b"GET /models/%ff%00/info HTTP/1.1\r\nHost: localhost\r\nX-A: \xff\r\nConnection: close\r\n\r\n", b"404"),
    ],
)
def test_broken_clients_are_answered_or_closed(live, sent, answer):
    assert answer_to(live, sent).split(b" ")[1:2] == [answer]
    assert live.post("/embed", {"inputs": "a"})[0] == 200


def answer_to(server, sent):
    with socket.create_connection(("127.0.0.1", server.port), timeout=SECONDS) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(sent)
        return read_all(connection)


def test_clients_that_are_killed_leave_the_server_whole(live):
    body = json.dumps({"inputs": ["the cat sat on the mat"] * 200}).encode()
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", live.port), timeout=SECONDS) as connection:
            connection.sendall(head(len(body)) + body)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close by a reset
    assert live.post("/embed", {"inputs": TEXTS})[0] == 200
    assert live.get("/health")[0] == 200


# --- answers to requests that are not read to their end ---------------------------------------------------------------

LARGE = b" " * (8 << 20)  # more than the buffers of a connection hold


def on_port(app, use, *, seconds=SECONDS, **options):
    """What `use` returns for the port at which the application listens in this process. options: of TimedProtocol."""
    import uvicorn
    from uvicorn.server import ServerState

    async def run():
        config = uvicorn.Config(app, lifespan="off", log_config=None, access_log=False)
        config.load()
        protocol = partial(TimedProtocol, seconds=seconds, max_body=1000, **options)
        state = ServerState()
        loop = asyncio.get_running_loop()
        listening = await loop.create_server(lambda: protocol(config, state, {}), "127.0.0.1", 0)
        async with listening:
            result = await asyncio.to_thread(use, listening.sockets[0].getsockname()[1])
        while state.connections:
            for one in [*state.connections]:
                one.connection.abort()
            await asyncio.sleep(0)
        return result

    return asyncio.run(run())


def sends_until_closed(connection, part):
    """The bytes that a client without end could send."""
    sent = 0
    with suppress(BrokenPipeError, ConnectionResetError):
        while True:
            sent += connection.send(part)
    return sent


@pytest.fixture(scope="module")
def early():
    """Requests that are answered before their body is read: status, method, path, headers."""
    kind = {"Content-Type": "application/json"}
    key = {"Authorization": "Bearer key"}
    return [
        (401, "POST", "/embed", kind), (403, "POST", "/embed", kind | key | {"Origin": "http://evil.example.org"}),
        (404, "POST", "/nowhere", kind | key), (405, "PUT", "/embed", kind | key), (413, "POST", "/embed", kind | key),
        (415, "POST", "/embed", key), (200, "GET", "/health", {}),
    ]  # fmt: skip


@pytest.fixture
def guarded(serve, predictors):
    return serve({"encoder": predictors["encoder"]}, access=Access(keys=("key",)), max_body=1000, max_requests=1).app


@pytest.mark.parametrize("connection", ["close", "keep-alive"])
@pytest.mark.parametrize("is_chunked", [False, True])
def test_early_answers_reach_clients_that_send_all_of_a_large_body_first(guarded, early, connection, is_chunked):
    def use(port):
        client, statuses = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS), []
        for _, method, path, headers in early:  # on one connection, where the server keeps it
            body = iter([LARGE]) if is_chunked else LARGE
            client.request(method, path, body, headers | {"Connection": connection})
            answer = client.getresponse()
            assert answer.read()
            statuses.append(answer.status)
        client.close()
        return statuses

    assert on_port(guarded, use) == [status for status, *_ in early]


def test_urllib_and_an_overloaded_server_give_the_status_too(guarded):
    def use(port):
        statuses = []
        for guarded.in_flight in (0, 1):
            with pytest.raises(HTTPError) as raised:
                urlopen(
                    Request(f"http://127.0.0.1:{port}/embed", LARGE, {"Authorization": "Bearer key"}), timeout=SECONDS
                )
            statuses.append(raised.value.code)
            raised.value.close()
        return statuses

    assert on_port(guarded, use) == [415, 429]


@pytest.mark.parametrize("more", [b"", b"Connection: close\r\n"])
def test_a_client_that_never_ends_its_body_is_closed_by_time_and_by_size(guarded, more):
    request = head(10**12).replace(b"\r\n\r\n", b"\r\n" + more + b"\r\n")

    def use(port):
        with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
            connection.sendall(request)
            assert connection.recv(12) == b"HTTP/1.1 401"
            return sends_until_closed(connection, part)

    part = b" " * (1 << 20)
    assert MOST_DROPPED // 2 < on_port(guarded, use) < 2 * MOST_DROPPED
    part = b" "
    assert on_port(guarded, use, seconds=0.05) < MOST_DROPPED


def test_a_client_that_waits_for_leave_to_send_gets_it_or_the_final_answer_alone(guarded):
    def use(port):
        received = []
        for key in (b"key", b"none"):
            lines = b"Expect: 100-continue\r\nConnection: close\r\nAuthorization: Bearer " + key + b"\r\n\r\n"
            with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
                connection.sendall(head(17)[:-2] + lines)
                if key == b"key":
                    received.append(connection.recv(65536))
                    connection.sendall(b'{"inputs": "cat"}')
                received.append(read_all(connection).partition(b"\r\n")[0])
        return received

    assert on_port(guarded, use) == [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK", b"HTTP/1.1 401 Unauthorized"]


# --- the end ----------------------------------------------------------------------------------------------------------


def test_sigterm_under_load_loses_no_accepted_request(directories):
    running = Server(directories / "encoder", "--dtype", "float32")
    statuses, errors, first = [], [], threading.Barrier(9)

    def client():
        connection, is_new, count = running.connect(), True, 0
        while True:
            try:
                connection.request(
                    "POST", "/embed", json.dumps({"inputs": TEXTS}), {"content-type": "application/json"}
                )
                answer = connection.getresponse()
                statuses.append(answer.status)
                answer.read()
                is_new = answer.getheader("connection") == "close"
            except OSError as error:
                if not is_new:  # a connection that the server had accepted, and did not announce to close
                    errors.append(error)
                return
            count += 1
            if count == 5:
                first.wait(SECONDS)

    threads = [threading.Thread(target=client) for _ in range(8)]
    try:
        for thread in threads:
            thread.start()
        first.wait(SECONDS)
        running.signal()
        assert running.wait() == 0
        for thread in threads:
            thread.join(SECONDS)
    finally:
        running.kill()
    assert {*statuses} == {200} and len(statuses) >= 40
    assert errors == []


def test_requests_that_wait_are_answered_before_the_end(directories):
    running = Server(directories / "encoder", "--dtype", "float32", "--batch-tokens", "64")
    replies = []
    threads = [
        threading.Thread(target=lambda: replies.append(running.post("/embed", {"inputs": TEXTS[:1]})[0]))
        for _ in range(6)
    ]
    try:
        for thread in threads:
            thread.start()
        while b'te_queue_size{model="encoder"} 0' in running.get("/metrics")[2] and not replies:
            pass
        running.signal()
        assert running.wait() == 0
        for thread in threads:
            thread.join(SECONDS)
    finally:
        running.kill()
    assert [status for status in replies if status != 200] == []


def test_a_model_directory_that_is_replaced_does_not_disturb_the_server(predictors, tmp_path):
    predictors["encoder"].save(tmp_path / "model")
    with serving(tmp_path / "model", "--dtype", "float32") as running:
        before = running.post("/embed", {"inputs": TEXTS})[2]
        for file in (tmp_path / "model").rglob("*.*"):
            file.write_bytes(b"")  # in place
        assert running.post("/embed", {"inputs": TEXTS})[2] == before


# --- the start --------------------------------------------------------------------------------------------------------


def run(*arguments, **environment):
    command = [sys.executable, "-m", "bothways", "serve", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    return done.returncode, done.stderr.strip()


def test_a_port_in_use_is_an_error_of_one_line_before_models_are_loaded(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        status, message = run(tmp_path / "no-model", "--port", taken.getsockname()[1])
    assert status == 1 and "\n" not in message and "cannot listen" in message and "in use" in message


def test_other_machines_need_a_key_unless_everybody_is_allowed():
    for host in ("0.0.0.0", "::", "10.0.0.1", "example.org"):
        with pytest.raises(UsageError, match="--no-auth"):
            server.check_address(Serve(host=host), [])
        server.check_address(Serve(host=host), ["key"])
        server.check_address(Serve(host=host, auth=False), [])
    for host in ("127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost"):
        server.check_address(Serve(host=host), [])


def test_the_options_of_access_reach_the_server(tmp_path):
    (tmp_path / "keys").write_text("secret")
    words = ["--api-key-file", str(tmp_path / "keys"), "--allow-host", "search.example", "--host", "0.0.0.0"]
    settings = parse("serve", words)
    keys = server.read_keys(settings.api_key_file, {})
    server.check_address(settings, keys)
    access = server.access_of(settings, keys)
    assert access.knows_key("Bearer secret") and not access.knows_key("Bearer other")
    assert access.knows_host("search.example:8080") and not access.knows_host("other.example")


def test_keys_are_read_from_a_file_or_the_environment(tmp_path):
    file = tmp_path / "keys"
    file.write_text("one\n\ntwo\n")
    assert server.read_keys(file, {server.KEY_VARIABLE: "three"}) == ["one", "two"]
    for encoding in ("utf-8-sig", "utf-16"):  # as editors of Windows write it
        file.write_bytes("one\r\ntwo".encode(encoding))
        assert server.read_keys(file, {}) == ["one", "two"]
    assert server.read_keys(None, {server.KEY_VARIABLE: "three four"}) == ["three", "four"]
    assert server.read_keys(None, {}) == []
    file.write_text("\n")
    with pytest.raises(InputError, match="no key"):
        server.read_keys(file, {})
    with pytest.raises(InputError, match="key 2 is not ASCII"):
        server.read_keys(None, {server.KEY_VARIABLE: "a é"})


def test_models_have_the_names_of_their_directories_or_given_ones():
    assert models.model_names(["a/b/", "c=d/e", "d/f=g"]) == {"b": "a/b/", "c": "d/e", "f=g": "d/f=g"}
    assert [*models.model_names([])] == ["bothways-en"]
    with pytest.raises(InputError, match="two are named 'b'"):
        models.model_names(["a/b", "c/b"])
    for argument in ("a/caf\udcff", "caf\udcff=a"):
        with pytest.raises(InputError, match="not UTF-8"):
            models.model_names([argument])
    with pytest.raises(InputError, match="must follow"):
        models.model_names(["a="])


def test_room_for_compiled_kernels_is_limited_unless_it_is_set(monkeypatch):
    def listen(host, port):
        raise InputError("stop here")

    monkeypatch.setattr(server, "listen", listen)
    first, *others = server.KERNEL_CACHES
    monkeypatch.setenv(first, "7")
    for name in others:
        monkeypatch.setenv(name, "0")  # so that it is restored
        monkeypatch.delenv(name)
    with pytest.raises(InputError, match="stop here"):
        server.run(Serve())
    assert os.environ[first] == "7" and all(os.environ[name] == server.KERNEL_CACHES[name] for name in others)


def test_a_missing_package_is_named_with_the_extra(monkeypatch):
    monkeypatch.setattr(server, "find_spec", lambda name: None if name == "uvicorn" else name)
    with pytest.raises(InputError, match=r"needs the package uvicorn; pip install 'bothways\[serve\]'"):
        server.run(Serve())
