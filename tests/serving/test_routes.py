"""Every route: bodies, answers and statuses; answers equal those of Predictor."""

import asyncio
import base64
import json
import random

import numpy as np
import pytest

from bothways.base.errors import InputError
from bothways.base.io import Files
from bothways.inference.predictor import Predictor
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.checkpoint.sentence_transformers import read_prompts
from bothways.serving.guard import Access
from bothways.serving.posts import POSTS

TEXTS = ["the cat sat", "a dog ran on the mat, and sat", "cats"]


def dict_of(prediction):
    return [{"label": name, "score": pytest.approx(score)} for name, score in prediction.scores.items()]


@pytest.fixture
def client(serve, predictors):
    return serve(predictors)


def test_vectors_are_those_of_the_predictor(client, predictors):
    model, reply = predictors["encoder"], client.post("/embed", {"inputs": TEXTS})
    assert reply.status == 200
    np.testing.assert_allclose(reply.json(), model.embed(TEXTS), atol=1e-6)
    assert reply.headers["x-vector-space"] == client.get("/info").json()["fingerprint"]
    for inputs in (TEXTS[0], [TEXTS[0]]):
        np.testing.assert_allclose(client.post("/embed", {"inputs": inputs}).json(), model.embed(TEXTS[:1]), atol=1e-6)
    raw = client.post("/embed", {"inputs": TEXTS, "normalize": False}).json()
    np.testing.assert_allclose(raw, model.embed(TEXTS, normalize=False), rtol=1e-5, atol=1e-6)
    cut = np.array(client.post("/embed", {"inputs": TEXTS, "dimensions": 7}).json())
    expected = model.embed(TEXTS)[:, :7]
    np.testing.assert_allclose(cut, expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=1e-6)


def test_ids_are_read_as_the_text_that_they_encode(client, predictors):
    ids = predictors["encoder"].tokenizer.encode(TEXTS[0]).ids
    same = [client.post("/embed", {"inputs": inputs}).json() for inputs in (ids, [ids], [TEXTS[0]])]
    assert same[0] == same[1] == same[2]
    assert client.post("/embed", {"inputs": [97]}).status == client.post("/embed", {"inputs": [-1]}).status == 422
    assert client.post("/decode", {"ids": ids}).json() == client.post("/decode", {"ids": [ids]}).json() == [TEXTS[0]]
    assert client.post("/decode", {"ids": ids, "skip_special_tokens": False}).json() == ["[CLS] the cat sat [SEP]"]


def test_vectors_of_all_tokens(client, predictors):
    rows = client.post("/embed_all", {"inputs": TEXTS}).json()
    for row, expected in zip(rows, predictors["encoder"].hidden_states(TEXTS), strict=True):
        np.testing.assert_allclose(row, expected, rtol=1e-5, atol=1e-5)


def test_tokens_have_ids_and_offsets(client):
    [tokens] = client.post("/tokenize", {"inputs": "the cats"}).json()
    assert tokens[0] == {"id": 2, "text": "[CLS]", "special": True, "start": None, "stop": None}
    assert [(one["text"], one["start"], one["stop"]) for one in tokens[1:-1]] == [
        ("the", 0, 3),
        ("cat", 4, 7),
        ("##s", 7, 8),
    ]
    assert len(client.post("/tokenize", {"inputs": ["a", "b"], "add_special_tokens": False}).json()[1]) == 1


def test_labels_are_sorted_by_score(client, predictors):
    path, model = "/models/classifier/predict", predictors["classifier"]
    single = client.post(path, {"inputs": TEXTS[0]}).json()
    assert single == sorted(dict_of(model.classify(TEXTS[0])), key=lambda one: -one["score"].expected)
    assert client.post(path, {"inputs": [[text] for text in TEXTS]}).json() == [
        sorted(dict_of(one), key=lambda one: -one["score"].expected) for one in model.classify(TEXTS)
    ]
    pair = client.post(path, {"inputs": TEXTS[:2]}).json()
    assert pair == sorted(dict_of(model.classify(*TEXTS[:2])), key=lambda one: -one["score"].expected)
    raw = client.post(path, {"inputs": TEXTS[0], "raw_scores": True}).json()
    assert sum(np.exp(one["score"]) for one in raw) != pytest.approx(1)
    assert client.post(path, {"inputs": [["a"], ["a", "b"]]}).status == 422


