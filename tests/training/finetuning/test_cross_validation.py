"""Cross-validation: every row is scored once, by a model that has not seen it; groups stay together; kills change
nothing; the report lists wrong labels."""

import json
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch

import bothways
from bothways.base.errors import InputError
from bothways.measure import metrics
from bothways.settings import Answer, Classify, Regress, Tag, TrainEmbed
from bothways.tasks.class_decoding import stored_calibration
from bothways.text.data.near_duplicates import text_key
from bothways.training.finetuning.finetune import run as run_task
from bothways.training.finetuning.model_scores import FOLDS, OUT_OF_FOLD
from bothways.training.signals import Stopped

pytestmark = pytest.mark.slow

WRONG = (5, 40, 77)  # rows whose label is not that of their animal


@pytest.fixture(scope="module")
def start(checkpoint_of):
    return checkpoint_of()


def sentences(number, seed=0):
    """Texts with a cat or a dog in them."""
    rng = np.random.default_rng(seed)
    for row in range(number):
        words = rng.choice("the and on a b mat ran".split(), int(rng.integers(3, 7))).tolist()
        words.insert(int(rng.integers(len(words) + 1)), ("cat", "dog")[row % 2])
        yield words


@pytest.fixture(scope="module")
def rows():
    names = ("feline", "canine")
    rows = [{"text": " ".join(words), "label": names[row % 2]} for row, words in enumerate(sentences(120))]
    rows += [{"text": row["text"].upper(), "label": row["label"]} for row in rows[:9]]  # known duplicates
    for row in WRONG:
        rows[row]["label"] = names[1 - row % 2]
    return rows


@pytest.fixture(scope="module")
def run(start, rows, table, finetuned):
    return finetuned(
        Classify,
        model=start,
        train=table(rows),
        folds=3,
        epochs=9.0,
        batch_tokens=512,
        checkpoint_every=3,
        patience=None,
    )


@pytest.fixture(scope="module")
def settings(run):
    return run.settings


@pytest.fixture(scope="module")
def result(run):
    return run.result


def out_of_fold(directory):
    return [json.loads(line) for line in (directory / OUT_OF_FOLD).read_text(encoding="utf-8").splitlines()]


def test_every_row_is_predicted_once_by_the_model_of_another_fold(settings, result):
    rows = out_of_fold(settings.out)
    assert sorted(row["row"] for row in rows) == [*range(129)] and all(row["line"] == row["row"] + 1 for row in rows)
    texts = [json.loads(line) for line in lines(settings.train)]
    assert all(texts[row["row"]]["label"] == row["gold"] for row in rows)
    fold_of = {}
    for row in rows:
        assert fold_of.setdefault(text_key(texts[row["row"]]["text"]), row["fold"]) == row["fold"]
    assert len(fold_of) < 129  # duplicates stand together


def lines(file):
    return file.read_text(encoding="utf-8").splitlines()


def test_the_score_is_the_mean_over_folds_and_its_interval_that_of_all_rows(settings, result):
    rows = out_of_fold(settings.out)
    by_fold = [[row["gold"] == row["predicted"] for row in rows if row["fold"] == fold] for fold in range(3)]
    assert result.split == FOLDS and result.scores == pytest.approx([*map(np.mean, by_fold)])
    assert (result.mean, result.std) == pytest.approx(metrics.mean_and_std(result.scores))
    right = sum(map(sum, by_fold))
    texts = [json.loads(line) for line in lines(settings.train)]
    units = [text_key(texts[row["row"]]["text"]) for row in rows]
    columns = [[row[name] for row in rows] for name in ("gold", "predicted")]
    bounds = metrics.classification_intervals(*columns, groups=units)
    assert result.interval == pytest.approx(bounds["accuracy"]) and bounds.num_units < 129 == result.rows
    metadata = json.loads((settings.out / "bothways.json").read_text(encoding="utf-8"))
    assert result.pooled == metadata["result"]["pooled"] == pytest.approx(right / 129) and metadata["result"]["n"] == 3
    assert not (settings.out / "seeds").exists()


def test_the_model_that_is_kept_has_learned_from_all_folds(run, result):
    assert {row.get("fold") for row in run.metrics} == {0, 1, 2, None}
    rows = run.metadata["rows"]
    assert rows["train"] + rows["dev"] == 129 and rows["dev"] < 15
    model = bothways.load(result.model_directory)
    assert [one.label for one in model.classify(["the cat ran", "a dog on the mat"])] == ["feline", "canine"]


