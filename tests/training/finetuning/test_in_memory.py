"""Runs from tables in memory: the bytes and scores of a run from files with the same rows, and a record of what they
were."""

import json
import re
from dataclasses import replace

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import bothways
from bothways.base.errors import InputError
from bothways.cli import main
from bothways.settings import Answer, Classify, Evaluate, Pretrain, Tag, TrainEmbed
from bothways.text.corpus.documents import Corpus
from bothways.text.data.split_tables import read_tables

WORDS = "the and on a b mat ran".split()


def texts(number, seed=0):
    """About so many words each, of which one is an animal, every other row a cat."""
    rng = np.random.default_rng(seed)
    for index in range(number):
        words = rng.choice(WORDS, int(rng.integers(4, 9))).tolist()
        words.insert(int(rng.integers(len(words) + 1)), ("cat", "dog")[index % 2])
        yield words


def classes(number, seed=0):
    labels = {False: "canine", True: "feline"}
    rows = [{"text": " ".join(words), "label": labels["cat" in words]} for words in texts(number, seed)]
    return [*rows, {**rows[0], "text": rows[0]["text"].upper() + "!"}, {"text": "no label", "label": None}]


def tags(number):
    names = {"cat": "B-X", "dog": "B-X"}
    return [{"tokens": words, "ner_tags": [names.get(word, "O") for word in words]} for words in texts(number)]


def questions(number):
    passages = [" ".join(words) for words in texts(number)]
    cases = [(passage, next(word for word in ("cat", "dog") if word in passage)) for passage in passages]
    return [
        {
            "id": str(place), "question": "who", "context": passage,
            "answers": {"text": [answer], "answer_start": [passage.index(answer)]},
        }
        for place, (passage, answer) in enumerate(cases)
    ]  # fmt: skip


def pairs(number):
    return [{"anchor": " ".join(words), "positive": " ".join(words[::-1])} for words in texts(number)]


TASKS = {  # settings class, options, rows, container in memory
    "classify": (Classify, {"on_error": "skip", "folds": 2, "baselines": False}, classes(40), pd.DataFrame),
    "tag": (Tag, {}, tags(40), pa.Table.from_pylist),
    "answer": (Answer, {"window": 32, "overlap": 8}, questions(40), list),
    "embed": (TrainEmbed, {"learning_rate": 1e-3}, pairs(40), datasets.Dataset.from_list),
}


@pytest.fixture(scope="module")
def start(checkpoint_of):
    return checkpoint_of(heads={}, num_hidden_layers=1)


def file_of(rows, path):
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


def recipe(**options):
    small = {"epochs": 1.0, "batch_tokens": 256, "dropout": 0.0, "dtype": "float32", "linear_start": False}
    return {**small, "checkpoint_every": 0, **options}


def metadata_of(run):
    return json.loads((run / "bothways.json").read_text(encoding="utf-8"))


def metrics_of(run):
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def test_a_table_in_memory_is_divided_as_a_file_of_it(tmp_path):
    """Classes alike, near-equal texts together, rows that cannot be read left out: all as in a file."""
    rows = classes(60)
    sources = file_of(rows, tmp_path / "t.jsonl"), rows, pd.DataFrame(rows), pa.Table.from_pylist(rows)
    tables = []
    for source in sources:
        splits = read_tables(Classify(model="m", out="o", train=source, on_error="skip"))
        tables.append({name: (split.texts, split.labels) for name, split in splits.items()})
    assert [*map(len, next(zip(*tables[0].values(), strict=True)))] == [49, 6, 6]
    assert all(one == tables[0] for one in tables[1:])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["files", "tables in memory"])
def test_a_run_of_several_tables_is_opened_predicts_and_resumes(kind, start, tmp_path):
    """Its record of the tables is a list, which whoever reads bothways.json must know."""
    halves = [classes(40)[:20], classes(40)[20:40]]
    tables = [file_of(rows, tmp_path / f"{number}.jsonl") for number, rows in enumerate(halves)]
    settings = Classify(
        model=start, train=tables if kind == "files" else halves, out=tmp_path / "run", **recipe(baselines=False)
    )
    bothways.train(settings)

    opened = bothways.open_run(tmp_path / "run")
    first = halves[0][0]["text"]
    assert opened.load().classify(first).label in ("canine", "feline")
    assert bothways.train(replace(settings, resume=True)).scores == opened.scores
    scores = bothways.evaluate(opened.model_directory, tables[1])
    assert (scores["texts"], scores.get("selected_on")) == (20, "train" if kind == "files" else None)
    assert len(metadata_of(tmp_path / "run")["settings"]["train"]) == 2


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_a_run_from_memory_is_the_run_from_a_file(task, start, tmp_path):
    kind, changes, rows, make = TASKS[task]
    sources = {"file": file_of(rows, tmp_path / "t.jsonl"), "memory": make(rows)}
    options = recipe(**changes)
    file, memory = (
        bothways.train(kind(model=start, train=source, out=tmp_path / name, **options))
        for name, source in sources.items()
    )
    verdict = getattr(memory, "verdict", "").replace(str(memory.directory), str(file.directory))
    own = {"verdict": verdict} if verdict else {}
    assert replace(memory, directory=file.directory, model_directory=file.model_directory, **own) == file
    assert (memory.model_directory / "model.safetensors").read_bytes() == (
        file.model_directory / "model.safetensors"
    ).read_bytes()
    assert metrics_of(memory.directory) == metrics_of(file.directory)
    of_file, of_memory = metadata_of(file.directory), metadata_of(memory.directory)
    assert of_memory["examples"] == of_file["examples"]
    if task == "classify":
        lines = [(run.directory / "out-of-fold.jsonl").read_text(encoding="utf-8") for run in (file, memory)]
        without_lines = re.sub(r'"line": \d+, ', "", lines[0])
        assert without_lines.replace(f"{tmp_path}/t.jsonl", "train") == lines[1]
    record = of_memory["settings"]["train"]
    assert record["rows"] == len(rows) and record["columns"] == [*rows[0]] and len(record["fingerprint"]) == 16
    scores = [
        bothways.evaluate(
            Evaluate(model=memory.model_directory, file=[source], on_error="skip" if task == "answer" else "stop")
        )
        for source in (file_of(rows[:20], tmp_path / "new.jsonl"), make(rows[:20]))
    ]
    assert scores[0] == scores[1]


