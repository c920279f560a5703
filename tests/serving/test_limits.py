"""Limits, keys, hosts, clients that leave, malformed bodies, the log and the metrics."""

import asyncio
import json
import random
import threading

import numpy as np
import pytest

from bothways.serving.app import page_files
from bothways.serving.guard import Access
from bothways.tasks.task import MOST_RESULTS
from tests.serving.live import SECONDS

ONE = {"inputs": "the cat"}  # four tokens
BODY = json.dumps(ONE).encode()


@pytest.fixture
def encoder(predictors):
    return {"encoder": predictors["encoder"]}


class Gate:
    """Holds the computations of a served model until it is opened."""

    def __init__(self, served):
        self.queue, self.compute = served.queue, served.queue.compute
        self.begun, self.opened, self.texts = threading.Event(), threading.Event(), []
        served.queue.compute = self

    def __call__(self, call, items):
        self.texts += [text for text, _ in items]
        self.begun.set()
        assert self.opened.wait(SECONDS)
        return self.compute(call, items)


async def begun(gate):
    assert await asyncio.to_thread(gate.begun.wait, SECONDS)


async def until(condition):
    """Wait for what the server does in its own time; hangs if it does not."""
    async with asyncio.timeout(SECONDS):
        while not condition():
            await asyncio.sleep(0.001)


# --- limits of a request ----------------------------------------------------------------------------------------------


def test_a_request_above_a_limit_is_refused_with_the_limit(serve, encoder):
    client = serve(encoder, max_texts=3, max_text_tokens=20, queue_tokens=40, max_body=500)
    too_many = client.post("/embed", {"inputs": ["a"] * 4})
    assert too_many.status == 413 and "4 texts" in too_many.json()["error"] and "3" in too_many.json()["error"]
    too_long = client.post("/embed", {"inputs": ["a", "a " * 19]})
    assert too_long.status == 413 and "text 1 (counted from 0) has 21 tokens" in too_long.json()["error"]
    assert client.post("/embed", {"inputs": "a " * 18}).status == 200
    assert client.post("/embed", {"inputs": ["a " * 12] * 3}).status == 413  # more than may ever wait
    declared = client.post("/embed", {"inputs": "a" * 500})
    assert declared.status == 413 and "500 bytes" in declared.json()["error"]
    assert declared.headers["connection"] == "close"
    chunks = [b'{"inputs": "', *[b"a" * 100] * 6, b'"}']
    assert asyncio.run(client.send("POST", "/embed", chunks)).status == 413
    for path, body in {
        "/tokenize": {"inputs": "a " * 19},
        "/rerank": {"query": "a", "texts": ["a"] * 4},
        "/similarity": {"inputs": {"source_sentence": "a", "sentences": ["a"] * 4}},
        "/v1/embeddings": {"input": ["a"] * 4},
    }.items():
        assert client.post(path, body).status == 413, path


def test_vectors_of_all_tokens_are_limited_by_the_size_of_the_answer(serve, encoder):
    client = serve(encoder, max_numbers=24 * 4)
    assert client.post("/embed_all", ONE).status == 200
    assert client.post("/embed_all", {"inputs": "the cat sat"}).status == 413


def test_a_body_that_does_not_arrive_is_given_up(serve, encoder):
    client = serve(encoder, read_timeout=0.05)
    reply = asyncio.run(client.send("POST", "/embed", [b'{"inp'], is_whole=False))
    assert reply.status == 408 and "0.05 seconds" in reply.json()["error"] and reply.headers["connection"] == "close"
    assert client.app.in_flight == 0