def test_the_calibration_is_that_of_all_folds_and_a_line_says_what_it_guarantees(settings, result):
    calibration = stored_calibration(bothways.load(result.model_directory).description.metadata)
    assert calibration.is_cross and calibration.rows == 129
    assert "about 90%" in calibration.guarantee(0.9) and "80% are guaranteed" in calibration.guarantee(0.9)
    names, gold = ("canine", "feline"), []
    for row in out_of_fold(settings.out):
        scores = torch.tensor([row["details"][name] for name in names]).log() / calibration.temperature
        gold.append(float(scores.softmax(-1)[names.index(row["gold"])]))
    for coverage in (0.5, 0.9):
        in_sets = np.mean(np.array(gold) >= calibration.threshold(coverage) - 1e-6)
        assert coverage <= in_sets < coverage + 0.03


def test_wrong_labels_are_listed_with_their_lines_in_the_report(settings, run):
    (line,) = (line for line in run.messages if "labels may be wrong" in line)
    assert int(line.split()[0]) < 15
    page = (settings.out / "report.html").read_text(encoding="utf-8")
    section = page[page.index("Likely label errors</h2>") :].partition("</section>")[0]
    assert sum(f">train.jsonl: row {row} (line {row + 1})" in section for row in WRONG) >= 2


def test_a_run_that_is_stopped_within_a_fold_goes_on_to_the_same_predictions(settings, result, tmp_path, monkeypatch):
    own, record = replace(settings, out=tmp_path / "run"), bothways.training.run.Run.log_metrics
    rows = iter(range(10**6))

    def stop(run, **row):
        record(run, **row)
        if row.get("fold") == 1 and next(rows) == 7:
            raise Stopped("stopped")

    with monkeypatch.context() as patch:
        patch.setattr(bothways.training.run.Run, "log_metrics", stop)
        with pytest.raises(Stopped):
            run_task(own)
    resumed = []
    again = run_task(replace(own, resume=True), callbacks=[resumed.append])
    assert again.scores == result.scores and out_of_fold(own.out) == out_of_fold(settings.out)
    assert {row.get("fold") for row in resumed} == {1, 2, None}
    steps = [(row["fold"], row["step"]) for row in bothways.training.run.read_metrics(own.out) if "fold" in row]
    assert len(set(steps)) == len({*map(str, steps)})


@pytest.mark.parametrize("way", ["dev", "test", "seeds"])
def test_settings_that_contradict_folds_are_refused(settings, way):
    with pytest.raises(InputError, match=rf"folds \(3\).*{way}"):
        replace(settings, **{way: 2 if way == "seeds" else settings.train})


def rows_of_task(task):
    """(settings, file name, rows as lines) of a small table for a task."""
    texts = [*sentences(48, seed=1)]
    joined = [" ".join(words) for words in texts]
    if task == "regress":
        return (
            Regress,
            "t.jsonl",
            [{"text": text, "score": text.count(" ") + row / 9} for row, text in enumerate(joined)],
        )
    if task == "tag":
        lines = ["".join(f"{word} {'B-X' if word == 'cat' else 'O'}\n" for word in words) for words in texts]
        return Tag, "t.conll", lines
    if task == "embed":
        return TrainEmbed, "t.jsonl", [{"text": one, "pair": other} for one, other in pairwise(joined)]
    if task == "answer":
        answers = [{"text": [words[0]], "answer_start": [0]} for words in texts]
        rows = zip(joined, answers, strict=True)
        return (
            Answer,
            "t.jsonl",
            [
                {"id": str(row), "question": "who?", "context": text, "answers": answer}
                for row, (text, answer) in enumerate(rows)
            ],
        )
    several = [{"text": text, "label": [word for word in ("cat", "mat") if word in text]} for text in joined]
    return partial(Classify, multi_label=True), "t.jsonl", several


@pytest.mark.parametrize("task", ["regress", "tag", "embed", "answer", "several labels"])
def test_every_task_is_cross_validated(task, start, tmp_path):
    settings, name, rows = rows_of_task(task)
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    (tmp_path / name).write_text("\n".join(lines), encoding="utf-8")
    fast = {"model": start, "folds": 2, "epochs": 1.0, "dtype": "float32", "batch_tokens": 512}
    fast |= {"baselines": False, "linear_start": False}
    result = run_task(settings(train=tmp_path / name, out=tmp_path / "run", **fast))
    low, high = result.interval
    assert len(result.scores) == 2 and low <= result.pooled <= high
    assert len(out_of_fold(result.directory)) == result.rows >= 40
    assert (result.directory / "report.html").exists()


