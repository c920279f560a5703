"""Rows to label next: uncertain, different, the same every time; and the table to fill in trains a model."""

import csv
import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans

from bothways.base.errors import InputError
from bothways.cli.main import main
from bothways.inference.active_learning import (
    BETA,
    CandidatePool,
    UnlabelledTexts,
    k_means,
    representatives,
    spread,
    uncertainties,
)
from bothways.inference.load import load
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.description import Description
from bothways.model.checkpoint.formats.tfidf import write_tfidf
from bothways.model.linear import tfidf
from bothways.settings import Classify, Predict
from bothways.text.data.examples import read_table
from bothways.text.data.labels import class_indices, label_sets
from bothways.text.data.split_tables import read_tables

LABELS = ("red", "green", "blue")
WORDS = ["the", "cat", "sat", "on", "mat", "dog", "and", "ran", "a", "b"]


def texts_of(number):
    rng = np.random.default_rng(3)
    return [" ".join(rng.choice(WORDS, 3 + row % 7)) + f" {row}" for row in range(number)]


def candidates_of(uncertainty, vectors, first=0, keys=None):
    rows = np.arange(first, first + len(vectors))
    return UnlabelledTexts(rows, keys or [*map(str, rows)], np.array(uncertainty, np.float32), vectors)


@pytest.fixture(scope="module")
def classifier(make_predictor):
    return make_predictor("bert", {"classes": 3}, labels=LABELS)


# --- the method -------------------------------------------------------------------------------------------------------


def test_uncertainty_is_one_minus_the_margin():
    scores_NC = torch.tensor([[0.5, 0.3, 0.2], [0.9, 0.05, 0.05], [0.4, 0.4, 0.2]]).log().numpy()
    assert uncertainties(scores_NC, multi_label=False) == pytest.approx([0.8, 0.15, 1.0], abs=1e-6)
    scores_NC = torch.tensor([[0.9, 0.5], [0.2, 0.99]]).logit().numpy()
    assert uncertainties(scores_NC, multi_label=True) == pytest.approx([1.0, 0.4], abs=1e-6)
    assert uncertainties(np.array([[3.0]]), multi_label=False).tolist() == [0]


def test_clusters_are_those_of_scikit_learn():
    rng = np.random.default_rng(5)
    x_NH, weights_N = rng.normal(size=(83, 7)), rng.uniform(0.1, 1, 83)
    start_KH = x_NH[spread(x_NH, weights_N, 11)]
    peer = KMeans(11, init=start_KH, n_init=1, tol=0, max_iter=100).fit(x_NH, sample_weight=weights_N)
    assert k_means(x_NH, weights_N, start_KH) == pytest.approx(peer.cluster_centers_, abs=1e-9)
    distances_NK = np.square(x_NH[:, None] - peer.cluster_centers_).sum(-1)
    nearest = distances_NK.argmin(0).tolist()
    assert len({*nearest}) == 11
    assert representatives(x_NH.astype(np.float32), weights_N.astype(np.float32), 11) == sorted(nearest)


