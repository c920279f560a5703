"""`predict` with models that compare the texts of a pair: TF-IDF models, and heads on two separate encodings."""

import csv
import json
import re
import shlex

import numpy as np
import pytest

import bothways
from bothways.base.errors import InputError
from bothways.cli import main
from bothways.inference.jobs import blocks
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.checkpoint.description import Description
from bothways.model.checkpoint.formats.tfidf import write_tfidf
from bothways.model.linear import tfidf
from bothways.settings import Classify
from bothways.training.finetuning.finetune import run as run_task

PAIRS = [("the cat sat " * (1 + i % 3), ("a cat ran", "dogs on a mat")[i % 2] + " and" * (i % 5)) for i in range(13)]
LABELS = ("same", "other")


@pytest.fixture
def file(tmp_path):
    """13 pairs, and at the end 4 rows that cannot be read."""
    with (tmp_path / "pairs.csv").open("w", newline="") as opened:
        csv.writer(opened).writerows([("text", "pair"), *PAIRS, *[("a", "b", "c")] * 4])
    return tmp_path / "pairs.csv"


@pytest.fixture(params=["tfidf labels", "tfidf number", "distance", "pair"])
def model(request, make_model, tokenizer, tmp_path):
    """The directory of a model of pairs."""
    metadata = {"reads_pairs": True}
    labels = () if request.param == "tfidf number" else LABELS
    if request.param.startswith("tfidf"):
        targets = np.arange(13) % 2
        kind = "classes" if labels else "number"
        rows = tfidf.TextRows(*zip(*PAIRS, strict=True), targets if labels else targets + 0.5)
        fitted = tfidf.fit(rows, rows, kind, 2 if labels else 1)
        described = Description(labels=labels, metadata=metadata)
        write_tfidf(fitted, described, tmp_path / "model")
    else:
        module = make_model(heads={"classes": 2}, pooler_act=request.param)
        checkpoint.save(Checkpoint(module, tokenizer, labels=labels, metadata=metadata), tmp_path / "model")
    return tmp_path / "model"


def test_models_of_pairs_predict_files_whose_last_block_has_no_usable_row(model, file, tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "ROWS", 5)  # the last block has rows 15 and 16
    out = tmp_path / "out.jsonl"
    options = ["--dtype", "float32", "--on-error", "skip"]
    main.main(["predict", str(model), str(file), "-o", str(out), *options])
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    loaded = bothways.load(model, dtype="float32")
    texts, seconds = zip(*PAIRS, strict=True)
    assert [row["row"] for row in rows] == [*range(13)]
    if loaded.task == "regress":
        expected = loaded.regress(texts, seconds).tolist()
    else:
        expected = [one.score for one in loaded.classify(texts, seconds)]
        assert {row["label"] for row in rows} <= {*LABELS}
    assert [row["score"] for row in rows] == pytest.approx(expected, abs=1e-6) and len({*expected}) > 5


def test_no_texts_need_no_second_texts(model):
    loaded = bothways.load(model)
    predict = getattr(loaded, loaded.task)
    assert len(predict([])) == len(predict([], [])) == 0
    with pytest.raises(InputError):
        predict(["a cat"])


def test_the_command_in_a_verdict_predicts_pairs(make_model, tokenizer, tmp_path, capsys):
    rows = [{"text": "the cat", "pair": f"{'ran sat'.split()[i % 2]} {i}", "label": "ab"[i % 2]} for i in range(60)]
    file = tmp_path / "train.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    start = tmp_path / "start"
    checkpoint.save(Checkpoint(make_model(heads={"masked_words": 0}), tokenizer), start)
    result = run_task(Classify(model=start, train=file, out=tmp_path / "run", epochs=0.1))
    command = re.search(r"bothways (predict \S+) FILE", result.verdict)
    assert command and "tfidf" in command[1]
    main.main([*shlex.split(command[1]), str(file)])
    predicted = [json.loads(line)["label"] for line in capsys.readouterr().out.splitlines()]
    assert np.mean([label == row["label"] for label, row in zip(predicted, rows, strict=True)]) > 0.9
