"""The last training on all rows: when there is one, what it repeats of the first one, and what the run has then."""

import json
from dataclasses import replace
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import torch

import bothways
from bothways.base.log import messages_to
from bothways.model.checkpoint import checkpoint
from bothways.settings import Classify, Regress
from bothways.tasks.classify.scoring import ClassScoring
from bothways.training.finetuning import all_rows, training, trials
from bothways.training.finetuning.all_rows import SCORED, AllRows, can_train_all_rows, is_worth_it, learning_curve
from bothways.training.finetuning.gain import LOSS, Gain, interpolate
from bothways.training.finetuning.ground.budget import Budget
from bothways.training.finetuning.ground.course import Course
from bothways.training.finetuning.plan import make_plan
from bothways.training.finetuning.run_scores import RunScores
from bothways.training.finetuning.training import trained_state
from bothways.training.run import Run
from bothways.training.schedule import TrainingOptions
from bothways.training.trainer import Trainer
from tests.training.finetuning.gallery import class_rows, number_rows

CLEAR = Gain(LOSS, 0.5, 0.4, 0.02, 0.18, 1.0, 96)
DOUBTFUL = Gain(LOSS, 0.5, 0.4, -0.02, 0.22, 1.0, 96)
COURSE = Course(steps=40, learning_rate=1e-3, best_step=20, last_step=40, stopped_at=0, fraction=0.75, seconds=100.0)
ROWS = 120


@pytest.fixture(scope="module")
def settings(checkpoint_of, tmp_path_factory):
    """A training whose dev and test are divided off the table, and which is short of its minutes."""
    return Classify(
        model=checkpoint_of(num_hidden_layers=1),
        train=class_rows(0, ROWS),
        out=tmp_path_factory.mktemp("run") / "run",
        dtype="float32",
        minutes=600.0,
        epochs=2.0,
        batch_size=8,
        learning_rate=5e-3,
        baselines=False,
    )


@pytest.fixture(scope="module")
def whole_run(settings, tmp_path_factory):
    """A finished run with a last training on all rows."""
    messages = []
    with pytest.MonkeyPatch.context() as patch, messages_to(messages.append):
        patch.setattr(all_rows, "learning_curve", lambda rows: CLEAR)
        patch.setattr(training, "select_fraction", halfway)
        result = bothways.train(replace(settings, out=tmp_path_factory.mktemp("whole") / "run"))
    return SimpleNamespace(result=result, directory=result.directory, messages=messages)


def halfway(plan, model, initial, directory):
    """Selects the middle between the linear start and the trained weights."""
    model.load_state_dict(dict(interpolate(initial, trained_state(model), 0.5)), strict=False)
    return 0.5


# --- all rows ---------------------------------------------------------------------------------------------------------


def test_all_rows_are_in_the_order_of_the_table_with_their_targets(settings):
    rows = AllRows.of(make_plan(settings))
    task = rows.whole
    assert task.tables["train"].texts == [row["text"] for row in class_rows(0, ROWS)]
    assert [task.names[target] for target in task.data["train"].targets] == [
        row["label"] for row in class_rows(0, ROWS)
    ]
    assert (rows.num_rows, rows.num_scored) == (ROWS, 96) and {*task.data} == {"train"}


def test_numbers_stay_on_the_scale_of_the_first_training(settings, checkpoint_of):
    settings = Regress(model=settings.model, train=number_rows(0, 60), out=settings.out, minutes=600.0, epochs=1.0)
    rows = AllRows.of(make_plan(settings))
    scale = rows.task.mean, rows.task.deviation
    assert (rows.whole.mean, rows.whole.deviation) == scale
    numbers = [row["score"] for row in number_rows(0, 60)]
    assert rows.whole.data["train"].targets * scale[1] + scale[0] == pytest.approx(numbers)


def test_a_test_file_stays_apart(settings):
    rows = AllRows.of(make_plan(replace(settings, test=class_rows(1, 30))))
    assert rows.joined == ("train", "dev") and rows.num_rows == ROWS


# --- when there is a last training ------------------------------------------------------------------------------------


def scores_of(*, frozen=False, refused="", delivers_rival=False):
    model = mock.Mock(scores=SimpleNamespace(frozen=frozen))
    return RunScores(model, rival=mock.Mock(), delivers_rival=delivers_rival, refused=refused)


