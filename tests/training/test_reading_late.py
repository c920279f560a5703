"""A step that is queued before the last one is read: rows, weights, checkpoints and errors are as without.

On a GPU the loop reads late; here it is told to.
"""

import signal
from dataclasses import replace

import numpy as np
import pytest
import torch

from bothways.base.errors import InputError
from bothways.model.losses import forward_losses
from bothways.text.batch import Batch
from bothways.training.loop import fit
from bothways.training.optimizer import PIECE, LossScale, Optimizer
from bothways.training.pretraining.objectives import PretrainingObjective
from bothways.training.run_checkpoints import Checkpoints, TrainingState
from bothways.training.schedule import TrainingOptions
from bothways.training.signals import Stopped
from bothways.training.step import StepQueue
from bothways.training.trainer import Trainer

OBJECTIVE = PretrainingObjective("next")
HEADS = {"masked_words": 0, "next_sentence": 2}
LOSSES = forward_losses(OBJECTIVE)
BOTH = pytest.mark.parametrize("late", [False, True], ids=["read at once", "read late"])


def batch_of(step):
    """Two short texts with three masked words."""
    rng = np.random.default_rng(step)
    lengths = rng.integers(4, 11, 2)
    ids = rng.integers(5, 97, lengths.sum())
    places = torch.tensor([1, 2, int(lengths[0]) + 1])
    batch = Batch.from_arrays(ids, np.zeros_like(ids), lengths)
    return replace(batch, masked_positions=places, masked_labels=batch.input_ids[places], labels=torch.tensor([0, 1]))


def steps(first):
    for step in range(first, 1000):
        yield [batch_of(2 * step), batch_of(2 * step + 1)]


@pytest.fixture
def small_model(make_model):
    def make():
        return make_model("bert", HEADS, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)

    return make


class History:
    """What a run shows to others, in order: rows of training, weights at evaluations."""

    def __init__(self, model, late):
        self.model = model
        self.late = late
        self.events = []

    @property
    def recorded(self):
        return [row["step"] for row in self.events if isinstance(row, dict) and row["split"] == "train"]

    def record(self, row):
        self.events.append({name: value for name, value in row.items() if name != "seconds"})

    def evaluate(self):
        weights = torch.cat([value.detach().flatten().float() for value in self.model.parameters()])
        self.events.append(weights.tolist())
        return {"loss": float(weights.square().sum()), "accuracy": float(weights.mean())}

    def run(self, losses=LOSSES, batches=steps, record=None, **options):
        saving = {name: options.pop(name) for name in ("checkpoints", "start") if name in options}
        return fit(
            self.model, losses, OBJECTIVE.counts, batches,
            TrainingOptions(**{"steps": 11, "learning_rate": 1e-2, "seed": 3, **options}),
            evaluate=self.evaluate, record=record or self.record, reads_late=self.late,
            fingerprint=lambda batch: f"with {batch.input_ids[1]}", **saving,
        )  # fmt: skip


OPTIONS = {
    "plain": {"evaluate_every": 4},
    "bfloat16": {"evaluate_every": 0, "checkpoint_every": 3, "dtype": torch.bfloat16},
    "the best weights": {"evaluate_every": 2, "evaluate_first": True, "best_by": "accuracy", "patience": 2},
    "an early end": {"evaluate_every": 3, "negligible_loss": 100.0, "cooldown": 0.5},
    "float16": {"evaluate_every": 4, "dtype": torch.float16},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_rows_evaluations_and_weights_are_the_same(options, small_model, tmp_path):
    runs = []
    for late in (False, True):
        history = History(small_model(), late)
        folder = tmp_path / str(late)
        state = history.run(**options, checkpoints=Checkpoints(folder, keep=99))
        names = sorted(path.name for path in (folder / "checkpoints").iterdir())
        saved = Checkpoints(folder).load_latest()
        tensors = {name: value.tolist() for name, value in saved.tensors().items()}
        runs.append((history.events, state.recent_loss, names, tensors, history.model.state_dict()))
    *expected, weights = runs[0]
    *actual, others = runs[1]
    assert actual == expected
    assert all(torch.equal(value, others[name]) for name, value in weights.items())


def test_a_row_is_written_when_the_next_step_is_queued(small_model):
    history = History(small_model(), late=True)
    seen = []

    def losses(module, batch):
        seen.append(len(history.recorded))
        return LOSSES(module, batch)

    history.run(losses, steps=5, evaluate_every=3)
    assert seen[::2] == [0, 0, 1, 3, 3]  # after the evaluation at step 3 all has been read


@BOTH
def test_a_loss_that_is_not_finite_names_its_step_and_leaves_the_weights(late, small_model):
    history = History(small_model(), late)
    weights = []

    def losses(module, batch):
        weights.append({name: value.clone() for name, value in module.state_dict().items()})
        factor = float("nan") if len(weights) in (7, 8) else 1.0  # the fourth step
        return {name: (value * factor, count) for name, (value, count) in LOSSES(module, batch).items()}

    with pytest.raises(InputError, match="step 4: loss nan") as error:
        history.run(losses)
    assert all(f"with {batch.input_ids[1]}" in str(error.value) for batch in next(steps(3)))
    assert history.recorded == [1, 2, 3]
    assert len(weights) == (10 if late else 8)
    after = history.model.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in weights[7].items())