def test_a_label_is_null_only_in_an_answer_to_a_request_with_a_threshold(client, predictors):
    path, model = "/models/classifier/predict", predictors["classifier"]
    scores = sorted(one.score for one in model.classify(TEXTS))
    least = (scores[0] + scores[1]) / 2
    found = client.post(path, {"inputs": [[text] for text in TEXTS], "min_score": least}).json()
    assert [one["label"] for one in found] == [one.label for one in model.classify(TEXTS, min_score=least)]
    assert [one["label"] for one in found].count(None) == 1 and found[0]["scores"].keys() == {*model.labels}
    assert client.post(path, {"inputs": TEXTS[0], "min_score": 1}).json()["label"] is None
    assert isinstance(client.post(path, {"inputs": TEXTS[0]}).json(), list)
    for wrong in ({"min_score": 2}, {"min_score": "0.5"}, {"in_scope": 0.9}):
        assert client.post(path, {"inputs": TEXTS[0], **wrong}).status == 422


def test_entities_and_answers_below_the_least_score_are_not_sent(client, predictors):
    found = predictors["tagger"].tag(TEXTS)
    least = max(one.score for entities in found for one in entities)
    sent = client.post("/models/tagger/tag", {"inputs": TEXTS, "min_score": least - 1e-6}).json()
    assert sum(map(len, sent)) < sum(map(len, found)) and sum(map(len, sent)) > 0
    asked = {"question": "cat", "context": TEXTS[1], "min_score": 1}
    assert client.post("/models/reader/answer", asked).json()["answer"] == ""


def test_reranking_by_pairs_and_by_vectors(client, predictors):
    body = {"query": "cat", "texts": TEXTS, "return_text": True}
    by_vectors = client.post("/rerank", body).json()
    cosines = predictors["encoder"].embed(TEXTS) @ predictors["encoder"].embed("cat")
    assert [one["index"] for one in by_vectors] == np.argsort(-cosines).tolist()
    assert all(one["score"] == pytest.approx(cosines[one["index"]], abs=1e-5) for one in by_vectors)
    assert all(one["text"] == TEXTS[one["index"]] for one in by_vectors)
    by_pairs = client.post("/models/ranker/rerank", body | {"raw_scores": True}).json()
    numbers = predictors["ranker"].regress(["cat"] * 3, TEXTS)
    assert [one["index"] for one in by_pairs] == np.argsort(-numbers).tolist()
    assert by_pairs[0]["score"] == pytest.approx(numbers.max(), rel=1e-5)
    sigmoid = client.post("/models/ranker/rerank", body).json()[0]["score"]
    assert sigmoid == pytest.approx(1 / (1 + np.exp(-numbers.max())), rel=1e-5)


def classifier(make_model, tokenizer, labels, **description):
    model = make_model("bert", {"classes": max(1, len(labels))})
    return Predictor(Checkpoint(model=model, tokenizer=tokenizer, labels=labels, **description), device="cpu")


@pytest.mark.parametrize("reads_pairs", [None, True])
@pytest.mark.parametrize("multi_label", [False, True])
def test_a_classifier_with_two_labels_ranks_by_the_probability_of_the_second(
    serve, make_model, tokenizer, reads_pairs, multi_label
):
    metadata = {} if reads_pairs is None else {"reads_pairs": reads_pairs}
    model = classifier(make_model, tokenizer, ("no", "yes"), metadata=metadata, multi_label=multi_label)
    client = serve({"model": model})
    ranked = client.post("/rerank", {"query": "cat", "texts": TEXTS}).json()
    probabilities = [one.scores["yes"] for one in model.classify(["cat"] * 3, TEXTS)]
    assert [one["index"] for one in ranked] == np.argsort(probabilities)[::-1].tolist()
    assert [one["score"] for one in ranked] == pytest.approx(sorted(probabilities, reverse=True), rel=1e-5)


