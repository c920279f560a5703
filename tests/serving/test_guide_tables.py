"""The tables of the guide to the server: its routes, limits, metrics, fields of answers and of the log are those of the
application.
"""

import json
import re

import numpy as np
import pytest

from bothways.inference.load import load
from bothways.model.checkpoint.description import Description
from bothways.model.checkpoint.formats.tfidf import write_tfidf
from bothways.model.linear import tfidf
from bothways.serving import connections, openapi, server
from bothways.serving.calls import ATTENTION_TOKENS, EXPLAIN_TOKENS
from bothways.serving.guard import Access
from bothways.serving.limits import Limits
from bothways.serving.posts import POSTS
from bothways.serving.protocol import MOST_DROPPED
from bothways.settings import Serve
from tests.guides import code_in, guide, table_of, words_of

# A body for each route, with the model that answers it and the fields of (the first of) its answers.
BODIES = {
    "/rerank": ("encoder", {"query": "a", "texts": ["a", "the cat"]}),
    "/predict": ("classifier", {"inputs": "the cat"}),
    "/tag": ("tagger", {"inputs": "the cat sat on a mat"}),
    "/answer": ("reader", {"question": "the cat", "context": "a mat"}),
    "/fill": ("encoder", {"inputs": "the [MASK] sat"}),
    "/next": ("encoder", {"inputs": ["a", "b"]}),
    "/tokenize": ("encoder", {"inputs": "the cat"}),
    "/explain": ("classifier", {"inputs": "the cat"}),
    "/attention": ("encoder", {"inputs": "the cat"}),
}


@pytest.fixture
def client(serve, predictors):
    return serve(predictors)


def test_the_routes_of_the_guide_are_those_of_the_server():
    posts = {path for row in table_of("server", "POST") for path in code_in(row[0])}
    assert posts == {*POSTS, "/", "/embeddings"}
    gets = {path for row in table_of("server", "GET") for path in code_in(row[0])}
    described = openapi.description("0", root="/embed", has_store=False)["paths"]
    served = {path for path, methods in described.items() if "get" in methods}
    assert {path.replace("NAME", "{model}") for path in gets} == served


def test_the_fields_of_bodies_in_the_guide_are_those_that_the_server_describes():
    text = words_of("server")
    with_prompt = code_in(text.partition("With `prompt_name`, the routes ")[2].partition(" put a prompt")[0])
    for paths, body, *_ in table_of("server", "POST"):
        for path in {*code_in(paths)} & {*POSTS}:
            fields = {*POSTS[path].body.__struct_fields__}
            listed = {name for name in code_in(body) if name.isidentifier()}
            listed -= {"source_sentence", "sentences"}  # fields of `inputs`
            assert listed <= fields, path
            # The others are told below the table.
            assert fields - listed <= {"model", "truncate", "truncation_direction", "prompt_name", "parameters"}, path
            assert ("prompt_name" in fields) == (path in with_prompt), path


def test_gets_need_a_key_where_the_guide_says_so(serve, predictors):
    client = serve({"encoder": predictors["encoder"]}, access=Access(keys=("k",)))
    for paths, _, key in table_of("server", "GET"):
        for path in code_in(paths):
            assert key in ("needed", "no")
            refused = client.get(path.replace("NAME", "encoder")).status == 401
            assert refused == (key == "needed"), path


@pytest.mark.parametrize("path", BODIES)
def test_answers_have_the_fields_of_the_guide(path, client):
    model, body = BODIES[path]
    reply = client.post(path, {**body, "model": model})
    answer = reply.json()
    while isinstance(answer, list):
        answer = answer[0]
    listed = next(row[2] for row in table_of("server", "POST") if code_in(row[0])[0] == path)
    # The answers of /attention and /explain are told without backquotes.
    names = code_in(listed) or re.findall("tokens|weights|layer|head|label|score|words", listed)
    assert reply.status == 200 and {*names} <= {*answer}
    assert path in ("/answer", "/attention") or {*names} == {*answer}


def test_the_limits_of_the_guide_are_the_defaults():
    defaults = {}
    for option, default, _ in table_of("server", "option | default | beyond"):
        name = code_in(option)[0].strip("-").replace("-", "_")
        defaults[name] = float(re.match(r"[\d,]+", default)[0].replace(",", ""))
    assert defaults.pop("/embed_all") == Limits.max_numbers
    assert defaults == {name: getattr(Serve, name) for name in defaults} and len(defaults) == 7
    text = words_of("server")
    assert f"`--batch-tokens {Serve.batch_tokens}` suits CPUs" in text
    assert f"at most {MOST_DROPPED >> 20} MB of it" in text
    assert f"at the latest after {server.GRACE} seconds" in text
    assert f"| {connections.MOST_CONNECTIONS:,}, and fewer than file descriptors are left |" in text
    assert f"a text of at most {ATTENTION_TOKENS} tokens" in text
    assert f"with its passage, of at most {EXPLAIN_TOKENS} tokens" in text
    assert (Serve.host, Serve.port) == ("127.0.0.1", 8080) and "listens on 127.0.0.1, port 8080;" in text


