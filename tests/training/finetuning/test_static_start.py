"""Fine-tuning of static vectors: a model like any other; what needs layers is refused."""

import json

import numpy as np
import pytest

import bothways
from bothways.base.errors import InputError
from bothways.cli.main import main
from bothways.model.checkpoint import checkpoint
from bothways.model.linear.static_vectors import StaticVectors, VectorTable, write_static
from bothways.settings import Classify, Evaluate, Regress, Tag, TrainEmbed
from tests.training.finetuning.gallery import class_rows, number_rows, pair_rows

DEFAULTS = {"epochs": None, "learning_rate": None, "linear_start": True, "baselines": True}
TRAINED = {"epochs": 12.0, "learning_rate": 3e-2, "linear_start": True}


@pytest.fixture(scope="module")
def vectors(tokenizer):
    rows_VH = np.random.default_rng(3).normal(size=(len(tokenizer), 16)).astype(np.float32)
    return lambda normalize: StaticVectors(tokenizer, VectorTable(rows_VH), unknown=[1], normalize=normalize)


@pytest.fixture(scope="module", params=[True, False])
def start(request, vectors, tmp_path_factory):
    """A directory of static vectors, of length 1 or not."""
    directory = tmp_path_factory.mktemp("static") / "vectors"
    write_static(vectors(request.param), directory)
    return directory


@pytest.fixture(scope="module")
def classifier(start, finetuned):
    return finetuned(Classify, model=start, train=class_rows(0, 120), test=class_rows(1, 60), **TRAINED)


def test_a_classifier_is_saved_and_loaded(classifier, tmp_path):
    model = bothways.load(classifier.settings.out / "model", dtype="float32")
    rows = class_rows(2, 60)
    predictions = model.classify([row["text"] for row in rows])
    correct = [prediction.label == row["label"] for prediction, row in zip(predictions, rows, strict=True)]
    assert np.mean(correct) > 0.8

    # A saved model is the same model.
    model.save(tmp_path / "again")
    again = bothways.load(tmp_path / "again", dtype="float32").classify([row["text"] for row in rows])
    assert [one.scores for one in again] == [one.scores for one in predictions]


def test_the_table_is_trained_too(start, finetuned):
    run = finetuned(Classify, model=start, train=class_rows(0, 60), test=class_rows(1, 20), epochs=2.0)
    before, after = (
        checkpoint.load(path, static=True).model.encoder.state_dict() for path in (start, run.settings.out / "model")
    )
    assert before.keys() == after.keys()
    assert before["embeddings.counts_V"].equal(after["embeddings.counts_V"])
    assert not before["embeddings.words.weight"].equal(after["embeddings.words.weight"])


def test_others_are_told_that_only_bothways_reads_it(classifier):
    config = json.loads((classifier.settings.out / "model" / "config.json").read_text("utf-8"))
    assert (config["model_type"], config["bothways_format"]) == ("static", "bothways-static")
    assert not (classifier.settings.out / "model" / "modules.json").exists()
    loaded = checkpoint.load(classifier.settings.out / "model", static=True)
    assert checkpoint.unread_warning(loaded) == "only Bothways reads this model (bothways-static)"


def test_a_classifier_predicts_and_is_scored(classifier, tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(map(json.dumps, class_rows(3, 40))), encoding="utf-8")
    model = classifier.settings.out / "model"
    scores = bothways.evaluate(Evaluate(model=model, file=file, dtype="float32"))
    assert scores["accuracy"] > 0.8
    main(["predict", str(model), str(file), "-o", str(tmp_path / "out.jsonl")])
    assert len((tmp_path / "out.jsonl").read_text("utf-8").splitlines()) == 40


def test_a_classifier_is_trained_further(classifier, finetuned):
    model = classifier.settings.out / "model"
    again = finetuned(Classify, model=model, train=class_rows(4, 90), test=class_rows(5, 30), **TRAINED)
    first, second = (
        checkpoint.load(run / "model", static=True) for run in (classifier.settings.out, again.settings.out)
    )
    assert (first.pooling, first.normalized) == (second.pooling, second.normalized)


def test_numbers_are_predicted(start, finetuned):
    run = finetuned(
        Regress,
        model=start,
        train=number_rows(0, 120),
        test=number_rows(1, 40),
        label_column="score",
        **TRAINED,
    )
    rows = number_rows(2, 30)
    numbers = bothways.load(run.settings.out / "model", dtype="float32").regress([row["text"] for row in rows])
    assert np.corrcoef(numbers, [row["score"] for row in rows])[0, 1] > 0.9


def test_few_rows_are_read_by_linear_models(start, finetuned):
    run = finetuned(Classify, model=start, train=class_rows(0, 45), **DEFAULTS)
    assert any("linear models on the frozen encoder" in line for line in run.messages)
    model = bothways.load(run.settings.out / "model")
    rows = class_rows(1, 60)
    predictions = model.classify([row["text"] for row in rows])
    assert np.mean([one.label == row["label"] for one, row in zip(predictions, rows, strict=True)]) > 0.6


def test_texts_of_a_pair_are_read_apart(start, finetuned):
    rows = [{**row, "label": "same"} for row in pair_rows(0, 40)]
    rows += [{**row, "pair": "nothing at all", "label": "other"} for row in pair_rows(1, 40)]
    run = finetuned(Classify, model=start, train=rows, test=rows[::4], pair_column="pair", **TRAINED)
    assert checkpoint.load(run.settings.out / "model", static=True).model.config.pooler_act == "pair"


def test_long_texts_are_read_whole(classifier):
    model = bothways.load(classifier.settings.out / "model", dtype="float32")
    text = "the cat sat on the mat . " * 600
    short = "the cat sat on the mat . "
    whole, part = (next(iter(model.classify(one).scores.values())) for one in (text, short))
    assert whole == pytest.approx(part, abs=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {"adapter": "lora"},
        {"pooling": "cls"},
        {"keep_layers": [0]},
        {"quantize": "int8"},
    ],
)
def test_options_about_layers_are_refused(start, finetuned, options):
    with pytest.raises(InputError, match=r"static vectors, which have no .*leave the option out, or name an encoder"):
        finetuned(Classify, model=start, train=class_rows(0, 30), **options)


@pytest.mark.parametrize("settings", [Tag, TrainEmbed])
def test_other_tasks_are_refused(start, finetuned, settings):
    with pytest.raises(InputError, match=r"static vectors, which have no encoder"):
        finetuned(settings, model=start, train=class_rows(0, 30))
