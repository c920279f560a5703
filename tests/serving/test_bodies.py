"""Odd bodies of every route: a wrong one is refused in one line that names its field, a kind one is read as the plain
body beside it."""

import pytest

from bothways.search.indexing import index
from bothways.search.store import Store
from bothways.serving import openapi
from bothways.serving.posts import POSTS, Post
from bothways.tasks.task import LIST, Route

LONE = b'{"inputs": "\\ud800"}'
EMPTY = (400, "Empty")
NOT_JSON = (400, "Validation")
WRONG = (422, "Validation")

# Route, body, status and type of the error, and the field that the message names.
REFUSED = [
    # no JSON, no object
    ("/embed", b"", NOT_JSON, "the body"),
    ("/embed", b"{", NOT_JSON, "the body"),
    ("/embed", b'{"inputs": "a"} {}', NOT_JSON, "the body"),
    ("/embed", b'{"inputs": "\xff\xfe"}', NOT_JSON, "the body"),
    ("/embed", LONE, NOT_JSON, "the body"),
    ("/embed", b'{"inputs": NaN}', NOT_JSON, "the body"),
    ("/tag", b'{"inputs": "a", "min_score": Infinity}', NOT_JSON, "the body"),
    ("/embed", b'{"inputs": ' + b"[" * 100_000, NOT_JSON, "the body"),
    ("/embed", b"null", WRONG, "the body"),
    ("/embed", b"[]", WRONG, "the body"),
    ("/embed", b'"inputs"', WRONG, "the body"),
    ("/embed", b"7", WRONG, "the body"),
    # missing and null
    ("/embed", {}, WRONG, "inputs"),
    ("/embed", {"input": "a"}, WRONG, "inputs"),
    ("/embed", {"inputs": None}, WRONG, "inputs"),
    ("/rerank", {"texts": ["a"]}, WRONG, "query"),
    ("/rerank", {"query": "a"}, WRONG, "texts"),
    ("/rerank", {"query": None, "texts": ["a"]}, WRONG, "query"),
    ("/decode", {}, WRONG, "ids"),
    ("/similarity", {}, WRONG, "inputs"),
    ("/similarity", {"inputs": {"sentences": ["a"]}}, WRONG, "source_sentence"),
    ("/similarity", {"inputs": {"source_sentence": None, "sentences": ["a"]}}, WRONG, "source_sentence"),
    ("/similarity", {"inputs": {"source_sentence": "a"}}, WRONG, "sentences"),
    ("/answer", {}, WRONG, "question"),
    ("/answer", {"question": "a"}, WRONG, "context"),
    ("/answer", {"question": "a", "context": None}, WRONG, "context"),
    ("/answer", {"inputs": [{"question": "a"}]}, WRONG, "context"),
    ("/v1/embeddings", {"inputs": "a"}, WRONG, "input"),
    # empty
    ("/embed", {"inputs": []}, EMPTY, "inputs"),
    ("/embed_all", {"inputs": []}, EMPTY, "inputs"),
    ("/tokenize", {"inputs": []}, EMPTY, "inputs"),
    ("/predict", {"inputs": []}, EMPTY, "inputs"),
    ("/tag", {"inputs": []}, EMPTY, "inputs"),
    ("/next", {"inputs": []}, EMPTY, "inputs"),
    ("/answer", {"inputs": []}, EMPTY, "inputs"),
    ("/decode", {"ids": []}, EMPTY, "ids"),
    ("/rerank", {"query": "a", "texts": []}, EMPTY, "texts"),
    ("/similarity", {"inputs": {"source_sentence": "a", "sentences": []}}, EMPTY, "sentences"),
    ("/v1/embeddings", {"input": []}, EMPTY, "input"),
    # forms of inputs
    ("/embed", {"inputs": 7}, WRONG, "inputs"),
    ("/embed", {"inputs": True}, WRONG, "inputs"),
    ("/embed", {"inputs": {"text": "a"}}, WRONG, "inputs"),
    ("/embed", {"inputs": [[]]}, WRONG, "inputs"),
    ("/embed", {"inputs": ["a", 7]}, WRONG, "inputs"),
    ("/embed", {"inputs": ["a", None]}, WRONG, "inputs"),
    ("/embed", {"inputs": [2, True]}, WRONG, "inputs"),
    ("/embed", {"inputs": [2, 2.0]}, WRONG, "inputs"),
    ("/embed", {"inputs": [2, [2]]}, WRONG, "inputs"),
    ("/embed", {"inputs": ["a", ["a"]]}, WRONG, "inputs"),
    ("/embed", {"inputs": ["a", [2, "a"]]}, WRONG, "inputs"),
    ("/embed", {"inputs": [[[2]]]}, WRONG, "inputs"),
    ("/v1/embeddings", {"input": ["a", {}]}, WRONG, "input"),
    ("/tokenize", {"inputs": [2, 3]}, WRONG, "inputs"),
    ("/tag", {"inputs": ["a", ["a"]]}, WRONG, "inputs"),
    ("/tag", {"inputs": {"inputs": "a"}}, WRONG, "inputs"),
    ("/attention", {"inputs": ["a"]}, WRONG, "inputs"),
    ("/predict", {"inputs": 7}, WRONG, "inputs"),
    ("/predict", {"inputs": [[]]}, WRONG, "inputs"),
    ("/predict", {"inputs": ["a", "a", "a"]}, WRONG, "inputs"),
    ("/predict", {"inputs": [["a", "a", "a"]]}, WRONG, "inputs"),
    ("/predict", {"inputs": ["a", ["a"]]}, WRONG, "inputs"),
    ("/predict", {"inputs": [["a"], ["a", 7]]}, WRONG, "inputs"),
    ("/predict", {"inputs": [["a"], ["a", "a"]]}, WRONG, "inputs"),
    ("/next", {"inputs": "a"}, WRONG, "inputs"),
    ("/next", {"inputs": ["a"]}, WRONG, "inputs"),
    ("/next", {"inputs": ["a", "a", "a"]}, WRONG, "inputs"),
    ("/next", {"inputs": [["a", "a"], "a"]}, WRONG, "inputs"),
    ("/next", {"inputs": [["a", "a"], ["a"]]}, WRONG, "inputs"),
    ("/answer", {"inputs": "a"}, WRONG, "inputs"),
    ("/answer", {"inputs": ["a"]}, WRONG, "inputs"),
    ("/answer", {"inputs": [{"question": "a", "context": 7}]}, WRONG, "context"),
    ("/answer", {"question": ["a"], "context": "a"}, WRONG, "question"),
    ("/decode", {"ids": 2}, WRONG, "ids"),
    ("/decode", {"ids": "2"}, WRONG, "ids"),
    ("/decode", {"ids": [2, [2]]}, WRONG, "ids"),
    ("/decode", {"ids": [[2], [2.5]]}, WRONG, "ids"),
    ("/rerank", {"query": ["a"], "texts": ["a"]}, WRONG, "query"),
    ("/rerank", {"query": "a", "texts": "a"}, WRONG, "texts"),
    ("/rerank", {"query": "a", "texts": ["a", 7]}, WRONG, "texts"),
    ("/similarity", {"inputs": ["a"]}, WRONG, "inputs"),
    ("/similarity", {"inputs": {"source_sentence": "a", "sentences": "a"}}, WRONG, "sentences"),
    ("/similarity", {"inputs": {"source_sentence": "a", "sentences": [7]}}, WRONG, "sentences"),
    # options
    ("/embed", {"inputs": "a", "normalize": 1}, WRONG, "normalize"),
    ("/embed", {"inputs": "a", "normalize": "true"}, WRONG, "normalize"),
    ("/embed", {"inputs": "a", "truncate": "yes"}, WRONG, "truncate"),
    ("/embed", {"inputs": "a", "truncate": True, "truncation_direction": "left"}, WRONG, "truncation_direction"),
    ("/embed", {"inputs": "a", "dimensions": 0}, WRONG, "dimensions"),
    ("/embed", {"inputs": "a", "dimensions": 7.0}, WRONG, "dimensions"),
    ("/embed", {"inputs": "a", "dimensions": "7"}, WRONG, "dimensions"),
    ("/embed", {"inputs": "a", "dimensions": True}, WRONG, "dimensions"),
    ("/embed", {"inputs": "a", "dimensions": 1_000}, WRONG, "dimensions"),
    ("/embed", {"inputs": "a", "dimensions": 10**40}, WRONG, "dimensions"),
    ("/embed", {"inputs": "a", "prompt_name": "query"}, WRONG, "prompt_name"),
    ("/embed", {"inputs": "a", "prompt_name": 7}, WRONG, "prompt_name"),
    ("/v1/embeddings", {"input": "a", "encoding_format": "hex"}, WRONG, "encoding_format"),
    ("/v1/embeddings", {"input": "a", "encoding_format": 7}, WRONG, "encoding_format"),
    ("/v1/embeddings", {"input": "a", "encoding_format": ["float"]}, WRONG, "encoding_format"),
    ("/rerank", {"query": "a", "texts": ["a"], "raw_scores": 0}, WRONG, "raw_scores"),
    ("/rerank", {"query": "a", "texts": ["a"], "return_text": []}, WRONG, "return_text"),
    ("/similarity", {"inputs": {"source_sentence": "a", "sentences": ["a"]}, "parameters": 7}, WRONG, "parameters"),
    (
        "/similarity",
        {"inputs": {"source_sentence": "a", "sentences": ["a"]}, "parameters": {"truncate": 7}},
        WRONG,
        "truncate",
    ),
    ("/tokenize", {"inputs": "a", "add_special_tokens": "no"}, WRONG, "add_special_tokens"),
    ("/decode", {"ids": [2], "skip_special_tokens": 0}, WRONG, "skip_special_tokens"),
    ("/attention", {"inputs": "a", "layer": -1}, WRONG, "layer"),
    ("/attention", {"inputs": "a", "head": 1.5}, WRONG, "head"),
    ("/predict", {"inputs": "a", "raw_scores": "a"}, WRONG, "raw_scores"),
    ("/predict", {"inputs": "a", "min_score": 1.5}, WRONG, "min_score"),
    ("/predict", {"inputs": "a", "in_scope": "0.5"}, WRONG, "in_scope"),
    ("/tag", {"inputs": "a", "min_score": True}, WRONG, "min_score"),
    ("/fill", {"inputs": "[MASK]", "top": 0}, WRONG, "top"),
    ("/fill", {"inputs": "[MASK]", "top": 1_001}, WRONG, "top"),
    ("/answer", {"question": "a", "context": "a", "top": "1"}, WRONG, "top"),
    ("/search", {}, WRONG, "query"),
    ("/search", {"query": 7}, WRONG, "query"),
    ("/search", {"query": " "}, WRONG, "query"),
    ("/search", {"query": "a" * 2_001}, WRONG, "query"),
    ("/search", {"query": "a", "top": 0}, WRONG, "top"),
    ("/search", {"query": "a", "top": 101}, WRONG, "top"),
    ("/search", {"query": "a", "how": "magic"}, WRONG, "how"),
    ("/search", {"query": "a", "how": 7}, WRONG, "how"),
    ("/search", {"query": "a", "glob": ["*"]}, WRONG, "glob"),
    ("/search", {"query": "a", "filter": 7}, WRONG, "filter"),
    ("/search", {"query": "a", "min_score": 2}, WRONG, "min_score"),
    ("/search", {"query": "a", "min_score": "1"}, WRONG, "min_score"),
    # The model is chosen before its fields are read.
    ("/embed", {"model": "other"}, (404, "ModelNotFound"), "model"),
    ("/embed", {"model": 7}, (404, "ModelNotFound"), "model"),
    ("/fill", {"model": "classifier", "inputs": 7}, (424, "Backend"), "model"),
]

