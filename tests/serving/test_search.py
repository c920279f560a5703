"""POST /search: passages of an index over HTTP, their limits, and the vectors of the query."""

from dataclasses import replace

import numpy as np
import pytest

from bothways.base.errors import InputError
from bothways.inference.fingerprint import vector_space
from bothways.inference.predictor import Predictor
from bothways.search import indexing
from bothways.search.indexing import index
from bothways.search.relevance import relevance, smallness
from bothways.search.reranking import rerank
from bothways.search.store import Store
from bothways.serving import document_search, openapi
from bothways.serving.models import with_reranker
from bothways.serving.server import prepare
from bothways.settings import Serve
from bothways.tasks.rerank.decoding import Reranking

FILES = {
    "fees.md": "# Late fees\n\nInvoices are due. A fee of two per cent is charged for late payment.\n\n"
    "# Cats\n\nA cat sat.",
    "rows.csv": "text,year\nthe annual report,2009\nthe cat report,2015\n",
}


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "documents"
    root.mkdir()
    for name, text in FILES.items():
        (root / name).write_text(text)
    return root


@pytest.fixture
def store(folder, tmp_path):
    index([folder], tmp_path / "store", static_model="bothways-en-static", encoder=None)
    with Store(tmp_path / "store") as store:
        yield store


@pytest.fixture
def client(serve, predictors, store):
    return serve({"encoder": predictors["encoder"]}, store=store)


def test_passages_with_their_place_and_matching_sentence(client):
    answer = client.post("/search", {"query": "what does a late payment cost", "top": 2}).json()
    assert (answer["passages"], len(answer["hits"])) == (4, 2)
    hit = answer["hits"][0]
    assert (hit["path"].rpartition("/")[2], hit["line"], hit["heading"]) == ("fees.md", 1, "Late fees")
    start, end = hit["match"]
    assert hit["text"][start:end] == "A fee of two per cent is charged for late payment."
    assert FILES["fees.md"][hit["start"] : hit["end"]] == hit["text"]


@pytest.mark.parametrize("depth", [None, 2])
def test_a_reranker_orders_what_was_found(serve, predictors, make_predictor, store, depth):
    ranker = make_predictor(heads={"classes": 1}, max_position_embeddings=256)
    query = "cat report"
    described = replace(ranker.checkpoint, metadata={"task": "rerank", **Reranking(0.5, depth).to_json()})
    model = Predictor(described, dtype="float32", device="cpu")
    client = serve({"encoder": predictors["encoder"], "ranker": model}, store=store, reranker="ranker")
    answer = client.post("/search", {"query": query, "top": 3}).json()
    expected = rerank(query, store.search(query, top=4), model)
    assert [hit["text"] for hit in answer["hits"]] == [hit.text for hit in expected[:3]]
    scores = [hit["score"] for hit in answer["hits"]]
    assert scores == pytest.approx([hit.score for hit in expected[:3]], abs=1e-5) and len(expected) == 4


def test_a_model_that_reads_no_pairs_reranks_nothing(serve, predictors, store):
    with pytest.raises(InputError, match=r"rerank \(encoder\): reads no pairs of texts; name a reranker"):
        serve({"encoder": predictors["encoder"]}, store=store, reranker="encoder")


def test_a_reranker_is_one_of_the_models_by_its_name(tmp_path):
    store, place = tmp_path / "store", tmp_path / "ranker"
    both = {"encoder": "there", "ranker": str(place)}
    assert with_reranker({"encoder": "there"}, Serve(store=store, rerank=place)) == (both, "ranker")
    assert with_reranker(both, Serve(store=store, rerank=place)) == (both, "ranker")
    url = "s3://models/ranker"
    assert with_reranker({}, Serve(store=store, rerank=url)) == ({"ranker": url}, "ranker")
    assert with_reranker({"encoder": "there"}, Serve()) == ({"encoder": "there"}, "")


@pytest.mark.parametrize(
    ("options", "message"),
    [({}, "orders what a search has found; give --store too"), ({"store": "x"}, "two models are named 'ranker'")],
)
def test_the_message_on_a_reranker_that_does_not_fit(options, message):
    with pytest.raises(InputError, match=message):
        with_reranker({"ranker": "elsewhere"}, Serve(rerank="ranker", **options))


def test_options(client):
    def names(**body):
        return [hit["text"] for hit in client.post("/search", {"query": "cat report", **body}).json()["hits"]]

    assert names(how="words", filter="year < 2010") == ["the annual report"]
    assert set(names(glob="*.csv")) == {"the annual report", "the cat report"}
    assert names(how="words", top=1) == ["the cat report"]