def test_the_metrics_of_the_guide_are_those_of_the_server(client):
    client.post("/embed", {"inputs": ["a", "b"]})
    client.post("/embed", {"inputs": 7})
    lines = client.get("/metrics").content.decode().splitlines()
    kinds = dict(line.split(" ")[2:4] for line in lines if line.startswith("# TYPE"))
    rows = table_of("server", "name | labels besides")
    listed = [name for row in rows for name in code_in(row[0])]
    assert {*listed} == {*kinds}
    # "Durations and batches are histograms, the last two rows gauges, the others counters."
    gauges = {name for row in rows[-2:] for name in code_in(row[0])}
    assert {name for name, kind in kinds.items() if kind == "gauge"} == gauges
    assert {name for name, kind in kinds.items() if kind == "histogram"} == {
        name for name in listed if "duration" in name or "_batch_" in name
    }
    for names, labels, _ in rows:
        for name in code_in(names):
            shown = next(line for line in lines if re.match(rf"{name}(_sum)?\{{", line))
            found = {*re.findall(r"(\w+)=", shown)} - {"model"}
            assert found == {*code_in(labels)[:1]}, name


def test_a_line_of_the_log_has_the_fields_of_the_example(serve, predictors):
    lines = []
    client = serve({"bothways-en": predictors["encoder"]}, write_log=lines.append)
    client.post("/embed", {"inputs": "a"})
    example = next(line for line in guide("server").splitlines() if line.startswith('{"time"'))
    assert [*json.loads(lines[0])] == [*json.loads(example)]


def test_what_the_guide_says_that_clients_of_tei_miss_is_not_there(client):
    rows = dict(row[:2] for row in table_of("server", "route | differences"))
    missing = next(paths for paths, difference in rows.items() if difference == "do not exist")
    for path in code_in(missing):
        assert client.post(path, {"inputs": "a"}).status == 404, path
    absent = code_in(rows["`/info`"])
    assert len(absent) == 5 and not {*absent} & {*client.get("/info").json()}


@pytest.mark.parametrize("path", ["/predict", "/tag", "/answer", "/fill"])
def test_parameters_of_hugging_face_are_ignored_where_the_guide_says_so(path, client):
    model, body = BODIES[path]
    if path == "/answer":
        body = {"inputs": body}
    row = next(row for row in table_of("server", "method of") if f"`{path}`" in row[1])
    assert "ignored" in row[3]
    options = {"top_k": 1, "function_to_apply": "none", "aggregation_strategy": "first"}
    plain = client.post(path, {**body, "model": model}).json()
    reply = client.post(path, {**body, "model": model, "parameters": options})
    # With parameters the client expects the list of lists of a hosted pipeline.
    assert reply.status == 200 and reply.json() == ([plain] if path == "/predict" else plain)


ERRORS = {
    "400 Empty": {"content": {"inputs": []}},
    "400 Validation": {"content": b"{"},
    "401 Unauthorized": {"authorization": "Bearer other"},
    "403 Validation": {"host": "elsewhere.example"},
    "404 ModelNotFound": {"content": {"inputs": "a", "model": "other"}},
    "404 NotFound": {"path": "/nothing"},
    "405 NotFound": {"path": "/info"},
    "413 Validation": {"content": {"inputs": ["a"] * 1025}},
    "415 Validation": {"content_type": "text/plain"},
    "422 Validation": {"content": {"input": "a"}},
    "424 Backend": {"path": "/tag"},
}


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_has_the_status_and_the_type_of_the_guide(error, serve, predictors):
    client = serve({"encoder": predictors["encoder"]}, access=Access(keys=("k",)))
    headers = {"authorization": "Bearer k"} | ERRORS[error]
    path, content = headers.pop("path", "/embed"), headers.pop("content", {"inputs": "a"})
    reply = client.post(path, content, **headers)
    answer = reply.json()
    assert f"{reply.status} {answer['error_type']}" == error and [*answer] == ["error", "error_type"]
    assert "\n" not in answer["error"]
    # The table has several statuses in a row, and two types where a status has two reasons.
    rows = [row for row in table_of("server", "status | meaning") if str(reply.status) in row[0].split(", ")]
    assert answer["error_type"] in code_in(rows[0][2])


def test_a_tfidf_model_has_two_routes_and_the_label_of_a_number_is_score(serve, predictors, tmp_path):
    rows = tfidf.TextRows([f"text {number}" for number in range(60)], None, np.arange(60) % 3)
    write_tfidf(tfidf.fit(rows, rows, "classes", 3), Description(labels=("x", "y", "z")), tmp_path / "tfidf")
    client = serve({"tfidf": load(tmp_path / "tfidf"), "numbers": predictors["ranker"]})
    assert client.get("/info").json()["routes"] == ["explain", "predict"]
    (answer,) = client.post("/predict", {"inputs": "a", "model": "numbers"}).json()
    assert answer["label"] == "score"