@pytest.mark.parametrize(
    ("labels", "metadata", "reason"),
    [
        (("a", "b", "c"), {}, "3 labels"),
        (("a", "b", "c"), {"reads_pairs": True}, "3 labels"),
        (("a", "b", "c", "d"), {}, "4 labels"),
        (("a", "b"), {"reads_pairs": False}, "single texts"),
        ((), {"reads_pairs": False}, "single texts"),
    ],
)
def test_a_classifier_that_cannot_rank_says_why(serve, make_model, tokenizer, labels, metadata, reason):
    client = serve({"model": classifier(make_model, tokenizer, labels, metadata=metadata)})
    reply = client.post("/rerank", {"query": "cat", "texts": TEXTS})
    assert reply.status == 424 and reason in reply.json()["error"]
    info = client.get("/info").json()
    assert "rerank" not in info["routes"] and [*info["model_type"]] == ["classifier"]
    inputs = [TEXTS[:2] if metadata.get("reads_pairs") else TEXTS[:1]]
    assert client.post("/", {"inputs": inputs}).json() == client.post("/predict", {"inputs": inputs}).json()


@pytest.mark.parametrize(
    ("reads_pairs", "inputs", "way_out"),
    [
        (False, ["a", "b"], 'reads single texts; send one as "TEXT", several as [["FIRST"], ["SECOND"]]'),
        (False, [["a", "b"], ["c", "d"]], 'several as [["FIRST"], ["SECOND"]]'),
        (True, "a", 'reads pairs of texts; send one as ["FIRST", "SECOND"], several as a list of such lists'),
        (True, [["a"], ["b"]], 'send one as ["FIRST", "SECOND"]'),
    ],
)
def test_a_message_names_the_form_of_several_texts(serve, make_model, tokenizer, reads_pairs, inputs, way_out):
    metadata = {"reads_pairs": reads_pairs}
    client = serve({"model": classifier(make_model, tokenizer, ("x", "y", "z"), metadata=metadata)})
    reply = client.post("/predict", {"inputs": inputs})
    assert reply.status == 422 and way_out in reply.json()["error"]
    several = [["a", "b"], ["c", "d"]] if reads_pairs else [["a"], ["b"]]  # as the message says
    assert len(client.post("/predict", {"inputs": several}).json()) == 2


def test_similarity_is_the_cosine(client, predictors):
    reply = client.post("/similarity", {"inputs": {"source_sentence": "cat", "sentences": TEXTS}})
    expected = predictors["encoder"].embed(TEXTS) @ predictors["encoder"].embed("cat")
    np.testing.assert_allclose(reply.json(), expected, atol=1e-6)


