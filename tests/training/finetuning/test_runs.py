"""A run as an object: its tables have the rows and columns of the user's table, and runs are compared row by row."""

import json
import shutil
from dataclasses import replace

import pandas
import pytest

import bothways
from bothways.base.errors import InputError, MissingFile
from bothways.cli.main import main
from bothways.settings import Classify, Regress, Tag
from bothways.tasks.classify.report import ClassReport
from bothways.training.pretraining.result import PretrainingResult

pytestmark = pytest.mark.slow
WORDS = ["the", "sat", "on", "mat", "and", "ran"]
WRONG = 33


def rows_of(start, stop, label="kind"):
    return [
        {
            "customer": f"{row:04}",
            "message": f"{WORDS[row % 6]} {('dog', 'cat')[row % 2]} {'on ' * (row // 12)}{row}",
            label: ("d", "c")[(row + (row == WRONG)) % 2],
        }
        for row in range(start, stop)
    ]


@pytest.fixture(scope="module")
def start(checkpoint_of):
    return checkpoint_of()


@pytest.fixture(scope="module")
def columns():
    return {"text_column": "message", "label_column": "kind", "baselines": True}


@pytest.fixture(scope="module")
def run(finetuned, start, columns):
    frame = pandas.DataFrame(rows_of(0, 120))
    # Columns with types that a CSV file does not have, and with names of ours.
    frame["when"] = pandas.date_range("2026-01-01", periods=len(frame), freq="h")
    frame["is_vip"] = frame.index % 3 == 0
    frame["row"] = 1000 + frame.index
    frame["gold"] = "a medal"
    frame["label"] = "of a bottle"
    return finetuned(Classify, model=start, train=frame, epochs=3.0, linear_start=True, **columns)


def test_predictions_have_the_rows_and_columns_of_the_table(run):
    table, rows = run.result.predictions, rows_of(0, 120)
    assert len(table) == run.result.rows
    for row, text, gold, customer in zip(table.row, table.text, table.gold, table.customer, strict=True):
        assert (text, gold, customer) == (rows[row]["message"], rows[row]["kind"], rows[row]["customer"])
    assert (table.probability_c + table.probability_d).to_numpy() == pytest.approx(1.0)


def test_label_errors_cover_rows_that_the_model_was_trained_on(run):
    errors = run.result.label_errors
    assert errors.row[0] == WRONG and errors.suggested[0] == "c" and errors.label[0] == "d"
    assert errors.customer[0] == f"{WRONG:04}" and bool(errors.is_likely[0])
    assert errors.label_probability.is_monotonic_increasing
    assert (errors.label_probability < errors.suggested_probability).all()
    assert "of 120 rows may be labelled wrongly" in run.report and "label_errors.csv" in run.report


def test_columns_of_the_user_keep_types_and_get_free_names(run):
    errors, predictions = run.result.label_errors, run.result.predictions
    assert errors.is_likely.dtype == bool and errors.is_vip.dtype == bool
    assert [*errors.is_vip] == [row % 3 == 0 for row in errors.row]
    for table in (errors, predictions):
        assert [*table.when] == [pandas.Timestamp("2026-01-01") + pandas.Timedelta(hours=row) for row in table.row]
        assert [*table.input_row] == [1000 + row for row in table.row]
        assert "kind" not in table.columns and "message" not in table.columns
    assert {*errors.gold} == {"a medal"} == {*predictions.input_gold}
    assert {*errors.input_label} == {"of a bottle"} == {*predictions.label}


def test_a_run_without_suspects_has_the_columns_of_one_with_some(finetuned, start, columns, run, monkeypatch):
    monkeypatch.setattr(ClassReport, "label_issues", lambda *_: [])
    frame = pandas.DataFrame(rows_of(0, 40))
    clean = finetuned(Classify, model=start, train=frame, epochs=0.1, **columns | {"baselines": False})
    errors = clean.result.label_errors
    assert not len(errors) and len(frame.iloc[errors.row]) == 0 and len(frame[frame.index.isin(errors.row)]) == 0
    ours = [
        "file",
        "row",
        "text",
        "label",
        "suggested",
        "label_probability",
        "suggested_probability",
        "is_likely",
        "why",
    ]
    assert [*errors.columns] == [*ours, "customer"]


def test_metrics_begin_with_the_score_of_the_run_and_its_baselines(run):
    table = run.result.metrics
    assert [*table.columns] == ["model", "split", "metric", "value", "low", "high"]
    first = table.iloc[0]
    assert (first.model, first.split, first.metric, first.value) == ("this model", "test", "accuracy", run.result.mean)
    assert (first.low, first.high) == run.result.interval
    assert [*table.model[1 : 1 + len(run.result.baselines)]] == [*run.result.baselines]


def test_a_run_is_opened_by_its_directory(run, start, tmp_path):
    opened = bothways.open_run(run.result.directory)
    assert opened == run.result
    text = "the cat"
    assert opened.model.classify(text) == bothways.load(run.result.model_directory).classify(text)
    assert opened.report(open_page=False) == run.result.directory / "report.html"
    for path in (tmp_path / "none", start):
        with pytest.raises(MissingFile):
            bothways.open_run(path)


def test_a_message_names_the_run_of_a_model_that_is_opened(run, tmp_path):
    model = run.result.model_directory
    with pytest.raises(InputError, match=rf"model: a model, not a run; open the run, {run.result.directory}, or load"):
        bothways.open_run(model)
    with pytest.raises(InputError, match=r"model: a model, not a run; open the run, .*, or load the model"):
        run.result.compare(str(model))
    shutil.copytree(model, tmp_path / "alone")
    with pytest.raises(InputError, match=r"alone: a model, not a run; open its run, or load .* bothways\.load"):
        bothways.open_run(tmp_path / "alone")