def test_that_nothing_is_relevant_is_a_field(client):
    found = client.post("/search", {"query": "cat report"}).json()
    assert (found["relevant"], found["hits"][0]["weak"]) == (True, False)
    missed = client.post("/search", {"query": "boiling point of tungsten"}).json()
    assert (missed["relevant"], {hit["weak"] for hit in missed["hits"]}) == (False, {True})
    assert client.post("/search", {"query": "boiling point", "min_score": 0.9}).json()["hits"] == []


@pytest.mark.parametrize(
    "body",
    [{}, {"query": 3}, {"query": " "}, {"query": "x" * 3000}, {"query": "x", "top": 0}, {"query": "x", "top": 1000},
     {"query": "x", "how": "magic"}, {"query": "x", "filter": "year >"}, {"query": "x", "filter": 3},
     {"query": "x", "filter": "yer > 3"}, {"query": "x", "glob": []}, {"query": "x", "min_score": 2},
     {"query": "x", "min_score": True}],
)  # fmt: skip
def test_wrong_bodies_are_one_line(client, body):
    reply = client.post("/search", body)
    assert reply.status == 422
    assert "\n" not in reply.json()["error"]


def test_strings_from_outside_never_break_the_route(client):
    large = "9" * 400
    for how in ("words", "vectors"):
        for query in ("cat\0", "\0", "%", '"', "\uffff \U0010ffff"):
            assert client.post("/search", {"query": query, "how": how}).status == 200, query
        for condition in (f"year < {large}", f"year > -{large}.5", "year < " + "9" * 5000, f"year like {large}"):
            found = client.post("/search", {"query": "cat report", "how": how, "filter": condition}).json()["hits"]
            assert len(found) == (0 if "like" in condition else 2), condition
        for glob in ("\0", "[", "!", "[!", "\\", "[z-a]", "/", ".."):
            reply = client.post("/search", {"query": "cat", "how": how, "glob": glob})
            assert reply.status in (200, 422), glob
        for field in ("query", "glob", "filter"):
            assert client.post("/search", {"query": "a", "how": how, field: "\ud800"}).status == 400


def test_the_route_is_described_and_there_only_with_an_index(client, serve, predictors):
    assert "/search" in client.get("/openapi.json").json()["paths"]
    assert client.get("/info").json()["store"] == {"files": 2, "passages": 4}
    without = serve({"encoder": predictors["encoder"]})
    assert without.post("/search", {"query": "x"}).status == 404
    assert "/search" not in without.get("/openapi.json").json()["paths"]
    assert "store" not in without.get("/info").json()
    assert "/search" not in openapi.description("0")["paths"]


def test_a_model_of_the_server_reads_the_query_if_it_has_the_vectors_of_the_index(
    serve, predictors, folder, tmp_path, monkeypatch
):
    model, opened = predictors["encoder"], []

    class Encoder:
        def __init__(self):
            self.model, self.fingerprint, self.embed = "encoder", vector_space(model), model.embed

    monkeypatch.setattr(indexing, "EncoderVectors", lambda name, **options: Encoder())
    index([folder], tmp_path / "encoded", static_model="bothways-en-static", encoder="encoder")
    original = document_search.open_vectors
    monkeypatch.setattr(
        document_search, "open_vectors", lambda space, name: opened.append(space) or original(space, name)
    )
    with Store(tmp_path / "encoded") as store:
        client = serve({"encoder": model}, store=store)
        hits = client.post("/search", {"query": "a cat sat", "how": "vectors", "top": 4}).json()["hits"]
        texts = [hit["text"] for hit in hits]
        cosines = model.embed(texts) @ model.embed("a cat sat")
        mean, deviation = store.database.get("encoder_background")  # of a model that is not packaged
        none = 0 * cosines
        signals_KF = np.stack([(cosines - mean) / deviation, none, none, none + smallness(store.passages)], axis=1)
        expected = relevance("vectors, encoder", signals_KF)
        assert [hit["score"] for hit in hits] == pytest.approx(expected.tolist(), abs=1e-4)
    assert "encoder" not in opened


def test_what_is_no_index_is_refused_before_anything_starts(tmp_path):
    with pytest.raises(InputError, match="no search index"):
        prepare(Serve(store=tmp_path))


def test_static_vectors_are_no_model_of_a_server():
    with pytest.raises(InputError, match="name an encoder"):
        prepare(Serve(models=("bothways-en-static",)))