@pytest.mark.parametrize(
    ("changed", "scores", "can"),
    [
        ({}, scores_of(), True),
        ({"test": class_rows(1, 30)}, scores_of(), True),
        ({"dev": class_rows(1, 30)}, scores_of(), False),
        ({"minutes": None}, scores_of(), False),
        ({"folds": 3}, scores_of(), False),
        ({"seeds": 2}, scores_of(), False),
        ({"quantize": "int8"}, scores_of(), False),
        ({}, scores_of(frozen=True), False),
        ({}, scores_of(refused="not delivered"), False),
        ({}, scores_of(delivers_rival=True), False),
    ],
)
def test_a_last_training_needs_minutes_and_a_dev_of_our_own(settings, changed, scores, can):
    assert can_train_all_rows(make_plan(replace(settings, **changed)), scores) is can


@pytest.mark.parametrize(
    ("course", "spent", "gain", "is_worth"),
    [
        (COURSE, 300.0, CLEAR, True),
        (COURSE, 300.0, DOUBTFUL, False),
        (replace(COURSE, seconds=239.0), 300.0, CLEAR, True),  # half of its steps are repeated
        (replace(COURSE, seconds=240.0), 300.0, CLEAR, False),  # 40 % of ten minutes
        (COURSE, 500.0, CLEAR, True),
        (COURSE, 530.0, CLEAR, False),  # 52 s are left, and 62 are needed
        (replace(COURSE, best_step=10), 530.0, CLEAR, True),
    ],
)
def test_it_takes_place_if_there_is_time_and_more_rows_clearly_gain(
    settings, monkeypatch, tmp_path, course, spent, gain, is_worth
):
    budget = Budget(600.0, started=0.0, clock=lambda: spent)
    plan = make_plan(replace(settings, minutes=10.0), budget=budget)
    monkeypatch.setattr(all_rows, "learning_curve", lambda rows: gain)
    with Run(tmp_path / "run", "finetune classify", plan.settings) as run:
        assert is_worth_it(plan, AllRows.of(plan), course, run) is is_worth


@pytest.mark.parametrize(
    ("num_features", "signal", "gains"),
    [
        (100, 0.2, True),
        (40, 0.8, False),  # 80 % of the rows tell all
        (40, 0.0, False),  # no rows tell anything
    ],
)
def test_the_learning_curve_is_clear_where_more_rows_tell_more(settings, num_features, signal, gains):
    rows = AllRows.of(make_plan(replace(settings, train=class_rows(0, 400))))
    draw = np.random.default_rng(0)
    noise_NF = draw.normal(size=(400, num_features))
    means_CF = draw.normal(size=(3, num_features))
    x_NF = noise_NF + signal * means_CF[rows.whole.data["train"].targets]
    rows.__dict__["features"] = torch.from_numpy(x_NF.astype(np.float32))
    gain = learning_curve(rows)
    assert gain.rows == 400 and gain.is_clear is gains


# --- what it repeats --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("accuracies", "patience", "best", "stopped"),
    [
        ([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7], None, 24, 0),  # to the end of the schedule
        ([0.1, 0.2, 0.9, 0.0, 0.0, 0.0, 0.0], None, 8, 0),  # in its middle
        ([0.1, 0.2, 0.9, 0.0, 0.0, 0.95, 0.0], 2, 18, 16),  # at the end of the cooldown
        ([0.1, 0.9, 0.0, 0.0, 0.0, 0.0], 2, 4, 12),  # long before it
    ],
)
def test_on_the_same_rows_the_last_training_gives_the_same_weights(
    settings, monkeypatch, tmp_path, accuracies, patience, best, stopped
):
    """So it differs from the first one in its rows only."""
    values = iter(accuracies)
    monkeypatch.setattr(training, "select_fraction", halfway)
    monkeypatch.setattr(
        ClassScoring, "evaluate", lambda *arguments: {"loss": 1.0, "accuracy": next(values, 0.0), "baseline": 0.0}
    )
    monkeypatch.setattr(trials, "evaluation_interval", lambda *arguments: 4)
    plan = make_plan(replace(settings, patience=patience, out=tmp_path / "run"))
    first = plan.prepare_model(0).model
    with Run(tmp_path / "run", "finetune classify", plan.settings) as run:
        course, _ = training.train_float(plan, first, 0, run, tmp_path / "seed")
    course.write(tmp_path / "seed")
    assert Course.read(tmp_path / "seed") == course
    assert (course.best_step, course.stopped_at, course.fraction) == (best, stopped, 0.5)

    rows = AllRows(plan.task, ("train",))
    again = all_rows.train_model(plan, rows, course, 0, tmp_path / "again")
    assert again.labels == plan.task.names
    for name, value in first.state_dict().items():
        assert torch.equal(value, again.model.state_dict()[name]), name


def test_a_seed_of_an_older_version_has_no_course(tmp_path):
    assert Course.read(tmp_path) is None