def test_entities_answers_words_and_next_sentences(client, predictors):
    tagged = client.post("/models/tagger/tag", {"inputs": TEXTS}).json()
    for row, entities in zip(tagged, predictors["tagger"].tag(TEXTS), strict=True):
        assert [(one["label"], one["text"], one["start"], one["end"]) for one in row] == [
            (one.label, one.text, one.start, one.end) for one in entities
        ]
    alone = client.post("/models/tagger/tag", {"inputs": TEXTS[1]}).json()
    assert alone == [one | {"score": pytest.approx(one["score"], rel=1e-5)} for one in tagged[1]]

    question = {"question": "the cat", "context": TEXTS[1]}
    [best] = predictors["reader"].answer("the cat", TEXTS[1])
    expected = {"answer": best.text, "start": best.start, "end": best.end, "score": pytest.approx(best.score)}
    for body in (question, {"inputs": question}, {"inputs": [question]}):
        reply = client.post("/models/reader/answer", body).json()
        assert (reply[0] if isinstance(reply, list) else reply) == expected
    assert len(client.post("/models/reader/answer", question | {"top": 3}).json()) == 3

    [[*guesses]] = predictors["encoder"].fill("the [MASK] sat", top=3)
    expected = [{"token": one.token, "score": pytest.approx(one.score), "text": one.text} for one in guesses]
    assert client.post("/fill", {"inputs": "the [MASK] sat", "top": 3}).json() == expected
    assert client.post("/fill", {"inputs": ["the [MASK] sat"] * 2, "top": 3}).json() == [expected] * 2
    assert len(client.post("/fill", {"inputs": "the [MASK] [MASK]"}).json()) == 2
    assert client.post("/fill", {"inputs": "no mask"}).status == 422

    score = predictors["encoder"].is_next(*TEXTS[:2])
    assert client.post("/next", {"inputs": TEXTS[:2]}).json() == {"score": pytest.approx(score)}
    assert client.post("/next", {"inputs": [TEXTS[:2]] * 2}).json() == [{"score": pytest.approx(score)}] * 2


def test_openai_embeddings_in_both_encodings(client, predictors):
    floats, packed = (
        client.post("/v1/embeddings", {"input": TEXTS, "model": "encoder", "encoding_format": encoding}).json()
        for encoding in ("float", "base64")
    )
    expected = predictors["encoder"].embed(TEXTS)
    np.testing.assert_allclose([one["embedding"] for one in floats["data"]], expected, atol=1e-6)
    unpacked = [np.frombuffer(base64.b64decode(one["embedding"]), "<f4") for one in packed["data"]]
    np.testing.assert_allclose(unpacked, expected, atol=1e-6)
    assert floats["usage"]["total_tokens"] == sum(map(len, map(predictors["encoder"].tokenizer.encode, TEXTS)))
    missing = client.post("/v1/embeddings", {"input": "a", "model": "gpt"})
    assert missing.status == 404 and {*missing.json()} == {"message", "code", "type"}
    assert [one["id"] for one in client.get("/v1/models").json()["data"]] == [*predictors]
    short = client.post("/v1/embeddings", {"input": "a", "dimensions": 5}).json()["data"][0]["embedding"]
    assert len(short) == 5 and np.linalg.norm(short) == pytest.approx(1)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_every_error_of_a_path_of_openai_has_its_form(client, serve, predictors, method):
    paths = ["/v1", "/v1/nowhere", "/v1/models/gpt", "/v1/embeddings", "/embeddings", "/models/encoder/v1/embeddings"]
    closed = serve({"encoder": predictors["encoder"]}, access=Access(keys=("key",)))
    for path in [*paths, "/v1/models", "/nowhere", "/embed", "/models/v1/embed"]:
        if (path, method) != ("/v1/models", "GET"):
            reply = asyncio.run(client.send(method, path, b"{}"))
            is_openai = path in (*paths, "/v1/models")
            assert {*reply.json()} == ({"message", "code", "type"} if is_openai else {"error", "error_type"}), path
            assert reply.json().get("code", reply.status) == reply.status >= 400
        assert {*reply.json()} == {*asyncio.run(closed.send(method, path, b"{}")).json()}


