"""When training stops by itself, and how: patience, a training loss near zero, the cooldown; minutes and their plan."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from bothways.base.log import messages_to
from bothways.settings import Classify
from bothways.tasks.batch_plan import Epoch
from bothways.text.batch import Batch
from bothways.training.finetuning import gain, training, trials
from bothways.training.finetuning.finetune import run as run_task
from bothways.training.finetuning.ground.epochs import EVALUATION_SHARE, evaluation_interval, num_epochs
from bothways.training.finetuning.plan import make_plan
from bothways.training.finetuning.training import STEPS
from bothways.training.loop import fit
from bothways.training.run import Run, read_metrics
from bothways.training.run_checkpoints import Checkpoints
from bothways.training.schedule import TrainingOptions
from bothways.training.signals import Stopped
from bothways.training.step import moving_average

pytestmark = pytest.mark.usefixtures("global_seed")  # compares what torch draws


def steps(first):
    batch = Batch.from_arrays(np.zeros(2, int), np.zeros(2, int), np.array([2]))
    while True:
        yield [batch]


def trained(losses, figures=(), *, start=None, checkpoints=None, **options):
    """Rows of a run of one weight whose losses are given, and whose metric is one of `figures` at each evaluation."""
    rows, values, module = [], iter(figures), torch.nn.Linear(1, 1, bias=False)
    given = iter(losses[start.progress.step if start else 0 :])

    def loss(module, batch):
        value = next(given)
        return {"x": (module(torch.ones(1)).sum() * 0 + value, 1)}

    settings = {"steps": 40, "learning_rate": 0.1, "warmup": 0.0, "evaluate_every": 5, "best_by": "score", **options}
    fit(
        module, loss, lambda batch: {"x": 1}, steps, TrainingOptions(**settings),
        evaluate=lambda: {"loss": 1.0, "score": next(values, 0.0)}, record=rows.append, start=start,
        **({"checkpoints": checkpoints} if checkpoints else {}),
    )  # fmt: skip
    return [row for row in rows if row["split"] == "train"], [row for row in rows if row["split"] == "heldout"]


def test_after_the_decision_to_stop_the_rate_falls_to_zero_in_the_cooldown():
    rows, heldout = trained([1.0] * 40, [0.5, 0.4, 0.4, 0.4, 0.4, 0.4], patience=3, cooldown=0.2)
    assert [row["step"] for row in heldout] == [5, 10, 15, 20, 24]  # decided at 20, with a fifth of 20 steps left
    rates = [row["learning_rate"] for row in rows]
    scheduled = [row["learning_rate"] for row in trained([1.0] * 40, [0.5])[0]]
    assert rates[:20] == scheduled[:20]
    assert rates[20:] == pytest.approx([scheduled[20] * part for part in (1.0, 0.75, 0.5, 0.25)])


def test_a_training_loss_near_zero_stops_at_the_next_evaluation():
    losses = [1.0] * 8 + [0.0] * 72
    rows, _ = trained(losses, range(99), patience=99, negligible_loss=0.05, cooldown=0.1, steps=80)
    average, below = None, []
    for step, loss in enumerate(losses, 1):
        average = moving_average(average, loss)
        below += [step] if average < 0.05 else []
    decided = -(-below[0] // 5) * 5
    assert rows[-1]["step"] == decided + -(-decided // 10) < 80


def test_a_lower_loss_counts_as_progress_beside_the_metric():
    heldout = iter([{"loss": 1.0 - step / 100, "score": 0.5} for step in range(9)])
    rows = []
    options = TrainingOptions(
        steps=40, learning_rate=0.1, warmup=0.0, evaluate_every=5, best_by="score", patience=2, evaluate_first=True
    )
    fit(
        torch.nn.Linear(1, 1, bias=False), lambda module, batch: {"x": (module(torch.ones(1)).sum(), 1)},
        lambda batch: {"x": 1}, steps, options, evaluate=lambda: next(heldout), record=rows.append,
    )  # fmt: skip
    assert rows[-1]["step"] == 40


def test_a_run_that_is_stopped_in_the_cooldown_ends_as_if_it_had_not_been(tmp_path):
    figures, options = [0.5, 0.4, 0.4, 0.4, 0.4], {"patience": 3, "cooldown": 0.4, "checkpoint_every": 22}
    whole, _ = trained([1.0] * 40, figures, **options)
    checkpoints = Checkpoints(tmp_path)
    trained([1.0] * 40, figures, checkpoints=checkpoints, **options)
    saved = Checkpoints(tmp_path).load_latest(torch.float32)
    while saved.progress.step != 22:
        (saved.path / "state.json").unlink()
        saved = Checkpoints(tmp_path).load_latest(torch.float32)
    rest, _ = trained([1.0] * 40, [0.4], start=saved, **options)
    assert saved.progress.stopped_at == 20 and whole[-1]["step"] == 28
    assert [row["learning_rate"] for row in rest] == [row["learning_rate"] for row in whole[22:]]


@pytest.mark.parametrize(
    ("epoch", "epochs"),
    [
        (Epoch(100, 5000, 200_000), 3.0),
        (Epoch(30, 450, 12_000), 5.0),  # enough for 150 steps
        (Epoch(2, 30, 500), 20.0),  # at most
        (Epoch(15, 240, 61_000), 3.0),  # few long texts: as many as the tokens allow, but no fewer than usual
        (Epoch(15, 240, 30_000), 5.0),
    ],
)
def test_few_examples_are_read_more_often_unless_they_are_long(epoch, epochs):
    assert num_epochs(None, 150, epoch) == pytest.approx(epochs)


@pytest.mark.parametrize(("dev_tokens", "interval"), [(1000, 25), (30_000, 42), (10**6, 100)])
def test_evaluations_take_a_share_of_the_time(dev_tokens, interval):
    """300 steps that read 450,000 tokens: 12 evaluations, as many as cost 15 %, or 3."""
    assert evaluation_interval(300, Epoch(100, 5000, 150_000), dev_tokens) == interval


@pytest.fixture(scope="module")
def rows():
    words, rng = "the and on a b mat ran".split(), np.random.default_rng(0)
    texts = [" ".join([*rng.choice(words, 5), ("cat", "dog")[row % 2]]) for row in range(200)]
    return [{"text": text, "label": ("feline", "canine")[row % 2]} for row, text in enumerate(texts)]


@pytest.fixture
def settings(checkpoint_of, rows, tmp_path):
    return Classify(
        model=checkpoint_of(num_hidden_layers=2), train=rows, out=tmp_path / "run", dtype="float32", baselines=False,
        epochs=4.0, batch_size=16, linear_start=False,
    )  # fmt: skip


@pytest.mark.slow
def test_minutes_bound_the_steps_and_a_resumed_run_keeps_them(settings, monkeypatch):
    monkeypatch.setattr(training.Trial, "run", lambda self, steps, rate: (self.model, 0.5))
    monkeypatch.setattr(trials, "seconds_for_training", lambda plan: 6.0 * (1 + EVALUATION_SHARE))
    bounded = replace(settings, minutes=600.0, checkpoint_every=2)
    log = Run.log_metrics

    def stops(self, **row):
        log(self, **row)
        if row["split"] == "train" and row["step"] == 5:
            raise Stopped("stopped")

    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(Run, "log_metrics", stops)
        run_task(bounded)
    chosen = json.loads((settings.out / "seeds/0" / STEPS).read_text(encoding="utf-8"))
    assert chosen["steps"] == 12
    monkeypatch.setattr(training.Trial, "run", lambda self, steps, rate: (self.model, 100.0))
    run_task(replace(bounded, resume=True))
    assert max(row["step"] for row in read_metrics(settings.out)) == 12


@pytest.mark.slow
def test_the_expected_minutes_are_logged_before_the_first_step(settings, monkeypatch):
    monkeypatch.setattr(training.Trial, "run", lambda self, steps, rate: (self.model, 1.5))
    messages, first = [], []
    with messages_to(messages.append):
        run_task(settings, callbacks=[lambda row: first.append(len(messages)) if not first else None])
    line = next(number for number, text in enumerate(messages) if "training takes about 1.0 minutes: 40 steps" in text)
    assert line < first[0]


def test_steps_of_unequal_sizes_are_timed_by_their_tokens():
    """The shortest texts, in the fastest steps, do not stand for all; nor does the first step, or an evaluation."""
    sizes, seconds = [50, 100, 400, 700, 200], [9.0, 0.05, 0.4, 0.7, 0.2]
    tokens, times = np.cumsum([0, *sizes]).tolist(), np.cumsum([5.0, *seconds]).tolist()
    steps = [*zip(times, tokens, strict=True), (times[-1] + 0.001, tokens[-1])]
    assert trials.seconds_per_token(steps) == pytest.approx(0.001)


def test_a_learning_rate_of_zero_takes_no_step(settings):
    plan = make_plan(replace(settings, learning_rate=0.0, linear_start=True))
    steps = trials.choose_steps(training.Trial(plan, plan.prepare_model(0).model, 0))
    assert plan.skips_training and steps.steps == 0


@pytest.fixture
def pretend_losses(monkeypatch):
    """Trials that take no step: pretend_losses(high, low) -> the learning rates that were tried. The loss on dev is 1
    before the trials. high, low: after one at the default rate, and after one at a third."""

    def pretend(high, low):
        tried = []

        def run(self, steps, rate):
            tried.append(rate)
            return len(tried), 0.001

        def row_losses(self, model):
            return torch.full((20,), {1: high, 2: low}.get(model, 1.0) if isinstance(model, int) else 1.0)

        monkeypatch.setattr(training.Trial, "run", run)
        monkeypatch.setattr(training.Trial, "row_losses", row_losses)
        return tried

    return pretend


@pytest.mark.parametrize(
    ("high", "low", "rates", "chosen"),
    [(1.4, 0.2, 1, 1.0), (1.6, 0.2, 2, 1 / 3), (1.6, 1.7, 2, 1.0)],
)
def test_a_trial_lowers_a_learning_rate_that_destroys_the_model(high, low, rates, chosen, settings, pretend_losses):
    tried = pretend_losses(high, low)
    plan = make_plan(replace(settings, epochs=20.0, learning_rate=None, linear_start=True))
    steps = trials.choose_steps(training.Trial(plan, plan.prepare_model(0).model, 0))
    assert tried == pytest.approx([5e-4, 5e-4 / 3][:rates])
    assert steps.learning_rate == pytest.approx(5e-4 * chosen)


@pytest.mark.slow
def test_a_run_trains_with_the_learning_rate_of_its_trial_and_prints_the_default_beside_it(settings, pretend_losses):
    pretend_losses(1.6, 0.2)
    messages = []
    with messages_to(messages.append):
        run_task(replace(settings, epochs=13.0, learning_rate=None, linear_start=True))
    used = max(row["learning_rate"] for row in read_metrics(settings.out) if "learning_rate" in row)
    assert used == pytest.approx(5e-4 / 3, rel=0.1)
    assert any("instead of 5.0e-04" in line for line in messages)


def test_weights_between_two_models_are_exact_at_both_ends():
    first, last = {"a": torch.tensor([1.0, 1e8])}, {"a": torch.tensor([3.0, 1.1]), "n": torch.tensor(7)}
    first["n"] = torch.tensor(5)
    assert all(torch.equal(value, first["a"]) for name, value in gain.interpolate(first, last, 0.0) if name == "a")
    assert dict(gain.interpolate(first, last, 1.0)) == last
    assert dict(gain.interpolate(first, last, 0.25))["a"][0] == 1.5


class FakeScoring:
    """Of one weight: its loss on a row is the squared distance to a number; its metric is the weight itself."""

    metric = "score"

    def __init__(self, numbers):
        self.numbers = torch.tensor(numbers)

    def outputs(self, model, split):
        assert split == "dev"
        return model.weight.detach().reshape(())

    def row_losses(self, split, weight):
        return (self.numbers - weight) ** 2

    def compute_metrics(self, split, weight):
        return {"score": -abs(float(weight) - 0.75)}


@pytest.mark.parametrize(
    ("numbers", "asked", "fraction"),
    [
        ([0.5] * 20, False, 0.5),
        ([1.0] * 20, False, 1.0),
        ([2.0] * 20, False, 1.0),
        ([-1.0] * 20, True, 0.0),
        ([-3.0, 3.3] * 10, True, 0.0),  # the gain is less than half its standard error
        ([2.0] * 12 + [-1.2] * 8, True, 0.75),  # about one standard error
        ([2.0] * 12 + [-1.2] * 8, False, 0.0),
        ([0.5] * 300, False, 0.75),  # enough rows: the metric decides
    ],
)
def test_the_point_with_the_lowest_loss_on_few_rows_is_kept_if_the_gain_is_clear(
    numbers, asked, fraction, tmp_path, monkeypatch
):
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.ones_(model.weight)
    task = SimpleNamespace(scoring=FakeScoring(numbers), initial_model="the start")
    plan = SimpleNamespace(task=task, inference_copy=lambda model: model, was_asked=asked, quantizes=False)
    monkeypatch.setattr(gain, "dev_score", lambda plan, outputs: None)
    assert gain.select_fraction(plan, model, {"weight": torch.zeros(1, 1)}, tmp_path) == fraction
    assert (tmp_path / "not_delivered.safetensors").exists() == (fraction == 0)
    assert model.weight.item() == fraction