def test_a_training_may_end_before_its_schedule():
    trainer = SimpleNamespace(options=TrainingOptions(steps=40, learning_rate=1.0, cooldown=0.1, end=22))
    trainer.last_scheduled = lambda progress: Trainer.last_scheduled(trainer, progress)
    ends = [Trainer.last_step(trainer, SimpleNamespace(stopped_at=stopped)) for stopped in (0, 20, 10)]
    assert ends == [22, 22, 11]


# --- the run ----------------------------------------------------------------------------------------------------------


def test_the_model_of_all_rows_is_delivered_and_the_scored_one_kept(whole_run):
    scored, delivered = (checkpoint.load(whole_run.directory / name) for name in (SCORED, "model"))
    assert scored.labels == delivered.labels and scored.metadata["calibration"] == delivered.metadata["calibration"]
    differs = [
        not torch.equal(value, delivered.model.state_dict()[name]) for name, value in scored.model.state_dict().items()
    ]
    assert sum(differs) > len(differs) / 2
    assert not (whole_run.directory / "seeds").exists()


def test_the_predictions_and_the_score_are_those_of_the_scored_model(whole_run):
    table = whole_run.result.predictions
    texts, predicted = [*table["text"]], [*table["predicted"]]
    model = bothways.load(whole_run.directory / SCORED, dtype="float32")
    assert [one.label for one in model.classify(texts)] == predicted
    correct = [gold == one for gold, one in zip(table["gold"], predicted, strict=True)]
    assert whole_run.result.mean == pytest.approx(np.mean(correct))


def test_the_distance_of_held_out_texts_is_that_of_the_scored_model(whole_run):
    scored, delivered = (checkpoint.load(whole_run.directory / name).scope for name in (SCORED, "model"))
    assert [*scored.held_out] == [*delivered.held_out] and scored.rows == delivered.rows == 24
    assert not np.array_equal(scored.means_GH, delivered.means_GH)


def test_the_first_line_and_the_report_say_which_model_the_score_is_of(whole_run):
    result = whole_run.result
    assert result.scored.startswith("the score is that of a model trained on 80 % of the rows, ")
    assert f"{whole_run.directory / SCORED}; the delivered one was trained on all 120, for the same " in result.scored
    assert next(result.lines()) == result.scored
    report = (whole_run.directory / "report.html").read_text(encoding="utf-8")
    assert "the delivered one was trained on all 120" in report
    assert result.to_json()["scored"] == result.scored


def test_the_result_that_is_opened_says_it_too(whole_run):
    stored = json.loads((whole_run.directory / "bothways.json").read_text(encoding="utf-8"))
    assert stored["trains_all_rows"] is True and stored["result"]["scored"] == whole_run.result.scored
    assert bothways.open_run(whole_run.directory).scored == whole_run.result.scored


def test_without_a_gain_of_more_rows_the_run_is_as_before_and_a_line_says_so(settings, monkeypatch, tmp_path):
    monkeypatch.setattr(all_rows, "learning_curve", lambda rows: DOUBTFUL)
    monkeypatch.setattr(training, "select_fraction", halfway)
    messages = []
    with messages_to(messages.append):
        result = bothways.train(replace(settings, out=tmp_path / "run"))
    assert result.scored == "" and not (tmp_path / "run" / SCORED).exists()
    assert any("-0.020 to +0.220 (95 % interval); so the 120 rows are not trained on once more" in m for m in messages)


@pytest.mark.parametrize(
    ("settings_class", "rows", "options"),
    [
        (Regress, number_rows(0, ROWS), {}),
        (Classify, class_rows(0, ROWS), {"adapter": "lora"}),
        (Classify, [{**row, "label": [row["label"]]} for row in class_rows(0, ROWS)], {"multi_label": True}),
    ],
)
def test_numbers_adapters_and_several_labels_have_a_last_training_too(
    settings, monkeypatch, tmp_path, settings_class, rows, options
):
    monkeypatch.setattr(all_rows, "learning_curve", lambda rows: CLEAR)
    monkeypatch.setattr(training, "select_fraction", halfway)
    usual = {"minutes": 600.0, "epochs": 1.0, "baselines": False, "dtype": "float32", "out": tmp_path / "run"}
    result = bothways.train(settings_class(model=settings.model, train=rows, **usual, **options))
    assert ("calibration" in result.scored) == (settings_class is Classify)
    scored, delivered = (bothways.load(tmp_path / "run" / name, dtype="float32") for name in (SCORED, "model"))
    texts = [row["text"] for row in rows]
    if settings_class is Regress:
        scored_numbers, numbers = scored.regress(texts), delivered.regress(texts)
        assert (scored_numbers != numbers).any() and 7000 < np.mean(numbers) < 8500
    else:
        assert [one.scores for one in scored.classify(texts)] != [one.scores for one in delivered.classify(texts)]