def test_a_model_of_the_list_of_openai(client, predictors):
    listed = client.get("/v1/models").json()["data"]
    assert [client.get(f"/v1/models/{name}").json() for name in predictors] == listed
    assert client.get("/v1/models/gpt").json()["type"] == "ModelNotFound"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/embed", {"inputs": ""}), ("/embed", {"inputs": ["a", ""]}), ("/embed", {"inputs": [2, 3]}),
        ("/embed_all", {"inputs": [""]}), ("/v1/embeddings", {"input": ""}), ("/v1/embeddings", {"input": ["a", ""]}),
        ("/embed", {"inputs": "", "prompt_name": "query"}), ("/tokenize", {"inputs": ""}), ("/fill", {"inputs": ""}),
        ("/similarity", {"inputs": {"source_sentence": "", "sentences": ["a"]}}), ("/next", {"inputs": ["", ""]}),
        ("/models/classifier/predict", {"inputs": ""}), ("/models/ranker/rerank", {"query": "", "texts": [""]}),
    ],
)  # fmt: skip
def test_an_empty_text_is_refused_with_its_number(client, path, body):
    client.models["encoder"].prompts = {"query": "the "}
    reply = client.post(path, body)
    assert reply.status == 400 and "Empty" in reply.json().values() and " is empty" in str(reply.json())
    assert client.post("/embed", {"inputs": " "}).status == 200


def test_a_prompt_stands_before_each_text(client, predictors):
    client.models["encoder"].prompts = {"query": "the cat ", "none": ""}
    prompted, encoder = ["the cat " + text for text in TEXTS], predictors["encoder"]
    query = {"prompt_name": "query"}
    np.testing.assert_allclose(
        client.post("/embed", {"inputs": TEXTS} | query).json(), encoder.embed(prompted), atol=1e-6
    )
    ids = [encoder.tokenizer.encode(text).ids for text in TEXTS]
    np.testing.assert_allclose(
        client.post("/embed", {"inputs": ids} | query).json(), encoder.embed(prompted), atol=1e-6
    )
    plain = client.post("/embed", {"inputs": TEXTS, "prompt_name": "none"}).json()
    np.testing.assert_allclose(plain, encoder.embed(TEXTS), atol=1e-6)
    openai = client.post("/v1/embeddings", {"input": TEXTS[0]} | query).json()["data"][0]["embedding"]
    np.testing.assert_allclose(openai, encoder.embed(prompted[0]), atol=1e-6)
    assert [len(row) for row in client.post("/embed_all", {"inputs": TEXTS} | query).json()] == [
        len(encoder.tokenizer.encode(text)) for text in prompted
    ]
    same = {"source_sentence": TEXTS[0], "sentences": TEXTS}
    cosines = client.post("/similarity", {"inputs": same, "parameters": query}).json()
    np.testing.assert_allclose(cosines, encoder.embed(prompted) @ encoder.embed(prompted[0]), atol=1e-6)


@pytest.mark.parametrize("name", ["passage", "", 7, ["query"], {}, True])
def test_an_unknown_prompt_is_refused_with_the_names_that_there_are(client, name):
    client.models["encoder"].prompts = {"query": "the ", "document": ""}
    reply = client.post("/embed", {"inputs": "a", "prompt_name": name})
    assert reply.status == 422 and "query, document" in reply.json()["error"]
    client.models["encoder"].prompts = {}
    assert "no prompts" in client.post("/embed", {"inputs": "a", "prompt_name": name}).json()["error"]


def test_prompts_are_read_from_the_files_of_sentence_transformers(tmp_path):
    assert read_prompts(Files(tmp_path)) == {}
    file, pooling = tmp_path / "config_sentence_transformers.json", tmp_path / "1_Pooling" / "config.json"
    for content, prompts in {
        "{}": {},
        '{"prompts": null}': {},
        '{"prompts": {"query": "q: "}}': {"query": "q: "},
    }.items():
        file.write_text(content)
        assert read_prompts(Files(tmp_path)) == prompts
    pooling.parent.mkdir()
    pooling.write_text('{"include_prompt": false}')
    assert read_prompts(Files(tmp_path)) == {}
    pooling.write_text("{}")
    for content in ('{"prompts": {"query": 7}}', '{"prompts": ["query"]}', '{"prompts": "query"}'):
        file.write_text(content)
        with pytest.raises(InputError, match="prompts"):
            read_prompts(Files(tmp_path))


