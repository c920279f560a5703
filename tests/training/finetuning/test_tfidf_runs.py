"""`--model tf-idf`: runs whose model is TF-IDF, scored, saved and used like any other."""

import json
from dataclasses import replace

import numpy as np
import pytest

import bothways
from bothways.base.errors import InputError
from bothways.cli import main
from bothways.model.checkpoint.directory import Directory
from bothways.model.checkpoint.formats.tfidf import read_tfidf
from bothways.model.linear.tfidf import TfidfModel
from bothways.settings import Answer, Classify, Regress, Rerank, Tag, TrainEmbed
from bothways.training.finetuning.plan import make_plan
from tests.training.finetuning.gallery import class_rows, finish, number_rows

pytestmark = pytest.mark.slow

LOGISTIC = "TF-IDF + logistic regression"
FROZEN = "frozen vectors + logistic regression"
MANY = 480  # rows of three classes: enough for test rows


def noisy(rows):
    """A label in seven is another one, so that no model is perfect."""
    return [{**row, "label": "feline" if index % 7 == 0 else row["label"]} for index, row in enumerate(rows)]


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """A finished run on 45 rows."""
    out = tmp_path_factory.mktemp("few") / "run"
    return finish(Classify(model="tf-idf", train=noisy(class_rows(0, 45)), out=out))


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """A finished run with test rows of its own table."""
    out = tmp_path_factory.mktemp("many") / "run"
    return finish(Classify(model="tf-idf", train=noisy(class_rows(0, MANY)), out=out))


def saved_model(run):
    model, described = read_tfidf(Directory(run.result.model_directory))
    assert isinstance(model, TfidfModel)
    return model, described


# --- the score --------------------------------------------------------------------------------------------------------


def test_few_rows_are_scored_out_of_fold(few):
    result = few.result
    lines = (result.directory / "out-of-fold.jsonl").read_text(encoding="utf-8").splitlines()
    predicted = [json.loads(line) for line in lines]
    assert sorted(row["row"] for row in predicted) == [*range(45)]
    assert result.mean == np.mean([row["gold"] == row["predicted"] for row in predicted])
    assert result.measured == "out-of-fold, 45 rows, 15 folds, TF-IDF" and result.rows == 45
    low, high = result.interval
    assert low < result.mean < high
    assert {*result.baselines} == {"most frequent answer", FROZEN}