@pytest.mark.slow
def test_a_run_from_memory_resumes_only_with_the_same_rows_and_info_prints_what_they_are(start, tmp_path, capsys):
    options = recipe(on_error="skip", epochs=4.0, baselines=False)
    settings = Classify(model=start, train=classes(40), dev=classes(12, 1), out=tmp_path / "run", **options)

    def stop(row):
        if row["step"] == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bothways.train(settings, callbacks=[stop])
    before = (tmp_path / "run" / "bothways.json").read_bytes()
    with pytest.raises(InputError, match="settings .*dev: .*fingerprint"):
        bothways.train(replace(settings, dev=classes(12, 2), resume=True))
    assert json.loads((tmp_path / "run" / "bothways.json").read_bytes()) == json.loads(before)
    result = bothways.train(replace(settings, dev=classes(12, 1), resume=True))
    whole = bothways.train(replace(settings, out=tmp_path / "whole"))
    assert (result.model_directory / "model.safetensors").read_bytes() == (
        whole.model_directory / "model.safetensors"
    ).read_bytes()
    scores = bothways.evaluate(Evaluate(model=result.model_directory, file=classes(12, 1)[:-1]))
    assert scores["texts"] == 13 and "selected_on" not in scores  # other rows than dev's: one is missing
    scored = replace(settings, dev=classes(12, 1)[:-1], out=tmp_path / "scored")
    dev_scores = bothways.evaluate(Evaluate(model=bothways.train(scored).model_directory, file=classes(12, 1)[:-1]))
    assert dev_scores["selected_on"] == "dev"
    capsys.readouterr()
    main.main(["info", str(tmp_path / "run")])
    assert "kind list of dicts, rows 42, columns text, label, fingerprint " in capsys.readouterr().out


@pytest.mark.slow
def test_texts_in_memory_pretrain_as_those_of_a_file(tmp_path):
    documents = ["\n".join(" ".join(words).capitalize() + "." for words in texts(6, seed)) for seed in range(30)]
    train, held = documents[:24], documents[24:]
    files = [file_of([{"text": text} for text in some], tmp_path / f"{len(some)}.jsonl") for some in (train, held)]
    options = {
        "model": "tiny", "family": "bert", "vocab_size": 80, "steps": 4, "batch_tokens": 256, "max_length": 32,
        "evaluate_every": 4, "checkpoint_every": 0, "dtype": "float32", "processes": 1,
    }  # fmt: skip
    file = Pretrain(corpus=files[0], heldout=files[1], out=tmp_path / "file", **options)
    memory = Pretrain(
        corpus={"text": (text for text in train)}, heldout=pa.table({"text": held}),
        out=tmp_path / "memory", **options,
    )  # fmt: skip
    results = [bothways.train(file), bothways.train(memory)]
    first, second = ((result.model_directory / "model.safetensors").read_bytes() for result in results)
    assert first == second
    metadata = metadata_of(tmp_path / "memory")
    assert metadata["data"] == metadata_of(tmp_path / "file")["data"]
    assert [metadata["settings"][name][0]["rows"] for name in ("corpus", "heldout")] == [24, 6]
    assert metadata["settings"]["heldout"][0]["kind"] == "pyarrow.Table"
    again = replace(memory, corpus=[{"text": text} for text in train])
    assert Corpus(memory.corpus).fingerprint() == Corpus(again.corpus).fingerprint()
    measured = [
        bothways.evaluate(Evaluate(model=results[1].model_directory, file=one)) for one in (files[1], memory.heldout)
    ]
    assert measured[0] == measured[1]
    with pytest.raises(InputError, match="heldout: .*training"):
        bothways.train(replace(memory, heldout={"text": train}, out=tmp_path / "o"))
    with pytest.raises(InputError, match="settings .*corpus"):
        bothways.train(replace(memory, corpus={"text": train[1:]}, resume=True))


def test_evaluate_is_for_measuring_alone(start):
    with pytest.raises(InputError, match="Pretrain"):
        bothways.evaluate(Pretrain(corpus="a.txt", out="o"))