def test_the_table_of_predictions_has_every_row_by_the_model_of_the_other_folds(run):
    file = run.result.directory / "out-of-fold.jsonl"
    stored = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    rows = run.predictions
    assert len(rows) == run.result.rows == len(stored)
    for row, of_fold in zip(rows, stored, strict=True):
        assert [row[name] for name in ("file", "row", "line", "gold", "predicted")] == [
            str(of_fold[name]) for name in ("file", "row", "line", "gold", "predicted")
        ]
        assert float(row["probability_canine"]) == of_fold["details"]["canine"]


# --- tables that are too small for a test split ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(start, rows, table, finetuned):
    few = {"train": table(rows[:24]), "epochs": None, "learning_rate": None, "batch_tokens": 2048}
    return finetuned(Classify, model=start, **few, baselines=True, linear_start=True)


def test_a_small_table_is_scored_out_of_fold_by_frozen_vectors(small):
    result, predicted = small.result, out_of_fold(small.settings.out)
    assert result.measured == "out-of-fold, 24 rows, 12 folds, frozen vectors and TF-IDF" and result.frozen
    assert len({row["row"] for row in predicted}) == len(predicted) == result.rows == 24
    assert result.mean == np.mean([row["gold"] == row["predicted"] for row in predicted])
    assert result.scores == [result.mean] and small.metadata["result"]["measured"] == result.measured
    low, high = result.interval
    assert low < result.mean <= high and small.metadata["result"]["differences"].keys() == result.baselines.keys()
    assert sum(small.metadata["rows"].values()) == 24  # the head of the saved model is fitted to every row


def test_the_printed_score_of_a_small_table_has_its_measure(small):
    result = small.result
    low, high = result.interval
    score = f"out-of-fold accuracy {100 * low:.1f} to {high:.1%} (95 % interval, 24 rows); measured {result.mean:.2%}"
    assert f"{score} ({result.measured})" in "\n".join(result.lines())
    assert result.to_json()["measured"] == result.measured


def test_a_trained_encoder_of_few_rows_is_told_from_its_frozen_vectors(start, rows, table, finetuned):
    run = finetuned(Classify, model=start, train=table(rows[:24]), epochs=0.1)
    assert run.result.measured == "out-of-fold, 24 rows, 12 folds, linear models" and not run.result.frozen


@pytest.mark.parametrize("case", ["pairs", "sentences", "rows of few classes"])
def test_what_no_fold_can_score_gets_no_score_and_the_reason_is_printed(case, start, rows, table, finetuned, capsys):
    classes = [{"text": f"cat {'on ' * row}", "label": str(row % 6)} for row in range(11)]
    pairs = [{"text": f"the cat {row}", "pair": f"a dog {row}"} for row in range(12)]
    words = [{"words": ["the", "cat", str(row)], "tags": ["O", "B-PET", "O"]} for row in range(12)]
    cls, data, options = {
        "pairs": (TrainEmbed, pairs, {}),
        "sentences": (Tag, words, {"context": False}),
        "rows of few classes": (Classify, classes, {}),
    }[case]
    run = finetuned(cls, model=start, train=table(data), epochs=0.1, baselines=True, **options)
    result = run.result
    assert np.isnan(result.mean) and result.interval is None and result.scores == [] and result.baselines == {}
    assert result.verdict.startswith("no score: ") and result.verdict in run.log and result.verdict in run.report
    assert bothways.load(result.model_directory) is not None
    printed = "\n".join(result.lines())
    assert result.verdict in printed and "%" not in printed.replace(result.verdict, "")
    assert result.to_json()["mean"] is None


def test_splits_that_are_named_are_scored_as_they_are(start, rows, table, finetuned):
    files = {"train": table(rows[:24]), "test": table(rows[30:33])}
    run = finetuned(Classify, model=start, **files, epochs=None, baselines=True, linear_start=True)
    assert (run.result.split, run.result.rows, run.result.measured) == ("test", 3, "")
    assert "points" not in run.result.verdict and "too few to compare" in run.result.verdict