def test_each_of_several_clusters_is_represented():
    rng = np.random.default_rng(7)
    centres = 9 * np.eye(5)
    vectors = np.concatenate([centre + 0.1 * rng.normal(size=(8, 5)) for centre in centres]).astype(np.float32)
    pool = CandidatePool(5)
    pool.add(candidates_of(np.full(40, 0.5), vectors))
    assert sorted(row // 8 for row in pool.choose("")) == [0, 1, 2, 3, 4]


def test_certain_rows_are_not_chosen_where_there_are_enough_uncertain_ones():
    rng = np.random.default_rng(8)
    uncertainty = np.where(np.arange(100) % 3 == 1, 0.8, 0.1)
    pool = CandidatePool(3)
    pool.add(candidates_of(uncertainty, rng.normal(size=(100, 4)).astype(np.float32)))
    assert {row % 3 for row in pool.choose("")} == {1}
    weights = np.array([1, 1e-4, 1, 1e-4], np.float32)  # in each cluster the centre is at the uncertain row
    assert representatives(np.array([[0], [1], [9], [8]], np.float32), weights, 2) == [0, 2]


def test_equal_vectors_give_as_many_rows_as_wanted():
    assert representatives(np.ones((6, 3), np.float32), np.zeros(6, np.float32), 4) == [0, 1, 2, 3]
    assert representatives(np.ones((2, 3), np.float32), np.ones(2, np.float32), 4) == [0, 1]


def test_a_pool_in_parts_is_the_pool_of_all():
    rng = np.random.default_rng(9)
    uncertainty, vectors = rng.uniform(size=300).astype(np.float32), rng.normal(size=(300, 5)).astype(np.float32)
    whole, parts = CandidatePool(4), CandidatePool(4)
    whole.add(candidates_of(uncertainty, vectors))
    for start in range(0, 300, 37):
        left = parts.add(candidates_of(uncertainty[start : start + 37], vectors[start : start + 37], start))
        assert len(left) <= 4 * BETA
    assert whole.choose("") == parts.choose("") and len({*whole.choose("")}) == 4
    assert set(whole.choose("")) <= set(np.argsort(-uncertainty)[: 4 * BETA].tolist())


# --- Predictor.label_next ---------------------------------------------------------------------------------------------


def test_chosen_texts_are_distinct_and_the_same_every_time(classifier):
    texts = texts_of(120)
    chosen = classifier.label_next(texts, 7)
    assert len({*chosen}) == 7 and chosen == classifier.label_next(iter(texts), 7, batch_tokens=64)
    scores = [sorted(one.scores.values(), reverse=True) for one in classifier.classify(texts)]
    margins = np.array([best - second for best, second, *_ in scores])
    assert set(chosen) <= set(np.argsort(margins)[:70].tolist())
    assert [*margins[chosen]] == sorted(margins[chosen])


def test_empty_texts_and_near_duplicates_are_not_chosen(classifier):
    texts = ["a cat", "A  cat!", "", " ", "the dog ran", "the dog, ran", "a mat", "\t"]
    assert sorted(row // 2 for row in classifier.label_next(texts, 3)) == [0, 2, 3]
    with pytest.raises(InputError, match=r"label_next \(4\) is more .* 8 texts given, 3 of them different and not"):
        classifier.label_next(texts, 4)
    pairs = ["x", "y", "", " ", "x", "x", "", "y"]
    assert len(classifier.label_next(texts, 5, pairs)) == 5  # "a cat" with x and with y, "" with y, ...


@pytest.mark.parametrize(
    ("n", "message"), [(0, r"n \(0\) must be at least 1"), ("3", "whole number"), (2.5, "whole number")]
)
def test_the_number_is_checked(n, message, classifier):
    with pytest.raises(InputError, match=message):
        classifier.label_next(["a", "b", "c"], n)


def test_other_models_and_single_texts_are_refused(classifier, make_predictor):
    with pytest.raises(InputError, match="list of texts"):
        classifier.label_next("a cat", 1)
    for heads, task in (({"tokens": 5}, "tag"), ({"classes": 1}, "regress"), ({}, "embed")):
        with pytest.raises(InputError, match=f"label_next is for classifiers; the task of this model is {task}"):
            make_predictor("bert", heads).label_next(["a", "b"], 1)


def test_pairs_that_are_encoded_separately_have_the_vectors_of_both(make_predictor):
    model = make_predictor("bert", {"classes": 3}, labels=LABELS, pooler_act="pair")
    texts = texts_of(30)
    candidates = model.label_candidates(texts, texts[::-1])
    assert candidates.vectors_NH.shape == (30, 48)
    assert len({*model.label_next(texts, 4, texts[::-1])}) == 4


def test_projected_tfidf_features_keep_their_products():
    rows = tfidf.TextRows(texts_of(60), None, np.arange(60) % 3)
    features = tfidf.fit(rows, rows, "classes", 3).tfidf.features(rows.texts, None)
    sparse = features.to_scipy()
    exact, dense = (sparse @ sparse.T).toarray(), tfidf.project(features, 4096)
    assert dense.shape == (60, 4096) and np.array_equal(dense, tfidf.project(features, 4096))
    assert np.corrcoef((dense @ dense.T).ravel(), exact.ravel())[0, 1] > 0.99
    narrow = tfidf.project(features, 128)  # the signs keep many features of a group from adding up
    assert abs((narrow @ narrow.T - exact).mean()) < 0.15


# --- predict --label-next ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def directories(classifier, make_predictor, tmp_path_factory):
    """A classifier, a labeller, a regression model and a TF-IDF classifier."""
    folder = tmp_path_factory.mktemp("models")
    checkpoint.save(classifier.checkpoint, folder / "classify")
    checkpoint.save(replace(classifier.checkpoint, multi_label=True), folder / "several")
    checkpoint.save(make_predictor("bert", {"classes": 1}).checkpoint, folder / "regress")
    checkpoint.save(make_predictor("bert", {"tokens": 5}).checkpoint, folder / "tag")
    rows = tfidf.TextRows(texts_of(60), None, np.arange(60) % 3)
    write_tfidf(tfidf.fit(rows, rows, "classes", 3), Description(labels=LABELS), folder / "tfidf")
    return folder


def run(*words):
    main([*map(str, words), "--dtype", "float32"])


def read(file):
    with file.open(encoding="utf-8", newline="") as opened:
        return [*csv.DictReader(opened)]


@pytest.mark.parametrize("model", ["classify", "tfidf"])
@pytest.mark.parametrize("suffix", ["csv", "jsonl", "txt"])
def test_the_table_to_fill_in_is_a_training_table(model, suffix, directories, tmp_path, capsys):
    texts = [*texts_of(50), 'a "dog", and\ta cat']
    file, out = tmp_path / f"new.{suffix}", tmp_path / "to_label.csv"
    rows = [{"id": f"r{row}", "text": text, "Label": "", "score": 3} for row, text in enumerate(texts)]
    if suffix == "txt":
        file.write_text("\n".join(texts), encoding="utf-8")
    elif suffix == "jsonl":
        file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    else:
        with file.open("w", encoding="utf-8", newline="") as opened:
            writer = csv.DictWriter(opened, rows[0])
            writer.writeheader()
            writer.writerows(rows)
    run("predict", directories / model, file, "--label-next", 6, "-o", out, "--json")
    assert json.loads(capsys.readouterr().out) == {"to_label": 6, "file": str(out)}
    written = read(out)
    kept = ["text"] if suffix == "txt" else ["id", "text", "input_Label", "score"]
    assert [*written[0]] == ["row", "line", *kept, "label", "suggested", "confidence"]
    predictor = load(directories / model, dtype="float32")
    assert [int(row["row"]) for row in written] == predictor.label_next(texts, 6)
    for row, prediction in zip(written, predictor.classify([row["text"] for row in written]), strict=True):
        assert row["text"] == texts[int(row["row"])] and row["label"] == ""
        assert row["suggested"] == prediction.label and float(row["confidence"]) == pytest.approx(
            prediction.score, abs=1e-4
        )
        assert suffix == "txt" or row["id"] == f"r{row['row']}"
    with pytest.raises(InputError, match="the label is empty; fill it in or drop the row"):
        class_indices(read_table(out, need_labels=True), LABELS)
    for row in written:
        row["label"] = row["suggested"]
    with out.open("w", encoding="utf-8", newline="") as opened:
        writer = csv.DictWriter(opened, written[0])
        writer.writeheader()
        writer.writerows(written)
    table = read_table(out, need_labels=True)
    assert (table.texts, table.pairs) == ([row["text"] for row in written], None)
    assert table.labels == [row["suggested"] for row in written]


def test_columns_of_the_input_with_the_names_of_ours_are_kept_under_others(directories, tmp_path):
    columns = {"row": "seat 1", "line": "7", "Label": "old", "suggested": "old", "confidence": "0.5"}
    file, out = tmp_path / "new.jsonl", tmp_path / "to_label.csv"
    rows = [{"text": text, **columns} for text in texts_of(12)]
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    run("predict", directories / "classify", file, "--label-next", 3, "-o", out)
    for row in read(out):
        assert row["label"] == "" and row["line"] == str(int(row["row"]) + 1)
        assert {name: row[f"input_{name}"] for name in columns} == columns


def test_rows_that_were_not_filled_in_are_left_out_on_request(tmp_path):
    file = tmp_path / "to_label.csv"
    file.write_text("row,text,label,suggested\n4,a,x,y\n2,b,,y\n7,c, ,x\n", encoding="utf-8")
    tables = read_tables(Classify(train=file, dev=file, on_error="skip", model=tmp_path, out=tmp_path / "run"))
    assert (tables["train"].texts, tables["train"].labels) == (["a"], ["x"])
    with pytest.raises(InputError, match=r"row 1 \(line 3\): the label is empty"):
        read_tables(Classify(train=file, dev=file, model=tmp_path, out=tmp_path / "run"))
    several = Classify(train=file, dev=file, multi_label=True, model=tmp_path, out=tmp_path / "run")
    assert label_sets(read_tables(several)["train"]) == [{"x"}, set(), set()]


def test_several_labels_are_suggested_as_a_list(directories, tmp_path):
    file, out = tmp_path / "new.txt", tmp_path / "to_label.csv"
    file.write_text("\n".join(texts_of(40)), encoding="utf-8")
    run("predict", directories / "several", file, "--label-next", 5, "-o", out)
    model = load(directories / "several", dtype="float32")
    for row in read(out):
        scores = model.classify(row["text"]).scores
        assert json.loads(row["suggested"]) == [name for name, score in scores.items() if score > 0.5]
        lowest = min(max(score, 1 - score) for score in scores.values())
        assert float(row["confidence"]) == pytest.approx(lowest, abs=1e-4)


def test_rows_of_standard_input_and_skipped_rows(directories, tmp_path, capsys):
    out, texts = tmp_path / "to_label.tsv", texts_of(30)
    command = [sys.executable, "-m", "bothways", "predict", directories / "classify", "--label-next", "4", "-o", out]
    subprocess.run([*map(str, command), "--dtype", "float32"], input="\n".join(texts), text=True, check=True)
    lines = out.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 5 and lines[0].split("\t") == ["row", "line", "text", "label", "suggested", "confidence"]
    file, out = tmp_path / "new.jsonl", tmp_path / "to_label.csv"
    rows = [json.dumps({"text": text}) for text in texts]
    file.write_text("\n".join([*rows[:3], '{"text": null}', *rows[3:]]), encoding="utf-8")
    run("predict", directories / "classify", file, "--label-next", 4, "-o", out, "--on-error", "skip", "--json")
    printed = json.loads(capsys.readouterr().out)
    assert (printed["to_label"], printed["skipped"]) == (4, 1)
    assert [texts[int(row["row"]) - (int(row["row"]) > 3)] for row in read(out)] == [row["text"] for row in read(out)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label_next": 0, "out": "a.csv"}, r"label_next \(0\) must be at least 1"),
        ({"label_next": 3}, "name a .csv with --out"),
        ({"label_next": 3, "out": "a.csv", "coverage": 0.9}, r"coverage and label_next \(3\)"),
        ({"label_next": 3, "out": "a.csv", "top": 2}, r"top and label_next \(3\)"),
        ({"label_next": 3, "out": "a.csv", "resume": True}, r"resume and label_next \(3\)"),
        ({"label_next": 3, "out": "a.csv", "keep_columns": "text"}, "keeps all columns"),
    ],
)
def test_wrong_combinations_are_wrong_usage(options, message, capsys):
    with pytest.raises(InputError, match=message):
        Predict(model="model", file="new.txt", **options)
    words = [f"--{name.replace('_', '-')}" + ("" if value is True else f"={value}") for name, value in options.items()]
    with pytest.raises(SystemExit) as stopped:
        main(["predict", "model", "new.txt", *words])
    assert stopped.value.code == 2


def test_a_single_text_is_no_file_to_choose_from():
    with pytest.raises(InputError, match=r"text and label_next \(3\) exclude each other"):
        Predict(model="model", text="a cat", label_next=3, out="a.csv")


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("classify", "--label-next 3 -o OUT.parquet", ".csv or .tsv"),
        (
            "classify",
            "--label-next 31 -o OUT",
            "--label-next (31) is more than there are: FILE has 30 rows, 30 of them",
        ),
        ("regress", "--label-next 3 -o OUT", "label_next is for classifiers; the task of this model is regress"),
        ("tag", "--label-next 3 -o OUT", "label_next is for classifiers; the task of this model is tag"),
    ],
)
def test_what_cannot_be_chosen_is_one_line(model, options, message, directories, tmp_path, capsys):
    file, out = tmp_path / "new.txt", tmp_path / "out.csv"
    file.write_text("\n".join(texts_of(30)), encoding="utf-8")
    words = options.replace("OUT.parquet", str(tmp_path / "out.parquet")).replace("OUT", str(out)).split()
    with pytest.raises(SystemExit) as stopped:
        run("predict", directories / model, file, *words)
    error = capsys.readouterr().err
    assert stopped.value.code == 1 and error.count("\n") == 1 and message.replace("FILE", str(file)) in error
    assert [*tmp_path.iterdir()] == [file]
