"""Evaluation of vectors by qrels, pairs and scored pairs, against slow formulas and training."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from bothways.base.errors import InputError
from bothways.evaluation import evaluate, retrieval
from bothways.inference.predictor import Predictor
from bothways.measure import metrics
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint
from bothways.settings import Evaluate, TrainEmbed
from bothways.tasks.embed.files import read_pairs
from bothways.tasks.embed.training import Embedding

WORDS = "the cat on a mat dog ran sat b c".split()


@pytest.fixture(scope="module")
def model(make_model, tokenizer, tmp_path_factory):
    directory = tmp_path_factory.mktemp("vectors") / "model"
    checkpoint.save(Checkpoint(make_model("bert", {}), tokenizer, pooling="mean"), directory)
    return directory


def some_texts(number, seed):
    draw = np.random.default_rng(seed)
    return [" ".join(draw.choice(WORDS, int(draw.integers(2, 9)))) for _ in range(number)]


def measured(model, file):
    return evaluate.run(Evaluate(model=model, file=(file,), dtype="float32"))


def test_a_collection_is_scored_by_the_cosines_of_all_documents(model, tmp_path):
    documents, queries = some_texts(60, 0), some_texts(12, 1)
    draw = np.random.default_rng(2)
    gold = {f"q{row}": {f"d{place}": 1.0 for place in draw.choice(60, 5, replace=False)} for row in range(12)}
    for name, sign, texts in (("corpus", "d", documents), ("queries", "q", queries)):
        rows = [json.dumps({"_id": f"{sign}{row}", "text": text}) for row, text in enumerate(texts)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows), encoding="utf-8")
    (tmp_path / "qrels").mkdir()
    lines = [f"{query}\t{document}\t1" for query, relevant in gold.items() for document in relevant]
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "\n".join(lines), encoding="utf-8")

    predictor = Predictor(checkpoint.load(model), dtype="float32")
    cosines = predictor.embed(queries) @ predictor.embed(documents).T
    ranking = {f"q{row}": [f"d{place}" for place in np.argsort(-cosines[row])[:10]] for row in range(12)}
    result = measured(model, tmp_path)
    scores = {**metrics.ranking_scores(gold, ranking), "documents": 60}
    assert {name: result[name] for name in scores} == pytest.approx(scores)
    low, high = result["mrr@10_interval"]
    assert low < result["mrr@10"] < high


@pytest.mark.parametrize("kind", ["search", "pairs"])
def test_the_warning_on_few_rows_without_fine_tuning_asks_for_more(model, tmp_path, caplog, kind):
    files = {"corpus": ["d1", "d2"], "queries": ["q1", "q2"]}
    for name, ids in files.items():
        rows = [json.dumps({"_id": name, "text": f"the cat {name}"}) for name in ids]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows), encoding="utf-8")
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\nq2\td2\t1\n", encoding="utf-8")
    pairs = tmp_path / "pairs.jsonl"
    scored = [{"text": "a cat", "pair": "the cat", "score": 4.5}, {"text": "a dog", "pair": "b", "score": 1.0}]
    pairs.write_text("\n".join(map(json.dumps, scored)), encoding="utf-8")
    measured(model, tmp_path if kind == "search" else pairs)
    rows = "queries" if kind == "search" else "pairs"
    assert f"2 {rows} are too few" in caplog.text and caplog.text.rstrip().endswith(f"; measure on more {rows}")


def test_a_document_of_the_querys_own_name_is_not_found_by_it():
    vectors = torch.nn.functional.normalize(torch.randn(30, 4, generator=torch.Generator().manual_seed(0))).numpy()
    names = [f"x{row}" for row in range(30)]
    ranking = retrieval.nearest_documents(vectors, vectors, names, names)
    assert all(name not in documents and len(documents) == 10 for name, documents in ranking.items())


@pytest.mark.parametrize("third", ["", "score", "negative", "Negative", "worse"])
def test_pairs_are_measured_as_in_training(model, tmp_path, third):
    scored = third == "score"
    rows = [{"text": one, "pair": other} for one, other in zip(some_texts(40, 3), some_texts(40, 4), strict=True)]
    rows[7]["text"] = f"{rows[5]['text'].upper()} !"  # one query with two right passages
    values = np.random.default_rng(5).integers(0, 6, 40).tolist() if scored else some_texts(40, 6)
    for row, value in zip(rows, values, strict=True):
        row |= {third: value} if third else {}
    for name in ("train", "dev"):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    settings = TrainEmbed(
        model=model, train=tmp_path / "train.jsonl", dev=tmp_path / "dev.jsonl", out=tmp_path / "run", dtype="float32",
        negative_column="worse" if third == "worse" else None,
    )  # fmt: skip
    learned = {"negative_column": settings.negative_column}
    checkpoint.save(replace(checkpoint.load(model), metadata={"settings": learned}), tmp_path / "model")
    task = Embedding.build(settings, checkpoint.load(model), read_pairs(settings))
    expected = task.scoring.untrained_metrics["dev"]
    actual = measured(tmp_path / "model", tmp_path / "dev.jsonl")
    names = ("pearson", "spearman") if scored else ("ndcg@10", "mrr@10", "recall@10")
    assert "mean_squared_error" not in actual  # cosines are not in the scores' unit
    assert {name: actual[name] for name in names} == pytest.approx({name: expected[name] for name in names}, abs=1e-5)


@pytest.mark.parametrize(
    ("learned", "options", "names"),
    [
        ({"label_column": "similarity"}, {}, {"spearman", "pearson"}),
        ({"objective": "pairs"}, {}, {"ndcg@10", "mrr@10", "recall@10"}),
        ({"objective": "pairs"}, {"label_column": "similarity"}, {"spearman", "pearson"}),
        ({"negative_column": "other"}, {}, {"ndcg@10", "mrr@10", "recall@10"}),
    ],
)
def test_a_model_is_evaluated_on_the_columns_of_its_training(learned, options, names, model, tmp_path):
    held = checkpoint.load(model)
    checkpoint.save(replace(held, metadata={"settings": learned}), tmp_path / "model")
    first, second = some_texts(20, 3), some_texts(20, 4)
    rows = [
        {"text": one, "pair": other, "label": number % 2, "similarity": number}
        for number, (one, other) in enumerate(zip(first, second, strict=True))
    ]
    (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    file = (tmp_path / "p.jsonl",)
    scores = evaluate.run(Evaluate(model=tmp_path / "model", file=file, dtype="float32", **options))
    assert names <= scores.keys()
    if "spearman" in names:
        vectors = [Predictor(held, dtype="float32").embed(texts) for texts in (first, second)]
        expected = metrics.regression([*range(20)], (vectors[0] * vectors[1]).sum(1).tolist())["spearman"]
        assert scores["spearman"] == pytest.approx(expected)


def test_vectors_are_measured_on_one_file(model, tmp_path):
    with pytest.raises(InputError, match="one file of pairs"):
        evaluate.run(Evaluate(model=model, file=(tmp_path / "a.csv", tmp_path / "b.csv"), dtype="float32"))


def test_near_duplicates_of_a_scored_pair_are_one_unit(model, tmp_path):
    rows = [("the cat", "a dog", 1), ("The cat!", "a  dog", 2), ("the cat", "a mat", 3), ("a dog", "the cat", 4)]
    lines = [json.dumps({"text": one, "pair": other, "score": score}) for one, other, score in rows]
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines), encoding="utf-8")
    assert measured(model, tmp_path / "pairs.jsonl").intervals.num_units == 3
