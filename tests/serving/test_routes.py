"""Every route: bodies, answers and statuses; answers equal those of Predictor."""

import asyncio
import base64
import json
import random

import numpy as np
import pytest

from bothways.serving import openapi
from bothways.serving.app import HANDLERS

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


def test_attention_rows_are_distributions(client, predictors):
    reply = client.post("/attention", {"inputs": TEXTS[0], "layer": 1, "head": 2}).json()
    assert reply["tokens"] == ["[CLS]", "the", "cat", "sat", "[SEP]"]
    np.testing.assert_allclose(np.sum(reply["weights"], axis=1), 1, atol=1e-5)
    assert np.shape(reply["weights"]) == (5, 5)
    assert client.post("/attention", {"inputs": "a", "layer": 99}).status == 422
    assert client.post("/attention", {"inputs": "a " * 63}).status == 422


@pytest.mark.parametrize("family", ["bert", "modernbert", "deberta", "deberta-v2", "roberta", "albert"])
def test_attention_weights_are_those_that_the_layer_applies(family, make_predictor):
    """The recorded weights times the values give what the layout returned."""
    import torch

    from bothways.batch import Batch
    from bothways.serving.attention_weights import RecordingLayout

    model = make_predictor(family)
    batch = Batch.from_encodings([model.tokenizer.encode(TEXTS[1])])
    applied = []

    class Checked(RecordingLayout):
        def attend(self, q, k, v, **options):
            result = super().attend(q, k, v, **options)
            expected = (self.weights_NSS[-1] @ v.transpose(0, 1).float()).transpose(0, 1)
            applied.append(torch.allclose(result, expected, atol=1e-5))
            return result

    encoder = model.module.encoder
    with torch.inference_mode():
        encoder(batch, encoder.build_context(batch, Checked(batch.lengths, model.device)))
    assert all(applied) and len(applied) == model.module.config.num_hidden_layers


def test_a_head_that_is_missing_is_named_with_what_the_model_can_do(client):
    reply = client.post("/tag", {"inputs": "a"})
    assert reply.status == 424 and "'encoder'" in reply.json()["error"] and "embed" in reply.json()["error"]
    assert client.post("/models/tagger/predict", {"inputs": "a"}).status == 424
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
    assert {*openapi.POSTS} == {*HANDLERS}
    served = {(route.path, method) for route in client.app.app.routes for method in route.methods - {"HEAD"}}
    listed = {(path, method.upper()) for path, methods in described.items() for method in methods}
    assert {one for one in served if not one[0].endswith((".html", ".js", ".css"))} <= listed and listed <= served
    page = client.get("/docs")
    assert page.status == 200 and b"/embed_all" in page.content and b"http" not in page.content.replace(b"https", b"")
    assert client.get("/").status in (200, 307)


def test_concurrent_clients_get_the_vectors_of_the_predictor(client, predictors):
    draw = random.Random(5)
    words = "the cat sat on mat dog and ran a b".split()
    requests = [
        [" ".join(draw.choices(words, k=draw.randint(0, 40))) for _ in range(draw.randint(1, 5))] for _ in range(64)
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