def test_bodies_must_be_json(serve, encoder):
    client = serve(encoder)
    for kind in (None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        assert client.post("/embed", ONE, content_type=kind).status == 415
    assert client.post("/embed", ONE, content_type="application/json; charset=utf-8").status == 200


# --- limits of all requests -------------------------------------------------------------------------------------------


def test_requests_above_those_in_flight_are_refused(serve, encoder):
    client = serve(encoder, max_requests=2)

    async def run():
        gate = Gate(client.models["encoder"])
        waiting = [asyncio.ensure_future(client.send("POST", "/embed", BODY)) for _ in range(2)]
        await begun(gate)
        refused = await client.send("POST", "/embed", BODY)
        health = await client.send("GET", "/health")
        gate.opened.set()
        return refused, health, await asyncio.gather(*waiting)

    refused, health, answered = asyncio.run(run())
    assert refused.status == 429 and refused.headers["retry-after"] == "1"
    assert refused.json()["error_type"] == "Overloaded" and health.status == 200
    assert [reply.status for reply in answered] == [200, 200]
    assert client.post("/embed", ONE).status == 200


def test_tokens_above_those_that_may_wait_are_refused_with_a_time(serve, encoder):
    client = serve(encoder, queue_tokens=10, batch_tokens=4)

    async def run():
        served = client.models["encoder"]
        gate = Gate(served)
        first = [asyncio.ensure_future(client.send("POST", "/embed", BODY)) for _ in served.queue._threads]
        await until(lambda: len(gate.texts) == len(first))  # every thread is busy
        waiting = [asyncio.ensure_future(client.send("POST", "/embed", BODY)) for _ in range(2)]
        await until(lambda: served.queue.tokens == 8)
        refused = [await client.send("POST", path, body) for path, body in requests]
        gate.opened.set()
        return refused, await asyncio.gather(*first, *waiting)

    requests = [("/embed", BODY), ("/v1/embeddings", b'{"input": "the cat"}')]
    (refused, openai), answered = asyncio.run(run())
    assert refused.status == openai.status == 429 and int(refused.headers["retry-after"]) >= 1
    assert openai.json()["code"] == 429 and openai.json()["type"] == "Overloaded"
    assert {reply.status for reply in answered} == {200}


def test_a_client_that_leaves_is_dropped_before_its_batch(serve, encoder):
    lines = []
    client = serve(encoder, batch_tokens=4, write_log=lines.append)

    async def run():
        served, left = client.models["encoder"], asyncio.Event()
        gate = Gate(served)
        first = [asyncio.ensure_future(client.send("POST", "/embed", BODY)) for _ in served.queue._threads]
        await until(lambda: len(gate.texts) == len(first))
        leaving = asyncio.ensure_future(client.send("POST", "/embed", b'{"inputs": "a dog"}', left=left))
        await until(lambda: served.queue.tokens == 4)
        left.set()
        await leaving
        assert served.queue.tokens == 0
        gate.opened.set()
        await asyncio.gather(*first)
        return gate.texts

    assert "a dog" not in asyncio.run(run())
    assert {json.loads(line)["status"] for line in lines} == {200, 499}


def test_an_error_of_the_model_is_424_and_the_server_goes_on(serve, encoder):
    client = serve(encoder)
    queue = client.models["encoder"].queue
    compute = queue.compute

    def fail(call, items):
        raise RuntimeError("private text")

    queue.compute = fail
    failed = client.post("/embed", ONE)
    queue.compute = compute
    assert failed.status == 424 and failed.json()["error_type"] == "Backend" and "private" not in failed.json()["error"]
    assert client.post("/embed", ONE).status == 200


# --- who may use it ---------------------------------------------------------------------------------------------------


def test_keys(serve, encoder):
    client = serve(encoder, access=Access(keys=("one", "two")))
    refused = client.post("/embed", ONE)
    assert refused.status == 401 and refused.headers["www-authenticate"] == "Bearer"
    for given, status in {
        "Bearer one": 200,
        "bearer one": 200,
        "Bearer on": 401,
        "Bearer one1": 401,
        "one": 401,
    }.items():
        assert client.post("/embed", ONE, authorization=given).status == status, given
    assert client.get("/info").status == 401 and client.get("/info", authorization="Bearer one").status == 200
    assert client.get("/v1/models").status == 401
    for path in ("/health", "/ping", "/metrics", "/docs"):
        assert client.get(path).status == 200, path
    assert {*client.post("/v1/embeddings", {"input": "a"}).json()} == {"message", "code", "type"}


def test_only_its_own_names_and_pages_are_answered(serve, encoder):
    client = serve(encoder, access=Access(hosts=("models.example.org",)))
    for host in ("localhost", "localhost:80", "127.0.0.1:8080", "[::1]:8080", "10.1.2.3", "Models.Example.org"):
        assert client.post("/embed", ONE, host=host).status == 200, host
    for host in ("evil.example.org", "localhost.evil.org", "", None, "a@localhost", "[::1", "127.0.0.1.evil.org"):
        assert client.post("/embed", ONE, host=host).status == 403, host
        assert client.get("/info", host=host).status == 403, host
    assert client.post("/embed", ONE, origin="http://localhost:8080").status == 200
    for origin in ("http://evil.example.org", "null", "http://localhost:9", "http://[::1"):
        assert client.post("/embed", ONE, origin=origin).status == 403, origin
    assert serve(encoder, access=Access(hosts=("*",))).post("/embed", ONE, host="any.org").status == 200
    preflight = asyncio.run(client.send("OPTIONS", "/embed", headers={"origin": "http://evil.example.org"}))
    assert preflight.status == 403 and not any(name.startswith("access-control") for name in preflight.headers)


# --- log and metrics --------------------------------------------------------------------------------------------------


def test_the_log_has_a_line_of_json_per_request_without_texts(serve, encoder):
    lines = []
    client = serve(encoder, write_log=lines.append)
    secret = "the secret cat"
    reply = client.post("/embed", {"inputs": [secret, "a"]}, x_request_id="my-id.7")
    client.post("/embed", {"inputs": 7}, x_request_id="bad id\n")
    first, second = map(json.loads, lines)
    assert reply.headers["x-request-id"] == first["id"] == "my-id.7" and second["id"] not in ("", "bad id\n")
    assert (first["status"], first["texts"], first["model"], first["path"]) == (200, 2, "encoder", "/embed")
    assert first["tokens"] == sum(client.models["encoder"].count_tokens([(secret, None), ("a", None)]))
    assert (second["status"], second["error"]) == (422, "Validation")
    assert "secret" not in "".join(lines)


def test_metrics_have_the_names_of_text_embeddings_inference(serve, encoder):
    client = serve(encoder)
    client.post("/embed", {"inputs": ["the cat", "a"]})
    client.post("/embed", {"inputs": 7})
    values = dict(
        line.rsplit(" ", 1) for line in client.get("/metrics").content.decode().splitlines() if line[0] != "#"
    )
    assert float(values['te_request_success{method="batch",model="encoder"}']) == 1
    assert float(values['te_request_failure{err="validation",model="encoder"}']) == 1
    assert float(values['te_batch_next_size_sum{model="encoder"}']) == 2
    assert (
        float(values['te_batch_next_tokens_sum{model="encoder"}']) == float(values['te_tokens{model="encoder"}']) == 7
    )
    assert float(values['te_queue_size{model="encoder"}']) == float(values['te_queue_tokens{model="encoder"}']) == 0
    names = {name.partition("{")[0] for name in values}
    assert {f"te_request_{part}_count" for part in ("duration", "queue_duration", "inference_duration")} <= names
    assert {"te_request_count", "te_batch_fill_sum", "te_tokens_per_second"} <= names


# --- malformed bodies -------------------------------------------------------------------------------------------------


def malformed(draw):
    """A body that is wrong in one of many ways."""
    good = {
        "inputs": draw.choice(["a", ["a", "b"], [["a", "b"]], [1, 2], {"question": "a", "context": "b"}]),
        "input": "a", "query": "a", "texts": ["a"], "ids": [1], "question": "a", "context": "b",
    }  # fmt: skip
    values = [
        None, True, 7, -1, 1e308, 10**30, "", [], {}, [[]], [None], [7], [True], [["a", 7]], [[["a"]]], "\ud800", "\0",
        {"a": {}}, ["a", None], [{}], [{"question": 7}], {"question": "a"}, [1, "a"], [[1, -5]], [10**9], "[MASK]" * 9,
        "a " * 5000, ["a"] * 50, [["a"], ["a", "b"]], {"source_sentence": "a"}, {"source_sentence": 7, "sentences": 7},
    ]  # fmt: skip
    options = (
        "truncate normalize dimensions top layer head model encoding_format raw_scores return_text "
        "truncation_direction prompt_name parameters add_special_tokens"
    ).split()
    field = draw.choice(["inputs"] * 8 + [*good] + options)
    text = json.dumps(good | {field: draw.choice(values)})
    kind = draw.randrange(8)
    if kind == 0:
        text = text[: draw.randrange(len(text))]
    elif kind == 1:
        text = "[" * draw.choice([5, 2000, 100_000]) + text
    elif kind == 2:
        text = '{"inputs":' * 3000 + "1" + "}" * 3000
    data = text.encode("utf-8", "surrogatepass")
    if kind == 3:
        place = draw.randrange(len(data))
        data = data[:place] + bytes([draw.randrange(256)]) * draw.randrange(1, 4) + data[place:]
    if kind == 4:
        data = text.encode("utf-16")
    return data


def test_malformed_bodies_are_never_an_error_of_the_server(serve, predictors):
    client = serve(predictors, max_text_tokens=500, max_texts=40)
    draw = random.Random(3)
    paths = [route.path for route in client.app.app.routes if "POST" in route.methods]
    requests = [
        (draw.choice(paths).replace("{model}", draw.choice([*predictors, "no"])), malformed(draw)) for _ in range(600)
    ]

    async def run():
        return [(path, data[:200], await client.send("POST", path, data)) for path, data in requests]

    statuses = set()
    for path, data, reply in asyncio.run(run()):
        assert reply.status < 500, (path, data, reply.content)
        assert reply.status == 200 or {"error", "message", "detail"} & {*reply.json()}, (path, data)
        statuses.add(reply.status)
    assert {200, 400, 404, 413, 422, 424} <= statuses
    for served in client.models.values():
        assert served.queue.is_alive and served.queue.tokens == 0 and len(served.queue) == 0
    assert client.app.in_flight == 0
    np.testing.assert_allclose(client.post("/embed", ONE).json(), [predictors["encoder"].embed("the cat")], atol=1e-6)


def test_numbers_of_a_request_are_bounded(serve, predictors):
    client = serve(predictors)
    for path, body in {
        "/fill": {"inputs": "[MASK]", "top": MOST_RESULTS + 1},
        "/embed": ONE | {"dimensions": 25},
        "/attention": ONE | {"layer": -1},
    }.items():
        assert client.post(path, body).status == 422, path


# --- paths without a key, checks without a host, names in the metrics ------------------------------------------------


@pytest.mark.parametrize(
    "path",
    ["/v1/models/anything.js", "/v1/models/encoder", "/v1/models", "/models/x.css/info", "/info", "/nothing.svg",
     "/models/encoder.html/info", "/index.html/x.js", "//index.html"],
)  # fmt: skip
def test_only_the_files_of_the_page_are_read_without_a_key(path, serve, encoder):
    client = serve(encoder, access=Access(keys=("key",)))
    assert client.get(path).status == 401
    assert client.get(path, authorization="Bearer key").status in (200, 404)


def test_every_file_of_the_page_is_read_without_a_key(serve, encoder):
    client = serve(encoder, access=Access(keys=("key",)))
    assert len(page_files()) > 3
    for path in ("/health", "/ping", "/docs", "/openapi.json", "/metrics", *page_files()):
        assert client.get(path).status == 200, path


@pytest.mark.parametrize("host", [None, ""])
def test_a_check_of_health_needs_no_host(host, serve, encoder):
    client = serve(encoder, access=Access(keys=("key",)))
    assert [client.get(path, host=host).status for path in ("/health", "/ping")] == [200, 200]
    assert [client.get(path, host=host).status for path in ("/", "/info", "/metrics")] == [403] * 3
    assert client.get("/health", host="evil.example.org").status == 403
    assert client.post("/health", ONE, host=host).status == 403


@pytest.mark.parametrize(
    "name", ["a\u2028b", "te_request_count_total", "x_total", 'quote"d', "te_x_created", "a\x85b\x0bc", "back\\\\slash"]
)
def test_metrics_have_a_line_for_each_value_whatever_the_names_of_models(name, serve, predictors):
    from prometheus_client.parser import text_string_to_metric_families

    client = serve({name: predictors["encoder"]})
    assert client.post("/embed", ONE).status == 200
    text = client.get("/metrics").content.decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert {sample.labels["model"] for family in families.values() for sample in family.samples} == {name}
    assert families["te_request_count"].samples[0].value == 1.0 and "\nte_request_count{" in text
    assert families["te_tokens"].samples[0].value == 4.0 and "_total{" not in text