def test_lone_surrogates_and_broken_headers_never_break_an_answer(serve, make_predictor):
    lines = []
    client = serve({"model": make_predictor(heads={"classes": 2}, labels=("a\ud800", "b"))}, write_log=lines.append)
    assert {one["label"] for one in client.post("/predict", {"inputs": "the cat"}).json()} == {"a\ufffd", "b"}
    assert client.get("/info").json()["labels"] == ["a\ufffd", "b"]
    assert client.post("/embed", {"inputs": "\ud800"}).status == 400
    assert client.post("/embed", {"inputs": "a", "model": "\udcff"}).status == 400
    anybody = serve({"model": make_predictor()}, access=Access(hosts=("*",)))
    for host in ("[::1", "[", "a:b:c", "\xff"):
        assert anybody.post("/nowhere", {}, host=host).status == 404, host
        assert anybody.post("/embed", {"inputs": 7}, host=host).status == 422, host


def test_words_are_explained_up_to_a_number_of_tokens(client, predictors):
    for name, inputs in (
        ("classifier", TEXTS[0]),
        ("tagger", TEXTS[0]),
        ("reader", ["the cat", TEXTS[0]]),
        ("encoder", ["the cat", TEXTS[0]]),
    ):
        reply = client.post("/explain", {"inputs": inputs, "model": name}).json()
        texts = [inputs] if isinstance(inputs, str) else inputs
        assert reply["words"] and all(
            texts[one["text"]][one["start"] : one["end"]] == one["word"] for one in reply["words"]
        )
        assert reply.keys() == predictors[name].explain(*texts).to_json().keys()

    assert client.post("/explain", {"inputs": "the cat", "model": "classifier", "label": "no"}).status == 422
    assert client.post("/explain", {"inputs": " ", "model": "classifier"}).status == 422
    assert client.post("/explain", {"inputs": "the cat", "model": "encoder"}).status == 422
    assert client.post("/explain", {"inputs": "a " * 300, "model": "classifier"}).status == 413
    assert client.post("/explain", {"inputs": ["a"], "model": "classifier"}).status == 422


def test_attention_rows_are_distributions(client, predictors):
    reply = client.post("/attention", {"inputs": TEXTS[0], "layer": 1, "head": 2}).json()
    assert reply["tokens"] == ["[CLS]", "the", "cat", "sat", "[SEP]"]
    np.testing.assert_allclose(np.sum(reply["weights"], axis=1), 1, atol=1e-5)
    assert reply["weights"] == predictors["encoder"].attention(TEXTS[0]).weights[1, 2].tolist()
    assert client.post("/attention", {"inputs": "a", "layer": 99}).status == 422
    assert client.post("/attention", {"inputs": "a", "head": 99}).status == 422
    assert client.post("/attention", {"inputs": "a " * 63}).status == 422


@pytest.mark.parametrize("given", [{}, {"layer": 1}, {"head": 0}, {"layer": 0, "head": 1}])
def test_attention_is_of_the_clearest_head_that_the_body_allows(client, predictors, given):
    reply = client.post("/attention", {"inputs": TEXTS[0], **given}).json()
    assert given.items() <= reply.items()
    found = predictors["encoder"].attention(TEXTS[0])
    assert reply["weights"] == found.weights[reply["layer"], reply["head"]].tolist()
    assert (reply["layer"], reply["head"]) == found.clearest_head([True, False, False, False, True], **given)


@pytest.mark.parametrize("reads_pairs", [None, True, False])
def test_info_says_whether_a_model_reads_pairs(serve, make_model, tokenizer, reads_pairs):
    metadata = {} if reads_pairs is None else {"reads_pairs": reads_pairs}
    model = classifier(make_model, tokenizer, ("a", "b"), metadata=metadata)
    assert serve({"model": model}).get("/info").json()["reads_pairs"] is reads_pairs