PAIR = {"source_sentence": "the cat", "sentences": ["cats"]}
ASKED = {"question": "the cat", "context": "a dog ran on the mat"}

# Route, body, and a plain body with the same answer.
ACCEPTED = [
    ("/embed", b'{"inputs": 7, "inputs": "the cat"}', {"inputs": "the cat"}),
    ("/embed", b'{"dimensions": "x", "inputs": "the cat", "dimensions": 7}', {"inputs": "the cat", "dimensions": 7}),
    ("/embed", b' {"inputs" : "the c\\u0061t"}\n', {"inputs": "the cat"}),
    ("/embed", {"inputs": "the cat", "unknown": [{}]}, {"inputs": "the cat"}),
    ("/embed", {"inputs": "the cat", "normalize": None, "dimensions": None}, {"inputs": "the cat"}),
    ("/embed", {"inputs": "the cat", "truncate": None, "prompt_name": None, "model": None}, {"inputs": "the cat"}),
    ("/embed", {"inputs": "the cat", "truncation_direction": "left"}, {"inputs": "the cat"}),
    ("/embed", {"inputs": "the cat", "truncation_direction": 7, "truncate": False}, {"inputs": "the cat"}),
    ("/embed", {"inputs": "the cat", "truncate": True, "truncation_direction": "Right"}, {"inputs": "the cat"}),
    ("/embed", {"inputs": "the cat", "truncate": True, "truncation_direction": None}, {"inputs": "the cat"}),
    ("/embed", {"inputs": [[5, 6], "cats"]}, {"inputs": ["the cat", "cats"]}),
    ("/embed", {"inputs": [5, 6]}, {"inputs": ["the cat"]}),
    ("/models/encoder/embed", {"inputs": "the cat", "model": 7}, {"inputs": "the cat"}),
    ("/embed_all", {"inputs": "the cat", "dimensions": "x", "normalize": 7}, {"inputs": "the cat"}),
    ("/tokenize", {"inputs": "the cat", "truncate": 7}, {"inputs": ["the cat"]}),
    ("/decode", {"ids": [[]], "truncate": 7, "prompt_name": 7}, {"ids": [[]]}),
    ("/decode", {"ids": [5, 6], "skip_special_tokens": None}, {"ids": [[5, 6]]}),
    ("/attention", {"inputs": "the cat", "layer": None, "prompt_name": 7}, {"inputs": "the cat"}),
    ("/v1/embeddings", {"input": ["the cat"], "encoding_format": None, "user": 7}, {"input": "the cat"}),
    ("/rerank", {"query": "the cat", "texts": ["cats"], "raw_scores": None}, {"query": "the cat", "texts": ["cats"]}),
    ("/similarity", {"inputs": PAIR | {"more": 7}, "parameters": None}, {"inputs": PAIR}),
    ("/similarity", {"inputs": PAIR, "parameters": {"inputs": 7, "more": 7}}, {"inputs": PAIR}),
    ("/similarity", {"inputs": PAIR, "parameters": {"dimensions": 7}}, {"inputs": PAIR, "dimensions": 7}),
    ("/similarity", {"inputs": PAIR, "truncate": 7, "parameters": {"truncate": True}}, {"inputs": PAIR}),
    ("/similarity", {"inputs": PAIR, "truncate": 7, "parameters": {"truncate": None}}, {"inputs": PAIR}),
    ("/predict", {"inputs": [["the cat"]], "min_score": None, "top": "x"}, {"inputs": [["the cat"]]}),
    ("/predict", {"inputs": "the cat", "min_score": 0}, {"inputs": "the cat", "min_score": 0.0}),
    ("/predict", {"inputs": "the cat", "parameters": 7}, {"inputs": "the cat"}),
    ("/predict", {"inputs": "the cat", "parameters": {}}, {"inputs": [["the cat"]]}),
    ("/tag", {"inputs": "the cat", "parameters": 7, "prompt_name": 7}, {"inputs": "the cat"}),
    ("/fill", {"inputs": "a [MASK]", "top": None}, {"inputs": "a [MASK]", "top": 5}),
    ("/next", {"inputs": ["a", "cat"], "top": "x"}, {"inputs": ["a", "cat"]}),
    ("/answer", {"inputs": ASKED, "question": 7, "context": []}, ASKED),
    ("/answer", ASKED | {"inputs": None, "top": None, "min_score": None}, ASKED),
    ("/search", {"query": "fee", "top": None, "how": None, "glob": None, "filter": None}, {"query": "fee"}),
    ("/search", {"query": "fee", "glob": "", "filter": "", "min_score": 0, "model": 7}, {"query": "fee"}),
]
MODELS = {"/predict": "classifier", "/tag": "tagger", "/answer": "reader"}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    root = tmp_path_factory.mktemp("bodies")
    (root / "fees.md").write_text("A fee is charged.")
    index([root / "fees.md"], root / "store", static_model="bothways-en-static", encoder=None)
    return root / "store"