@BOTH
def test_an_error_in_the_text_of_a_step_comes_after_the_rows_of_those_before(late, small_model):
    history = History(small_model(), late)

    def broken(first):
        for step, batches in enumerate(steps(first)):
            if step == 3:
                raise InputError("a bad line")
            yield batches

    with pytest.raises(InputError, match="a bad line"):
        history.run(batches=broken)
    assert history.recorded == [1, 2, 3]


@BOTH
def test_a_stop_signal_is_followed_after_the_step_that_was_queued(late, small_model, tmp_path):
    history = History(small_model(), late)

    def record(row):
        history.record(row)
        if row["step"] == 5 and row["split"] == "train":
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Stopped):
        history.run(record=record, checkpoints=Checkpoints(tmp_path))
    assert history.recorded == [1, 2, 3, 4, 5, 6]
    start = Checkpoints(tmp_path).load_latest()
    assert start.progress.step == 6

    history.run(checkpoints=Checkpoints(tmp_path), start=start)
    whole = History(small_model(), False)
    whole.run()
    assert [row for row in history.events if isinstance(row, dict)] == [
        row for row in whole.events if isinstance(row, dict)
    ]
    resumed = history.model.state_dict()
    assert all(torch.equal(value, resumed[name]) for name, value in whole.model.state_dict().items())


# --- the queue and the optimizer --------------------------------------------------------------------------------------


def test_losses_in_float16_are_read_at_once_since_their_scale_depends_on_them(small_model):
    trainer = Trainer(small_model(), LOSSES, OBJECTIVE.counts, TrainingOptions(steps=5, learning_rate=1e-2))
    assert StepQueue(trainer, LossScale(), reads_late=True).reads_late
    assert not StepQueue(trainer, LossScale(dynamic=True), reads_late=True).reads_late
    assert not StepQueue(trainer, LossScale()).reads_late  # on a CPU there is nothing to hide


def test_a_queue_gives_steps_in_order(small_model):
    trainer = Trainer(small_model(), LOSSES, OBJECTIVE.counts, TrainingOptions(steps=5, learning_rate=1e-2, warmup=1.0))
    queue = StepQueue(trainer, LossScale(), reads_late=True)
    progress = TrainingState()
    queue.add(progress, [batch_of(0)])
    assert not queue.is_full
    queue.add(progress, [batch_of(1)])
    assert queue.is_full

    rates = []
    while queue.number:
        progress, row, _ = queue.read(progress)
        rates.append(row["learning_rate"])
    assert progress.step == 2 and progress.tokens == batch_of(0).num_tokens + batch_of(1).num_tokens
    assert rates == pytest.approx([1e-2 / 6, 2e-2 / 6])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("where", ["gradient", "unread norm"])
def test_a_step_that_is_skipped_changes_nothing_and_does_not_count(dtype, where, small_model):
    model = small_model()
    optimizer = Optimizer(model, learning_rate=1e-2)
    model.to(dtype)

    def step(bad, unread_norm=None):
        for number, value in enumerate(model.parameters()):
            value.grad = torch.full_like(value, float("inf") if bad and number == 3 else 0.1 * number)
        return optimizer.step(1.0, unread_norm=unread_norm)

    norm = step(False)
    state = {name: value.clone() for name, value in optimizer.state().items()}
    weights = [value.clone() for value in model.parameters()]
    assert norm.isfinite() and {name.partition(".")[0] for name in state} == {"masters", "first", "second", "steps"}

    if where == "gradient":
        assert not step(True).isfinite()
    else:
        assert step(False, torch.tensor(float("nan"))).isfinite()
    assert all(torch.equal(value, state[name]) for name, value in optimizer.state().items())
    assert all(torch.equal(value, before) for value, before in zip(model.parameters(), weights, strict=True))

    step(False, norm)
    assert all((optimizer.state()[name] == 2).all() for name in state if name.startswith("steps."))
    assert not all(torch.equal(value, state[name]) for name, value in optimizer.state().items())


def test_a_step_of_the_optimizer_waits_for_no_device(make_model, monkeypatch):
    """Tensors without data stand for those of a GPU: to read one is an error."""
    monkeypatch.setitem(PIECE, "meta", 1000)
    model = make_model("bert", HEADS).to("meta")
    optimizer = Optimizer(model, learning_rate=1e-2)
    model.bfloat16()
    norm = None
    for _ in range(2):
        for value in model.parameters():
            value.grad = torch.empty_like(value)
        norm = optimizer.step(1.0, loss_scale=8.0, unread_norm=norm)
    assert norm.device.type == "meta" and norm.shape == ()