def test_a_result_prints_as_a_line(run):
    line, result = repr(run.result), run.result
    low, high = result.interval
    score = f"test accuracy {low:.4f} to {high:.4f} (95 % interval, {result.rows} rows), measured {result.mean:.4f}"
    verdict = (result.not_delivered or result.verdict).partition(";")[0]
    assert line == f"FineTuneResult(classify: {score}; {verdict}; {result.directory})" and "\n" not in line
    narrow = replace(result, mean=0.9, interval=(0.89, 0.91))
    assert "test accuracy 0.9000 (95 % interval 0.8900 to 0.9100); " in repr(narrow)
    unscored = replace(
        result, scores=[], interval=None, not_delivered="", verdict="no score: 6 rows are too few; give more"
    )
    assert repr(unscored) == f"FineTuneResult(classify: no score; no score: 6 rows are too few; {result.directory})"
    trained = PretrainingResult(result.directory, result.directory, {"perplexity": 9.87654, "dtype": "float32"}, {})
    assert repr(trained) == f"PretrainingResult(perplexity 9.877; {result.directory})"


def test_a_run_is_compared_with_the_run_in_a_directory(run):
    same = run.result.compare(run.result).to_json()
    assert run.result.compare(run.result.directory).to_json() == same
    assert run.result.compare(str(run.result.directory)).to_json() == same
    with pytest.raises(MissingFile, match="nowhere: not a run"):
        run.result.compare("nowhere")
    for other in (None, 5, {"run": 1}, ""):
        with pytest.raises(InputError, match=r"^other \(.*\) must be a run, such as bothways\.open_run\(DIRECTORY\)"):
            run.result.compare(other)


def test_equal_runs_do_not_differ(run):
    comparison = run.result.compare(bothways.open_run(run.result.directory))
    assert "same 12 rows" in comparison.note
    assert {score["difference"] for score in comparison.scores} == {0.0}
    accuracy = comparison.scores[0]
    assert accuracy["first"] == pytest.approx(run.result.mean) and accuracy["low"] < 0 < accuracy["high"]


def test_runs_are_compared_on_the_rows_that_both_predict(run, finetuned, start, columns, table, capsys):
    predicted = run.result.predictions
    rows = [row for row in rows_of(0, 120) if row["message"] in {*predicted.text[:7]}]
    test = table([*rows, *rows_of(200, 203)])
    other = finetuned(Classify, model=start, train=table(rows_of(0, 60)), test=test, **columns).result
    comparison = run.result.compare(other)
    assert comparison.note.startswith("on the same 7 rows; left out: 5 of") and "3 of" in comparison.note
    shared = predicted[predicted.text.isin([row["message"] for row in rows])]
    assert comparison.scores[0]["first"] == pytest.approx((shared.gold == shared.predicted).mean())
    main(["info", str(run.result.directory), str(other.directory), "--json"])
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(comparison.to_json()))
    assert [*comparison.table.metric] == [score["metric"] for score in comparison.scores]


def test_a_difference_lies_within_its_interval(run, tmp_path):
    shutil.copytree(run.result.directory, tmp_path / "wrong")
    table = run.result.predictions
    table.predicted = ["d" if label == "c" else "c" for label in table.gold]
    table.to_csv(tmp_path / "wrong" / "predictions.csv", index=False)
    accuracy = run.result.compare(bothways.open_run(tmp_path / "wrong")).scores[0]
    assert accuracy["second"] == 0 and accuracy["difference"] == -accuracy["first"]
    assert accuracy["low"] <= accuracy["difference"] <= accuracy["high"] < 0


def test_other_rows_and_other_tasks_have_no_differences(run, finetuned, start, columns, table):
    numbers = [{"text": row["message"], "label": len(row["message"])} for row in rows_of(0, 60)]
    regress = finetuned(Regress, model=start, train=table(numbers)).result
    other = finetuned(Classify, model=start, train=table(rows_of(0, 60)), test=table(rows_of(300, 320)), **columns)
    for theirs in (regress, other.result):
        comparison = run.result.compare(theirs)
        assert "no differences" in comparison.note
        assert not any("difference" in score for score in comparison.scores)
    assert regress.predictions.gold.dtype == float and regress.compare(regress).scores[0]["difference"] == 0


def test_label_errors_of_words_have_their_characters(finetuned, start, tmp_path):
    sentences = "".join(f"{WORDS[row % 6]} O\n{row} O\nmat B-X\n\n" for row in range(60))
    (tmp_path / "train.conll").write_text(sentences, encoding="utf-8")
    result = finetuned(Tag, model=start, train=tmp_path / "train.conll", epochs=0.5).result
    with pytest.raises(InputError, match="no such table"):
        _ = replace(result, directory=tmp_path).predictions
    errors = result.label_errors
    assert {"row", "label", "suggested", "start", "end"} <= {*errors.columns}


def test_of_two_numbers_one_too_far_off_is_a_label_error(finetuned, start, table):
    numbers = [{"text": f"{'cat ' * (row % 7)}dog {row}", "label": float(row % 7)} for row in range(90)]
    numbers[11]["label"] = 400.0
    run = finetuned(Regress, model=start, train=table(numbers), baselines=True, linear_start=True)
    errors = run.result.label_errors
    assert errors.row[0] == 11 and errors.label[0] == 400 and errors.suggested[0] < 50