@pytest.fixture
def post(serve, predictors, directory):
    with Store(directory) as store:
        client = serve(predictors, store=store)

        def send(path, body):
            prefix = f"/models/{MODELS[path]}" if path in MODELS else ""
            return client.post(prefix + path, body)

        yield send


@pytest.mark.parametrize(("path", "body", "error", "field"), REFUSED)
def test_a_wrong_body_is_refused_in_a_line_that_names_its_field(post, path, body, error, field):
    reply = post(path, body)
    answer = reply.json()
    message = answer.get("error") or answer["message"]
    assert (reply.status, answer.get("error_type") or answer["type"]) == error, message
    assert field in message and "\n" not in message and len(message) < 250


@pytest.mark.parametrize(("path", "body", "plain"), ACCEPTED)
def test_an_odd_body_is_read_as_a_plain_one(post, path, body, plain):
    reply = post(path, body)
    answer, expected = reply.json(), post(path.removeprefix("/models/encoder"), plain).json()
    if path == "/search":
        assert answer.pop("seconds") >= 0 and expected.pop("seconds") >= 0
    assert reply.status == 200 and answer == expected


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/embed", {"inputs": ["a", 7.5]}, "`inputs[1]` (7.5) is wrong; `inputs` must be a string, a list of ids, or"),
        ("/tag", {"inputs": 7}, "`inputs` (7) must be a string or a list of strings"),
        ("/answer", {"inputs": [ASKED, {"question": "a"}]}, "`inputs[1].context` is missing; it must be a string"),
        ("/similarity", {"inputs": PAIR | {"source_sentence": 7}}, "`inputs.source_sentence` (7) must be a string"),
        ("/fill", {"inputs": "a", "top": 0}, "`top` (0) must be a whole number from 1 to 1000"),
        ("/predict", {"inputs": "a", "in_scope": 2}, "`in_scope` (2) must be a number from 0 to 1"),
        ("/search", {"query": "a", "how": "magic"}, "`how` ('magic') must be one of hybrid, vectors, words"),
        ("/rerank", {"query": "a", "texts": []}, "`texts` is empty; give at least one"),
    ],
)
def test_the_message_on_a_wrong_field_has_its_place_its_value_and_its_form(post, path, body, words):
    assert words in post(path, body).json()["error"]


def test_a_description_refers_to_the_body_of_a_route_of_a_plugin_whose_name_is_taken():
    route = Route("/embed-all", "Of a plugin", LIST, "texts", compute=lambda model, items, reading: items)
    document = openapi.description("0", POSTS | {route.path: Post.of(route)})
    schemas = document["components"]["schemas"]
    found = {}
    for path in ("/embed_all", route.path):
        operation = document["paths"][path]["post"]
        reference = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        found[path] = {*schemas[reference.rpartition("/")[2]]["properties"]}
    assert found["/embed_all"] - found[route.path] == {"prompt_name"}
    assert "Of a plugin" in openapi.page(document)