def test_a_head_that_is_missing_is_named_with_what_the_model_can_do(client):
    reply = client.post("/tag", {"inputs": "a"})
    assert reply.status == 424 and "'encoder'" in reply.json()["error"] and "embed" in reply.json()["error"]
    assert reply.json()["error"].endswith("post to /models/tagger/tag")
    other = client.post("/models/tagger/predict", {"inputs": "a"})
    assert other.status == 424
    assert other.json()["error"].endswith("post to /models/classifier/predict or /models/ranker/predict")
    assert client.post("/models/nobody/embed", {"inputs": "a"}).status == 404
    assert client.post("/embed", {"inputs": "a", "model": "tagger"}).status == 200


def test_info_and_health(client):
    info = client.get("/info").json()
    assert info["model_id"] == "encoder" and info["models"][1] == "classifier" and info["task"] == "embed"
    assert client.get("/models/tagger/info").json()["labels"] == ["O", "B-PER", "I-PER"]
    assert client.get("/health").status == client.get("/ping").status == 200
    assert client.get("/nowhere").status == 404 and client.get("/embed").status == 405


def test_the_description_lists_every_route(client):
    described = client.get("/openapi.json").json()["paths"]
    served = {(route.path, method) for route in client.app.app.routes for method in route.methods - {"HEAD"}}
    listed = {(path, method.upper()) for path, methods in described.items() for method in methods}
    assert {one for one in served if not one[0].endswith((".html", ".js", ".css"))} <= listed and listed <= served
    page = client.get("/docs")
    assert page.status == 200 and b"/embed_all" in page.content and b"http" not in page.content.replace(b"https", b"")
    assert client.get("/").status in (200, 307)


def test_the_description_has_the_prompt_of_the_routes_that_read_it(client):
    sentences = {"source_sentence": "a", "sentences": ["a"]}
    bodies = {path: {"inputs": "a"} for path in ("/embed", "/embed_all", "/tokenize", "/attention")}
    bodies |= {"/similarity": {"inputs": sentences}, "/v1/embeddings": {"input": "a"}, "/decode": {"ids": [2]}}
    readers = {path for path, body in bodies.items() if client.post(path, body | {"prompt_name": 7}).status == 422}
    assert readers == {path for path, post in POSTS.items() if "prompt_name" in post.body.__struct_fields__}


def test_concurrent_clients_get_the_vectors_of_the_predictor(client, predictors):
    draw = random.Random(5)
    words = "the cat sat on mat dog and ran a b".split()
    requests = [
        [" ".join(draw.choices(words, k=draw.randint(1, 40))) for _ in range(draw.randint(1, 5))] for _ in range(64)
    ]

    async def run():
        bodies = [json.dumps({"inputs": texts}).encode() for texts in requests]
        return await asyncio.gather(*(client.send("POST", "/embed", body) for body in bodies))

    for texts, reply in zip(requests, asyncio.run(run()), strict=True):
        assert reply.status == 200
        np.testing.assert_allclose(reply.json(), predictors["encoder"].embed(texts), atol=1e-5)


def test_long_texts_are_read_whole_unless_they_are_to_be_cut(client, predictors):
    long = "the cat sat on the mat and " * 60
    whole, cut = (client.post("/embed", {"inputs": ["a", long], "truncate": value}) for value in (False, True))
    np.testing.assert_allclose(whole.json(), predictors["encoder"].embed(["a", long]), atol=1e-5)
    np.testing.assert_allclose(cut.json(), predictors["encoder"].embed(["a", long], long="truncate"), atol=1e-5)
    assert "x-truncated-texts" not in whole.headers and cut.headers["x-truncated-texts"] == "1"


def test_the_fingerprint_is_that_of_the_space(make_predictor):
    from bothways.inference.fingerprint import vector_space

    model = make_predictor(pooling="mean")
    assert vector_space(model) == vector_space(make_predictor(pooling="mean", dtype="bfloat16"))
    others = [make_predictor(pooling="cls"), make_predictor(pooling="mean", seed=1)]
    assert len({vector_space(model), *map(vector_space, others)}) == 3
