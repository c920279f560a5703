"""Qrels and rankings in all their formats, and BEIR directories."""

import json

import pytest

from bothways.base.errors import InputError
from bothways.text.data.beir import BeirDataset, is_beir_dataset, is_qrels_file, read_qrels, read_ranking

TREC = "q1 0 d1 2\nq1 0 d2 0\n\nq2 0 d3 1\n"
TSV = "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t0\nq2\td3\t1\n"
JSONL = "".join(
    json.dumps({"query": query, "document": document, "grade": grade}) + "\n"
    for query, document, grade in (("q1", "d1", 2), ("q1", "d2", 0), ("q2", "d3", 1))
)
GOLD = {"q1": {"d1": 2.0, "d2": 0.0}, "q2": {"d3": 1.0}}


def written(tmp_path, name, text):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "text"), [("gold.txt", TREC), ("qrels.trec", TREC), ("a.tsv", TSV), ("a.jsonl", JSONL)]
)
def test_qrels_are_recognized_and_read(tmp_path, name, text):
    path = written(tmp_path, name, text)
    assert is_qrels_file(path) and read_qrels(path) == GOLD


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.tsv", "text\tlabel\nx\t1\n"),
        ("a.txt", "EU NNP B-NP B-ORG\n"),
        ("b.txt", "one two three 4\n"),
        ("c.txt", ""),
        ("d.csv", "query,document\na,b\n"),
    ],
)
def test_other_files_are_not_recognized_as_qrels(tmp_path, name, text):
    assert not is_qrels_file(written(tmp_path, name, text))


def test_rankings_are_sorted_by_score_and_then_by_name_as_in_trec_eval(tmp_path):
    run = "q1 Q0 d1 9 0.5 mine\nq1 Q0 d3 1 0.5 mine\nq1 Q0 d2 2 0.75 mine\nq2 Q0 d9 1 -1 mine\n"
    assert read_ranking(written(tmp_path, "run.txt", run)) == {"q1": ["d2", "d3", "d1"], "q2": ["d9"]}
    table = "query,document,score\nq1,d1,0.5\nq1,d2,0.75\n"
    assert read_ranking(written(tmp_path, "run.csv", table)) == {"q1": ["d2", "d1"]}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.txt", "q1 0 d1 2\nq1 0 d1 1\n", r"a\.txt:2: .*'q1'.*'d1'"),
        ("a.txt", "q1 0 d1 2\nq1 d1 1\n", r"a\.txt:2: 3 .* 4 "),
        ("a.txt", "q1 0 d1 high\n", r"a\.txt:1: 'high'"),
        ("a.txt", "q1 0 d1 nan\n", r"a\.txt:1: 'nan'"),
        ("a.txt", "\n", r"a\.txt: empty"),
        ("a.csv", "query,text,score\na,b,1\n", r"a\.csv: row \d+ \(line 2\): .*document.* query, text, score"),
    ],
)
def test_invalid_qrels_raise_with_file_and_line(tmp_path, name, text, message):
    with pytest.raises(InputError, match=message):
        read_qrels(written(tmp_path, name, text))


@pytest.fixture
def collection(tmp_path):
    corpus = [{"_id": "d1", "title": "Cats", "text": "sit"}, {"_id": "d2", "text": "ran"}, {"_id": "d3", "text": "x"}]
    queries = [{"_id": "q1", "text": "cat"}, {"_id": "q2", "text": "dog"}, {"_id": "q3", "text": "not judged"}]
    for name, rows in (("corpus", corpus), ("queries", queries)):
        written(tmp_path, f"{name}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    written(tmp_path, "qrels/test.tsv", TSV)
    return tmp_path


def test_a_collection_has_titles_before_texts_and_the_judged_queries(collection):
    assert is_beir_dataset(collection) and not is_beir_dataset(collection / "qrels")
    dataset = BeirDataset.read(collection)
    assert dataset.documents == {"d1": "Cats sit", "d2": "ran", "d3": "x"}
    assert dataset.queries == {"q1": "cat", "q2": "dog"} and dataset.qrels == GOLD


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("qrels/test.tsv", TSV + "q9\td1\t1\n", "'q9'"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq1\tother\t2\n", "'other'"),
        ("corpus.jsonl", '{"_id": "d1", "text": "x"}\n' * 2, r"corpus\.jsonl: row 1 \(line 2\), id d1: .*'d1'"),
        ("corpus.jsonl", '{"_id": "d1"}\n', r"corpus\.jsonl: row 0 \(line 1\), id d1: .*`text`"),
    ],
)
def test_an_inconsistent_collection_raises(collection, name, text, message):
    written(collection, name, text)
    with pytest.raises(InputError, match=message):
        BeirDataset.read(collection)


def test_a_missing_part_is_named(collection):
    (collection / "queries.jsonl").unlink()
    with pytest.raises(InputError, match=r"queries\.jsonl"):
        BeirDataset.read(collection)