def test_enough_rows_are_scored_on_test(many):
    result = many.result
    assert (result.split, result.rows, result.measured) == ("test", MANY // 10, "")
    plan = make_plan(many.settings)
    table = plan.task.tables["test"]
    answers = [one.label for one in many.predictor.classify(table.texts)]
    assert np.mean([one == label for one, label in zip(answers, table.labels, strict=True)]) == result.mean
    assert [row["predicted"] for row in many.predictions] == answers
    assert {*result.baselines} == {"most frequent answer", FROZEN}


def test_a_test_file_is_scored_by_the_model_of_all_rows(tmp_path):
    rows = class_rows(1, 30)
    run = finish(Classify(model="tf-idf", train=noisy(class_rows(0, 45)), test=rows, out=tmp_path / "run"))
    assert run.result.split == "test" and run.result.rows == 30
    answers = run.predictor.classify([row["text"] for row in rows])
    assert np.mean([one.label == row["label"] for one, row in zip(answers, rows, strict=True)]) == run.result.mean


def test_folds_of_many_rows_have_a_model_each(tmp_path):
    run = finish(Classify(model="tf-idf", train=noisy(class_rows(0, MANY)), folds=3, out=tmp_path / "run"))
    assert run.result.split == "folds" and len(run.result.scores) == 3 and run.result.rows == MANY
    assert run.result.mean == pytest.approx(np.mean(run.result.scores))
    assert {*run.result.baselines} == {"most frequent answer", FROZEN}


def test_rows_too_few_for_folds_have_a_model_and_no_score(tmp_path):
    rows = [{"text": f"word{row % 5} is in text {row}", "label": f"label {row % 5}"} for row in range(9)]
    run = finish(Classify(model="tf-idf", train=rows, out=tmp_path / "run"))
    assert np.isnan(run.result.mean) and run.result.scores == [] and run.result.verdict.startswith("no score: 9 rows")
    answers = run.predictor.classify([row["text"] for row in rows])
    assert [one.label for one in answers] == [row["label"] for row in rows]


# --- the model --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", ["few", "many"])
def test_the_model_of_the_run_is_tfidf(size, request):
    run = request.getfixturevalue(size)
    model, described = saved_model(run)
    assert described.labels == ("canine", "feline", "none") and model.weight_CF.shape[0] == 3
    assert run.result.delivered == LOGISTIC and run.result.encoder == {}
    assert f"({LOGISTIC}) against" in run.result.verdict
    assert "only Bothways reads this model" in run.result.readers
    assert not (run.result.directory / "encoder").exists() and not (run.result.directory / "tfidf").exists()
    assert f"{LOGISTIC} fitted to" in run.report and "Token" not in run.report.split("<nav")[0]
    assert not run.metrics


def test_few_numbers_are_predicted_in_their_unit(tmp_path):
    run = finish(Regress(model="tf-idf", train=number_rows(0, 60), out=tmp_path / "run"))
    low, high = run.predictor.regress(["dog dog dog the on a", "cat cat cat the on a"])
    assert run.result.mean > 0.9 and 6500 < low < 7500 < 8000 < high < 9000
    assert run.result.delivered == "TF-IDF + ridge regression"


def test_many_numbers_are_predicted_in_their_unit(tmp_path):
    run = finish(Regress(model="tf-idf", train=number_rows(0, 520), out=tmp_path / "run"))
    low, high = run.predictor.regress(["dog dog dog the on a", "cat cat cat the on a"])
    assert run.result.split == "test" and run.result.measured == ""
    assert run.result.mean > 0.9 and 6500 < low < 7500 < 8000 < high < 9000


def test_several_labels_are_learned(tmp_path):
    rows = [{**row, "label": [row["label"], "all"]} for row in class_rows(0, 60)]
    run = finish(Classify(model="tf-idf", train=rows, multi_label=True, out=tmp_path / "run"))
    assert saved_model(run)[1].multi_label
    assert {*run.predictor.classify("the dog ran on").labels} == {"all", "canine"}


def test_pairs_are_learned(tmp_path):
    rows = class_rows(0, 60)
    pairs = [{**row, "pair": other["text"]} for row, other in zip(rows, class_rows(1, 60), strict=True)]
    run = finish(Classify(model="tf-idf", train=pairs, text_column="text", pair_column="pair", out=tmp_path / "run"))
    assert run.predictor.classify(["the dog ran"], ["a mat"])[0].label == "canine"
    assert run.metadata["settings"]["model"] == "tf-idf"


# --- the verbs --------------------------------------------------------------------------------------------------------


def test_all_verbs_take_the_run(table, tmp_path, capsys):
    train = table(noisy(class_rows(0, 45)), "train.csv")
    run = tmp_path / "run"
    arguments = ["finetune", "classify", "--model", "tf-idf", "--train", str(train), "-o", str(run)]
    main.main([*arguments, "--json"])
    first = json.loads(capsys.readouterr().out)
    assert first["delivered"] == LOGISTIC and first["model"] == str(run / "model")

    main.main([*arguments, "--json", "--resume"])
    assert json.loads(capsys.readouterr().out) == first

    main.main(["info", str(run), "--json"])
    assert "TF-IDF" in json.loads(capsys.readouterr().out)["model"]
    main.main(["evaluate", str(run), str(train), "--json"])
    assert json.loads(capsys.readouterr().out)["metrics"]["accuracy"] > 0.8
    main.main(["predict", str(run), str(train)])
    assert len(capsys.readouterr().out.splitlines()) == 45


def test_an_unfinished_run_is_repeated(few, tmp_path):
    settings = replace(few.settings, out=tmp_path / "run")
    bothways.train(settings)
    file = tmp_path / "run" / "bothways.json"
    metadata = json.loads(file.read_text(encoding="utf-8"))
    result = metadata.pop("result")
    file.write_text(json.dumps({**metadata, "status": "interrupted"}), encoding="utf-8")
    assert bothways.train(replace(settings, resume=True)).mean == result["mean"] == few.result.mean


# --- what it cannot do ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings_class", "task"),
    [(Tag, "tag"), (Answer, "answer"), (TrainEmbed, "embed"), (Rerank, "rerank")],
)
def test_other_tasks_name_an_encoder(settings_class, task, tmp_path):
    settings = settings_class(model="tf-idf", train=tmp_path / "rows", out=tmp_path / "run")
    with pytest.raises(InputError, match=f"classifies and regresses whole texts, but the task is {task}.*bothways-en"):
        make_plan(settings)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("adapter", "lora"),
        ("quantize", "int8"),
        ("keep_layers", (0,)),
        ("pooling", "mean"),
        ("teacher", "bothways-en"),
        ("epochs", 3.0),
        ("learning_rate", 0.0),
        ("linear_start", False),
        ("batch_size", 8),
        ("window", 64),
        ("long", "truncate"),
        ("seeds", 2),
    ],
)
def test_options_without_a_meaning_are_refused(name, value, tmp_path):
    settings = Classify(model="tf-idf", train=class_rows(0, 45), out=tmp_path / "run")
    with pytest.raises(InputError, match=rf"^{name} .* has no meaning with .*leave the option out") as caught:
        make_plan(replace(settings, **{name: value}))
    assert str(caught.value).count("\n") == 0
