"""How `minutes` are divided among the parts of a run, and what is left out to keep to them, by given estimates."""

from dataclasses import replace

import pytest

import bothways
from bothways.base.log import messages_to
from bothways.settings import Classify
from bothways.tasks.classify.training import Classification
from bothways.training.finetuning import division, time_left, training
from bothways.training.finetuning.division import Estimates, divide
from bothways.training.finetuning.ground.budget import LABEL_CHECK, WORDS, Budget
from bothways.training.finetuning.ground.epochs import EVALUATION_SHARE, num_steps
from bothways.training.finetuning.plan import make_plan
from tests.training.finetuning.gallery import class_rows

SPENT = 7.0  # seconds of a run so far
USUAL = Estimates(token=0.001, step=0.5, fit=2.0, words=20.0)


@pytest.fixture(scope="module")
def settings(checkpoint_of, tmp_path_factory):
    """A training of 120 rows, whose dev and test are divided off."""
    return Classify(
        model=checkpoint_of(num_hidden_layers=1),
        train=class_rows(0, 120),
        out=tmp_path_factory.mktemp("run") / "run",
        dtype="float32",
        epochs=20.0,
        batch_size=8,
    )


@pytest.fixture
def plan_of(settings):
    """plan_of(minutes, **options) -> the plan of a run that began SPENT seconds ago."""

    def make(minutes, **options):
        budget = Budget(60.0 * minutes, started=0.0, clock=lambda: SPENT)
        return make_plan(replace(settings, minutes=minutes, **options), budget=budget)

    return make


def test_the_parts_together_take_the_minutes_less_the_margin(plan_of):
    plan = plan_of(2.0)
    divided = divide(plan, replace(USUAL, step=5.0))
    total = divided.spent + sum(divided.before.values()) + divided.training + sum(divided.after.values())
    assert divided.spent == SPENT and total == pytest.approx(0.97 * 120)
    assert 1 <= divided.steps < divided.all_steps == num_steps(20.0, 0, plan.epoch(0))
    assert divided.steps * 5.0 * (1 + EVALUATION_SHARE) <= divided.training


def test_with_enough_minutes_a_training_takes_all_of_its_steps(plan_of):
    divided = divide(plan_of(600.0), USUAL)
    assert divided.steps == divided.all_steps
    assert divided.training == pytest.approx(divided.all_steps * 0.5 * (1 + EVALUATION_SHARE))


def test_the_named_minutes_have_time_for_all_steps(plan_of):
    short = divide(plan_of(2.0), replace(USUAL, step=5.0))
    enough = divide(plan_of(float(short.minutes_of_all_steps)), replace(USUAL, step=5.0))
    less = divide(plan_of(float(short.minutes_of_all_steps - 1)), replace(USUAL, step=5.0))
    assert less.steps < less.all_steps and enough.steps == enough.all_steps


@pytest.mark.parametrize(
    ("changed", "left_out"),
    [
        ({}, set()),
        ({"words": 49.0}, {WORDS}),  # 40 % of two minutes are 48 s
        ({"words": None}, set()),
        ({"fit": 9.7}, {LABEL_CHECK}),  # five of them
        ({"fit": 9.7, "words": 49.0}, {WORDS, LABEL_CHECK}),
    ],
)
def test_what_takes_too_much_of_the_minutes_is_left_out_once_and_for_all(plan_of, changed, left_out):
    plan = plan_of(2.0)
    divided = divide(plan, replace(USUAL, **changed))
    assert {*divided.left_out} == {*plan.budget.left_out} == left_out
    assert (divided.after["label errors"] == 0) == (LABEL_CHECK in left_out)
    messages = []
    with messages_to(messages.append):
        assert plan.budget.allows(WORDS, 1.0) == (WORDS not in left_out)
        assert plan.budget.allows(LABEL_CHECK, 1.0) == (LABEL_CHECK not in left_out)
    assert not messages


def test_folds_have_their_trainings_and_baselines_in_the_division(plan_of):
    one, folded = (divide(plan_of(600.0, folds=folds), USUAL) for folds in (None, 3))
    assert (one.trainings, folded.trainings) == (1, 4)
    assert folded.before["baselines"] == 3 * one.before["baselines"] == 3 * (2.0 + 20.0)


def test_without_baselines_nothing_is_reserved_for_them(plan_of):
    divided = divide(plan_of(2.0, baselines=False), replace(USUAL, fit=100.0, words=100.0))
    assert "baselines" not in divided.before and not divided.after["label errors"] and not divided.left_out


def test_a_head_alone_has_no_steps_in_the_line(plan_of):
    divided = divide(plan_of(2.0, epochs=None, learning_rate=0.0), USUAL)
    assert divided.all_steps == 0 and "training" not in divided.describe()


def test_the_line_of_the_plan_names_what_is_left_out_and_the_minutes_of_all_steps(plan_of):
    line = divide(plan_of(2.0), Estimates(token=0.001, step=5.0, fit=2.0, words=49.0)).describe()
    assert line.startswith("plan for 2 minutes, estimated: 7 s so far, frozen vectors and linear start ")
    assert "left out to keep to it: TF-IDF (about 49 s); " in line and "has time for all 240 steps" in line


# --- linear models after a training that is no clear gain -------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "start"),
    [
        ({training.LINEAR: 3.0}, 3.0),
        ({training.LINEAR: 1.0, "frozen vectors + logistic regression": 4.0}, 4.0),
        ({}, 0.0),
    ],
)
def test_time_is_reserved_for_linear_models_of_all_rows(plan_of, seconds, start):
    options = {"train": class_rows(0, 600), "epochs": None, "baselines": False}
    plan = plan_of(10.0, **options)
    plan.budget.seconds |= seconds
    assert plan.build_linear is not None
    assert training.seconds_after(plan) == pytest.approx(time_left.LINEAR_STARTS * start)


def test_no_time_is_reserved_for_linear_models_that_no_run_delivers(plan_of):
    plan = plan_of(10.0, baselines=False)  # epochs ask for a training
    plan.budget.seconds[training.LINEAR] = 3.0
    assert plan.build_linear is None and training.seconds_after(plan) == 0


def test_the_division_reserves_time_for_linear_models_too(plan_of):
    divided = divide(plan_of(10.0, train=class_rows(0, 600), epochs=None), USUAL)
    assert divided.after["linear models if training is no gain"] > time_left.LINEAR_STARTS * USUAL.fit


# --- a run ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_line_of_the_plan_comes_before_the_first_part_and_a_resumed_run_leaves_out_the_same(
    settings, tmp_path, monkeypatch
):
    short = replace(settings, minutes=60.0, epochs=1.0, out=tmp_path / "run")
    monkeypatch.setattr(division, "measure", lambda plan: replace(USUAL, fit=600.0))
    messages = []
    with monkeypatch.context() as patch, messages_to(messages.append), pytest.raises(KeyboardInterrupt):
        patch.setattr(training, "select_fraction", stopped)
        bothways.train(short)
    lines = [number for number, line in enumerate(messages) if line.startswith("plan for 60 minutes, estimated: ")]
    fitted = next(number for number, line in enumerate(messages) if line.startswith("fitted to the frozen encoder"))
    assert len(lines) == 1 and lines[0] < fitted
    assert "label errors" in messages[lines[0]]

    monkeypatch.setattr(division, "measure", lambda plan: USUAL)  # not asked again
    searched = []
    monkeypatch.setattr(Classification, "out_of_fold", lambda task: searched.append(task))
    bothways.train(replace(short, resume=True))
    assert not searched


def stopped(*arguments):
    raise KeyboardInterrupt
