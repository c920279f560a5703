"""Taggers on texts with labelled characters: the same examples as from words, and predictions that are read again."""

import json
from dataclasses import replace

import numpy as np
import pytest

import bothways
from bothways.base.errors import InputError
from bothways.evaluation import before_after, evaluate
from bothways.inference.jobs.verbs import predict
from bothways.model.checkpoint import checkpoint
from bothways.settings import Evaluate, Predict, Tag
from bothways.settings.tables_in_memory import as_source
from bothways.tasks.tag.files import read_splits
from bothways.tasks.tag.report import entity_spans, word_span
from bothways.tasks.tag.training import Tagging
from bothways.text.data.examples import read_tagged
from bothways.training.finetuning.finetune import run as run_task

LABELS = {"cat": "FELINE", "a dog": "CANINE"}
UNITS = [*LABELS, "the", "on", "mat", "ran", "b"]


def annotated_rows(seed, number):
    """Texts with irregular spaces and punctuation, and their entities."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(number):
        text, entities = "", []
        for _ in range(int(rng.integers(4, 10))):
            unit = str(rng.choice(UNITS))
            if unit in LABELS:
                entities.append({"start": len(text), "end": len(text) + len(unit), "label": LABELS[unit]})
            text += unit + str(rng.choice([" ", "  ", ",", ". ", "-"]))
        rows.append({"text": text, "entities": entities})
    return rows


@pytest.fixture(scope="module")
def run(checkpoint_of, finetuned, table):
    splits = {
        name: table(annotated_rows(seed, count), f"{name}.jsonl")
        for seed, (name, count) in enumerate({"train": 150, "dev": 31, "test": 37}.items())
    }
    return finetuned(Tag, model=checkpoint_of(num_hidden_layers=2), **splits, epochs=4.0, window=48)


def test_entities_are_learned_from_characters_and_reported_in_their_text(run):
    assert run.result.metric == "f1" and run.result.mean > 0.8
    assert bothways.evaluate(Evaluate(model=run.result.model_directory, file=(run.settings.test,)))["sentences"] == 37


def test_predictions_are_read_again_as_gold_entities_and_as_training_data(run, tmp_path, table):
    test = run.settings.test
    out = tmp_path / "predicted.jsonl"
    predict(Predict(model=run.result.model_directory, file=str(test), out=out, keep_columns="text", dtype="float32"))
    rows = [*map(json.loads, out.read_text(encoding="utf-8").splitlines())]
    assert sum(len(row["entities"]) for row in rows) > 20
    assert all(row["text"][one["start"] : one["end"]] == one["text"] for row in rows for one in row["entities"])
    scores = evaluate.run(Evaluate(model=run.result.model_directory, file=(out,), dtype="float32"))
    assert (scores["f1"], scores["sentences"]) == (1.0, 37)
    gold = table([{**row, "entities": row["entities"][number % 2 :]} for number, row in enumerate(rows)], "gold.jsonl")
    by_model = evaluate.run(Evaluate(model=run.result.model_directory, file=(gold,), dtype="float32"))
    by_file = evaluate.run(Evaluate(model=gold, file=(), predictions=out))
    assert by_file["f1"] == pytest.approx(by_model["f1"]) and 0.5 < by_file["f1"] < 1
    settings = replace(run.settings, train=out, dev=None, test=None, folds=2, epochs=1.0, out=tmp_path / "again")
    assert run_task(settings).task == "tag"


def test_tasks_of_label_studio_are_predicted(run, tmp_path):
    rows = annotated_rows(9, 5)
    tasks, out = tmp_path / "tasks.json", tmp_path / "predicted.jsonl"
    tasks.write_text(json.dumps([{"id": 5, "data": {"text": row["text"]}} for row in rows]), encoding="utf-8")
    predict(
        Predict(model=run.result.model_directory, file=str(tasks), out=out, keep_columns="text,id", dtype="float32")
    )
    predicted = [*map(json.loads, out.read_text(encoding="utf-8").splitlines())]
    assert [(row["id"], row["text"]) for row in predicted] == [(5, row["text"]) for row in rows]
    tasks.write_text("[5]", encoding="utf-8")
    with pytest.raises(InputError, match=r"tasks\.json: row 0: .*int"):
        predict(Predict(model=run.result.model_directory, file=str(tasks), out=tmp_path / "other.jsonl"))


def test_tables_in_memory_score_like_their_file(run):
    rows = annotated_rows(2, 37)
    by_column = {name: [row[name] for row in rows] for name in ("text", "entities")}
    by_column["entities"] = [[tuple(one.values()) for one in entities] for entities in by_column["entities"]]
    model = run.result.model_directory
    scores = [
        bothways.evaluate(Evaluate(model=model, file=source, dtype="float32"))
        for source in (run.settings.test, rows, by_column)
    ]
    assert scores[0]["f1"] == scores[1]["f1"] == scores[2]["f1"]


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json"])
def test_compression_is_measured_on_annotated_texts(name, run, tmp_path):
    rows, file = annotated_rows(2, 37), tmp_path / name
    content = json.dumps(rows) if name.endswith(".json") else "\n".join(map(json.dumps, rows))
    file.write_text(content, encoding="utf-8")
    columns = before_after.TextColumns()
    evaluated = before_after.read_evaluation_rows(run.predictor, file, columns)
    assert evaluated.labelled and len(evaluated) == 37


def test_texts_give_the_same_examples_as_their_words(run, table):
    start = checkpoint.load(run.settings.model)
    words = {
        split: table(
            [{"words": one.words, "tags": one.tags} for one in read_tagged(getattr(run.settings, split))],
            f"{split}.jsonl",
        )
        for split in ("train", "dev", "test")
    }
    settings = replace(run.settings, context=False)
    tasks = [Tagging.build(one, start, read_splits(one)) for one in (settings, replace(settings, **words))]
    for split in words:
        windows = [task.data[split].windows for task in tasks]
        for ours, theirs in zip(*windows, strict=True):
            assert ours.window.ids == theirs.window.ids and ours.rows.tolist() == theirs.rows.tolist()
            assert ours.labels.tolist() == theirs.labels.tolist()


def test_a_text_is_read_as_it_is_written_and_alone(run):
    sentences = read_splits(run.settings)
    task = Tagging.build(run.settings, checkpoint.load(run.settings.model), sentences)
    texts = task.texts["train"]
    assert [len(text) for text in texts.texts] == [1] * 150
    for sentence, windows in zip(texts.sentences, texts.windows_by_text, strict=True):
        assert windows[0].window.ranges[0][0].text == sentence.words.text


def test_reported_spans_are_characters_of_the_text(run):
    row = annotated_rows(5, 1)[0]
    (sentence,) = read_tagged(as_source("train", [row]))
    spans = entity_spans(sentence.words, sentence.tags)
    assert [(one.start, one.end, one.label) for one in spans] == [
        (one["start"], one["end"], one["label"]) for one in row["entities"]
    ]
    word = word_span(sentence.words, 3)
    assert row["text"][word.start : word.end] == sentence.words[3]


def test_equal_texts_stay_in_one_split_and_are_not_read_together(run, table):
    rows = annotated_rows(7, 40)
    settings = replace(run.settings, train=table(rows + rows, "twice.jsonl"), dev=None, test=None)
    splits = read_splits(settings)
    texts = {split: {one.words.text for one in sentences} for split, sentences in splits.items()}
    assert not texts["train"] & texts["dev"] and not texts["train"] & texts["test"]


def test_a_message_on_changed_entities_is_logged_once(run, table, finetuned):
    rows = annotated_rows(8, 60)
    rows[4] = {"text": "a dog ran", "entities": [[0, 4, "CANINE"], [2, 5, "FELINE"]]}
    result = finetuned(Tag, model=run.settings.model, train=table(rows), window=48, epochs=0.2, folds=2)
    assert result.log.count("extended to whole words: 1") == result.log.count("left out because") == 1


def test_a_model_of_plain_labels_reads_its_predictions_again(run, tmp_path, table):
    rows = [{"words": one.words, "tags": [tag[2:] or tag for tag in one.tags]} for one in read_tagged(run.settings.dev)]
    settings = replace(
        run.settings, train=table(rows), dev=None, test=None, epochs=1.0, scheme="plain", out=tmp_path / "plain"
    )
    model = run_task(settings).model_directory
    out = tmp_path / "predicted.jsonl"
    predict(Predict(model=model, file=str(run.settings.test), out=out, keep_columns="text", dtype="float32"))
    assert evaluate.run(Evaluate(model=model, file=(out,), dtype="float32"))["accuracy"] == 1.0
