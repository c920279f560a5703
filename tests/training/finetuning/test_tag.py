"""Fine-tuning a tagger on synthetic sentences: cats are FELINE, "a dog" is CANINE of two words."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import transformers

import bothways
from bothways.base.errors import InputError
from bothways.base.log import messages_to
from bothways.evaluation import evaluate
from bothways.inference.jobs.verbs import predict
from bothways.inference.predictor import Predictor
from bothways.measure.metrics.entities import entity_scores
from bothways.model.checkpoint import checkpoint
from bothways.settings import Evaluate, Predict
from bothways.tasks.batch_plan import compute_outputs
from bothways.tasks.tag.examples import all_words, detect_or_check_scheme
from bothways.tasks.tag.files import read_splits, tag_columns
from bothways.tasks.tag.task import TAG
from bothways.tasks.tag.training import Tagging
from bothways.training.finetuning.finetune import run as run_task
from tests.training.finetuning.gallery import tagged_sentences as sentences
from tests.training.finetuning.gallery import write_conll as write


@pytest.fixture
def run(gallery):
    return gallery.tag


@pytest.fixture
def settings(gallery):
    return gallery.settings("tag")


@pytest.fixture
def result(run):
    return run.result


def test_entities_that_words_determine_are_learned(result):
    assert (result.task, result.metric, result.split) == ("tag", "f1", "test")
    assert result.mean > 0.95 and result.failed == 0


def test_the_model_finds_them_in_plain_text_at_exact_characters(result):
    text = "the CAT ran on a dog and b"
    predictions = bothways.load(result.model_directory, dtype="float32").tag([text])[0]
    assert [(one.label, one.text) for one in predictions] == [("FELINE", "CAT"), ("CANINE", "a dog")]
    assert all(text[one.start : one.end] == one.text for one in predictions)


def test_the_score_of_the_run_is_that_of_the_entities_it_predicts(result, settings):
    task = Tagging.build(settings, checkpoint.load(settings.model), read_splits(settings))
    model = checkpoint.load(result.model_directory).model
    scores = compute_outputs(model, task.data["test"], task.scoring.forward)
    predicted = list(task.scoring.decode("test", scores))
    gold = [labels for _, labels in sentences(2, 41)]
    assert [len(one) for one in predicted] == [len(one) for one in gold]
    assert entity_scores(gold, predicted, "iob2")["f1"] == pytest.approx(result.scores[0])


def test_the_table_of_predictions_has_the_tags_of_each_sentence(run):
    rows, columns = run.predictions, ("file", "row", "line", "text", "gold", "predicted")
    assert len(rows) == 41 and all(tuple(row) == columns for row in rows)
    gold, predicted = ([row[name].split() for row in rows] for name in ("gold", "predicted"))
    assert [row["text"].split() for row in rows] == [words for words, _ in sentences(2, 41)]
    assert gold == [labels for _, labels in sentences(2, 41)]
    assert entity_scores(gold, predicted, "iob2")["f1"] == pytest.approx(run.result.scores[0])


def test_evaluate_reads_the_sentences_as_the_run_did(result, settings, monkeypatch):
    task = Tagging.build(settings, checkpoint.load(settings.model), read_splits(settings))
    read, tag_words = [], Predictor.tag_words
    monkeypatch.setattr(Predictor, "tag_words", lambda self, words, *rest: tag_words(self, read.append(words) or words))
    scores = evaluate.run(Evaluate(model=result.model_directory, file=(settings.test,), dtype="float32"))
    assert read == [[all_words(text) for text in task.texts["test"].texts]]
    assert scores["f1"] == pytest.approx(result.scores[0]) and scores["sentences"] == 41


def test_sentences_of_two_files_are_not_read_together(result, tmp_path, monkeypatch):
    for name, seed in (("a", 5), ("b", 6)):
        write(tmp_path / f"{name}.txt", sentences(seed, 3), every=99)
    read, tag_words = [], Predictor.tag_words
    monkeypatch.setattr(Predictor, "tag_words", lambda self, words, *rest: tag_words(self, read.extend(words) or words))
    evaluate.run(Evaluate(model=result.model_directory, file=(tmp_path / "a.txt", tmp_path / "b.txt"), dtype="float32"))
    ends = [[word for words, _ in sentences(seed, 3) for word in words] for seed in (5, 6)]
    assert [word for words in read for word in words] == [*ends[0], *ends[1]]
    assert len(ends[0]) in np.cumsum([*map(len, read)])


@pytest.mark.slow
def test_evaluate_takes_the_columns_the_model_was_fine_tuned_with(settings, tmp_path):
    """Parts of speech behind, entities in the second of three columns."""
    files = {}
    for split in ("train", "dev", "test"):
        lines = getattr(settings, split).read_text(encoding="utf-8").split("\n")
        files[split] = tmp_path / f"{split}.txt"
        files[split].write_text("\n".join(line and f"{line} B-NN" for line in lines), encoding="utf-8")
    result = run_task(replace(settings, **files, tags_column="1", epochs=8.0, out=tmp_path / "run"))
    scores = evaluate.run(Evaluate(model=result.model_directory, file=(files["test"],), dtype="float32"))
    assert 0.1 < result.scores[0] == pytest.approx(scores["f1"])
    options = SimpleNamespace(words_column=None, tags_column="-1")
    learned = {"words_column": "tokens", "tags_column": "1"}
    words = tag_columns(files["test"], options, learned)
    assert words == {"words": None, "tags": "-1"}  # options win, and a file without names has no such column


def test_sentences_shared_by_splits_are_reported(settings):
    changed = replace(settings, dev=settings.train)
    task = Tagging.build(changed, checkpoint.load(settings.model), read_splits(changed))
    assert "200 of 200 examples of dev are also in train" in task.report.describe()
    assert task.report.warnings[0].startswith("200 of 200 examples of dev are also in train")


def test_a_text_is_a_run_of_sentences_of_one_document_within_a_window(settings):
    start = checkpoint.load(settings.model)
    task = Tagging.build(settings, start, read_splits(settings))
    texts = task.texts["train"].texts
    assert sum(map(len, texts)) == 200 and max(map(len, texts)) > 2
    assert all(len({one.document for one in text}) == 1 for text in texts)
    assert max(task.data["train"].sizes) <= 48
    alone = Tagging.build(replace(settings, context=False), start, read_splits(settings))
    assert len(alone.texts["train"].texts) == 200
    labels = [sum(len(one.labels) for one in tagging.data["train"].windows) for tagging in (task, alone)]
    assert labels[0] == labels[1]  # every label counts once


def test_schemes_are_detected_and_give_the_same_labels(settings, tmp_path):
    from bothways.text.data.tags import spans_to_tags, tags_to_spans

    rows = sentences(0, 40)
    labels = {}
    for scheme in ("iob1", "iob2", "bioes"):
        converted = [(words, spans_to_tags(tags_to_spans(tags, "iob2"), len(words), scheme)) for words, tags in rows]
        changed = replace(settings, train=write(tmp_path / f"{scheme}.txt", converted, every=1), dev=None, test=None)
        splits = read_splits(changed)
        assert detect_or_check_scheme(splits["train"], changed.scheme) == scheme
        task = Tagging.build(changed, checkpoint.load(changed.model), splits)
        labels[scheme] = [one.labels.tolist() for one in task.data["train"].windows]
    assert labels["iob1"] == labels["iob2"] == labels["bioes"]


def test_a_tag_that_its_scheme_does_not_allow_is_named(settings, tmp_path):
    file = tmp_path / "bad.txt"
    file.write_text("the O\ncat B-X\n\na O\ndog I-X\nran O\n", encoding="utf-8")
    changed = replace(settings, train=file, scheme="iob2", dev=settings.dev, out=tmp_path / "run")
    with pytest.raises(InputError, match=r"bad\.txt: row \d+ \(line 4\): word 2 .*'dog': I-X between O and O .*IOB2"):
        run_task(changed)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_tag_that_only_dev_has_is_named_in_a_message_and_counts_as_missed(settings, tmp_path):
    dev = tmp_path / "dev.txt"
    dev.write_text("the O\nmat B-THING\ncat B-FELINE\n", encoding="utf-8")
    messages = []
    with messages_to(messages.append):
        result = run_task(replace(settings, dev=dev, test=None, out=tmp_path / "run"))
    assert re.search(r"\b1 words .* train \(B-THING\)", messages[0])
    assert result.mean == pytest.approx(2 / 3)  # one of two is found, and nothing else
    assert evaluate.run(Evaluate(model=result.model_directory, file=(dev,), dtype="float32"))["f1"] == pytest.approx(
        result.mean
    )


def test_illegal_tags_of_dev_are_counted_and_reported(settings, result, tmp_path):
    """They are read as conlleval reads them, in training and by `evaluate`."""
    dev = tmp_path / "dev.txt"
    dev.write_text("the O\ncat B-FELINE\n\nthe O\ncat I-FELINE\n\nthe O\ncat I-FELINE\n", encoding="utf-8")
    changed = replace(settings, dev=dev, test=None, scheme="iob2")
    task = Tagging.build(changed, checkpoint.load(settings.model), read_splits(changed))
    (line,) = [line for line in task.report.warnings if line.startswith("dev:")]
    assert "2 of 3 sentences" in line and "(line 4)" in line
    scores = evaluate.run(Evaluate(model=result.model_directory, file=(dev,), scheme="iob2", dtype="float32"))
    assert scores["illegal_gold"] == 2 and scores["sentences"] == 3


def test_sentences_tags_and_lengths_are_logged_before_training(run):
    assert run.messages[0].startswith("train: 200 sentences of ") and "CANINE" in run.messages[0]
    pattern = r"read as \d+ texts, tokens: median \d+, 90 % up to \d+, longest \d+; 0 read in windows\n"
    assert re.search(pattern, run.messages[0])


def test_one_text_is_too_few_to_learn_from(settings, tmp_path):
    """Sentences that are read together are one example."""
    file = tmp_path / "few.txt"
    file.write_text("the O\ncat B-FELINE\n\na O\ndog B-CANINE\n", encoding="utf-8")
    changed = replace(settings, train=file, out=tmp_path / "run")
    with pytest.raises(InputError, match=r"few\.txt: .*\(--no-context\)"):
        run_task(changed)


@pytest.mark.slow
def test_the_page_shows_which_words_are_taken_for_which(settings, result, tmp_path):
    """Entities by type with the sentences that went wrong; plain tags as a confusion."""
    task = Tagging.build(settings, checkpoint.load(settings.model), read_splits(settings))
    model = bothways.load(result.model_directory, dtype="float32")
    outputs = task.scoring.outputs(model.module, "test")
    labels, mistakes = task.report.sections(task.scoring.predictions("test", outputs))
    scores = evaluate.run(Evaluate(model=result.model_directory, file=(settings.test,), dtype="float32"))
    assert {one.label: one.f1 for one in labels.scores} == pytest.approx(
        {label: one["f1"] for label, one in scores["by_type"].items()}
    )
    sentences = task.texts["test"].sentences
    wrong = sum(
        tags != list(one.tags)
        for one, tags in zip(sentences, model.tag_words([one.words for one in sentences]), strict=True)
    )
    assert mistakes.num_examined == 41 and abs(len(mistakes.cases) - wrong) <= 3  # read with neighbours, and alone
    plain = replace(settings, scheme="plain", epochs=1.0, out=tmp_path / "run")
    plain_result = run_task(plain)
    task = Tagging.build(plain, checkpoint.load(settings.model), read_splits(plain))
    outputs = task.scoring.outputs(bothways.load(plain_result.model_directory, dtype="float32").module, "test")
    confusion, labels = task.report.sections(task.scoring.predictions("test", outputs))
    gold = [tag for one in sentences for tag in one.tags]
    right = sum(confusion.counts[place, place] for place in range(len(confusion.labels)))
    assert right / len(gold) == pytest.approx(plain_result.mean)
    assert {one.label: one.support for one in labels.scores} == {label: gold.count(label) for label in confusion.labels}


def test_tags_without_entities_are_an_error(settings, tmp_path):
    for text, message in (("the O\nmat THING\n", "mat"), ("the O\nmat Q-THING\n", r"bad\.txt: row \d+ \(line 10\): ")):
        (tmp_path / "bad.txt").write_text("the O\ncat B-FELINE\n\n" * 3 + text, encoding="utf-8")
        with pytest.raises(InputError, match=message):
            run_task(replace(settings, train=tmp_path / "bad.txt", scheme="iob2", out=tmp_path / "run"))
    (tmp_path / "none.txt").write_text("the O\ncat O\n\n" * 9, encoding="utf-8")
    with pytest.raises(InputError, match=r"none\.txt: every tag is O"):
        run_task(replace(settings, train=tmp_path / "none.txt", scheme="iob2", out=tmp_path / "run"))


def test_an_entity_model_is_not_measured_on_labels_of_words(result, tmp_path):
    (tmp_path / "pos.txt").write_text("the DET\ncat NOUN\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"pos\.txt: row 0 \(line 1\): tag 'DET' .*O, B-CANINE"):
        evaluate.run(Evaluate(model=result.model_directory, file=(tmp_path / "pos.txt",)))


@pytest.mark.slow
def test_plain_labels_are_one_a_word_and_never_merged(settings, tmp_path):
    kinds = {"cat": "NOUN", "dog": "NOUN", "mat": "NOUN", "ran": "VERB"}
    rows = [(words, [kinds.get(word, "OTHER") for word in words]) for words, _ in sentences(0, 150)]
    changed = replace(settings, train=write(tmp_path / "pos.txt", rows), dev=None, test=None, out=tmp_path / "run")
    result = run_task(changed)
    assert result.metric == "accuracy" and result.mean > 0.95
    metadata = json.loads((result.directory / "model" / "bothways.json").read_text())
    assert metadata["scheme"] == "plain"
    predictions = bothways.load(result.model_directory, dtype="float32").tag(["cat dog ran"])[0]
    assert [(one.label, one.text) for one in predictions] == [("NOUN", "cat"), ("NOUN", "dog"), ("VERB", "ran")]


def test_transformers_loads_the_tagger(result):
    transformers.logging.disable_progress_bar()
    peer, report = transformers.BertForTokenClassification.from_pretrained(
        result.model_directory, output_loading_info=True
    )
    assert not any(report.values())
    assert list(peer.config.id2label.values()) == ["O", "B-CANINE", "I-CANINE", "B-FELINE", "I-FELINE"]


def test_one_file_is_divided_by_documents(settings):
    splits = read_splits(replace(settings, dev=None, test=None))
    documents = {split: {one.document for one in rows} for split, rows in splits.items()}
    assert sum(map(len, splits.values())) == 200
    assert not documents["train"] & documents["dev"] and not documents["train"] & documents["test"]


@pytest.mark.parametrize("name", ["p.jsonl", "p.csv", "p.tsv", "p.parquet"])
def test_what_predict_writes_is_read_by_evaluate(name, result, tmp_path):
    gold, predicted = tmp_path / "gold.jsonl", tmp_path / name
    rows = [
        {"text": "the cat ran on a dog", "entities": [[4, 7, "FELINE"], [15, 20, "CANINE"]]},
        {"text": "a dog, and b", "ents": [{"start": 0, "end": 5, "label": "CANINE"}]},
    ]
    gold.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    model = result.model_directory
    predict(Predict(model=model, file=str(gold), out=predicted, keep_columns="text", dtype="float32"))
    assert evaluate.run(Evaluate(model=gold, predictions=predicted))["f1"] == 1
    assert evaluate.run(Evaluate(model=model, file=(predicted,), dtype="float32"))["f1"] == 1


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.conll", "the o\ncat b-FELINE\n\na o\ndog o\n"),
        ("t.conll", "the *\ncat (FELINE)\n\na *\ndog *\n"),
        ("t.csv", "Sentence #,Word,Tag\n1,the,O\n,cat,B-FELINE\n2,a,O\n,dog,O\n"),
        ("t.jsonl", '["the cat", {"entities": [[4, 7, "FELINE"]]}]\n["a dog", {"entities": []}]\n'),
    ],
)
def test_evaluate_reads_every_spelling_and_table(name, content, result, tmp_path):
    (tmp_path / name).write_text(content, encoding="utf-8")
    scores = evaluate.run(Evaluate(model=result.model_directory, file=(tmp_path / name,), dtype="float32"))
    assert scores["by_type"]["FELINE"]["f1"] == 1 and scores["by_type"]["CANINE"]["support"] == 0
    other = tmp_path / f"other{(tmp_path / name).suffix}"
    other.write_text(content, encoding="utf-8")
    assert evaluate.run(Evaluate(model=tmp_path / name, predictions=other))["f1"] == 1


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        (["O", "FELINE"], "'FELINE' is not an entity tag.*write it with B- and I-"),
        (["0", "3"], "'0' is not an entity tag.*numbers without names"),
        (["DET", "NOUN"], "'DET' is not an entity tag.*write it with B- and I-"),
    ],
)
def test_tags_without_a_scheme_are_no_accuracy_of_an_entity_model(tags, message, result, tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps({"words": ["the", "cat"], "tags": tags}), encoding="utf-8")
    with pytest.raises(InputError, match=message):
        evaluate.run(Evaluate(model=result.model_directory, file=(path,), dtype="float32"))


def test_a_line_names_what_training_takes_tags_for(settings, tmp_path):
    rows = [(words, ["9" if tag == "O" else tag[2:3] for tag in tags]) for words, tags in sentences(0, 40)]
    spelled = [(words, [tag.replace("-", "_") for tag in tags]) for words, tags in sentences(0, 40)]
    for scheme, written, message in (
        ("auto", rows, "no tag has a prefix"),
        ("plain", rows, None),
        ("auto", spelled, "tags are read as B-CANINE ('B_CANINE')"),
        ("plain", spelled, None),
        ("auto", sentences(0, 40), None),
    ):
        train = write(tmp_path / "t.conll", written)
        changed = replace(settings, train=train, dev=train, test=None, scheme=scheme)
        task = TAG.train(changed, checkpoint.load(changed.model), None)
        lines = [line for line in task.report.warnings if "tag" in line.partition(";")[0]]
        assert [line.startswith(message or "") for line in lines] == [True] * (message is not None)
