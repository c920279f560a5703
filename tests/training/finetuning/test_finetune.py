"""What all fine-tuning shares: early stopping, freezing, layer-wise rates, which seed is kept, long texts in bounded
memory."""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
from contextlib import suppress
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
import torch

import bothways
from bothways.base.errors import InputError, MissingFile
from bothways.base.log import messages_to
from bothways.model.checkpoint import checkpoint
from bothways.settings import Classify
from bothways.tasks import forward
from bothways.tasks.batch_plan import Epoch
from bothways.tasks.classify.scoring import ClassObjective
from bothways.tasks.classify.training import Classification
from bothways.tasks.forward import split_batch
from bothways.tasks.regress.training import Regression
from bothways.tasks.text_examples import MAX_TOKENS
from bothways.text.batch import Batch
from bothways.training import progress
from bothways.training.finetuning import deliver, plan, seeds
from bothways.training.finetuning.finetune import run as run_task
from bothways.training.finetuning.ground.epochs import default_learning_rate, log_epochs
from bothways.training.finetuning.select import best_seed
from bothways.training.loop import fit
from bothways.training.run import Run
from bothways.training.schedule import TrainingOptions
from bothways.training.signals import Stopped


@pytest.fixture(scope="module")
def train_file(tmp_path_factory):
    """A text's class is whether it holds a cat or a dog."""
    file = tmp_path_factory.mktemp("tables") / "train.jsonl"
    rng = np.random.default_rng(0)
    rows = []
    for index in range(150):
        words = rng.choice("the and on a b mat ran".split(), int(rng.integers(4, 9))).tolist()
        words.insert(int(rng.integers(len(words) + 1)), ("cat", "dog")[index % 2])
        rows.append(json.dumps({"text": " ".join(words), "label": ("feline", "canine")[index % 2]}))
    file.write_text("\n".join(rows), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def start(checkpoint_of):
    return checkpoint_of(num_hidden_layers=3)


@pytest.fixture
def settings(start, train_file, tmp_path):
    return Classify(
        model=start, train=train_file, out=tmp_path / "run", epochs=3.0, batch_tokens=256, learning_rate=5e-3,
        dropout=0.0, dtype="float32", baselines=False, linear_start=False,
    )  # fmt: skip


def rows_of(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def test_one_file_is_divided_80_10_10_and_reported_on_test(settings):
    made = plan.make_plan(settings)
    assert made.split == "test"
    assert {split: made.task.report.num_rows(split) for split in made.task.data} == {
        "train": 120, "dev": 15, "test": 15,
    }  # fmt: skip


@pytest.mark.parametrize("patience", [1, 2])
def test_training_ends_when_patience_runs_out_and_the_best_weights_are_kept(patience, global_seed):
    figures = iter([0.1, 0.5, 0.3, 0.4, 0.2, 0.6, 0.7])
    module, seen = torch.nn.Linear(1, 1, bias=False), []

    def steps(first):
        batch = Batch.from_arrays(np.zeros(2, int), np.zeros(2, int), np.array([2]))
        while True:
            yield [batch]

    def evaluate():
        seen.append(module.weight.item())
        return {"loss": 0.0, "score": next(figures)}

    def losses(module, batch):
        return {"x": (module(torch.ones(1)).sum(), 1)}

    options = TrainingOptions(
        steps=30, learning_rate=0.1, warmup=0.0, evaluate_every=1, best_by="score", patience=patience
    )
    fit(module, losses, lambda batch: {"x": 1}, steps, options, evaluate=evaluate, record=lambda row: None)
    assert len(seen) == 2 + patience  # the best is the second
    assert module.weight.item() == pytest.approx(seen[1])


@pytest.mark.slow
def test_lines_of_progress_are_logged_without_a_terminal(settings, monkeypatch):
    messages = []
    monkeypatch.setattr(progress, "LINE_EVERY", 0.0)
    with messages_to(messages.append):
        run_task(replace(settings, epochs=0.5))
    shown = [line for line in messages if line.startswith("fine-tuning, seed 0: step ")]
    assert len(shown) > 3 and all("learning rate" in line and line.endswith("s left") for line in shown)


@pytest.mark.slow
def test_callbacks_receive_every_row_of_the_metrics_and_the_number_of_steps(settings):
    rows = []
    result = bothways.train(replace(settings, epochs=0.5, seeds=2), callbacks=[rows.append])
    steps = max(row["step"] for row in rows)
    assert rows == [{**row, "steps": steps} for row in rows_of(result.directory)]
    assert {row["seed"] for row in rows} == {0, 1} and {row["split"] for row in rows} == {"train", "heldout"}


@pytest.mark.slow
def test_an_exception_in_a_callback_ends_the_run_which_can_be_resumed(settings, undisturbed):
    def enough(row):
        if row["step"] == 6:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        bothways.train(resumable(settings), callbacks=[enough])
    result = bothways.train(resumable(settings, resume=True))
    assert without_seconds(result.directory) == without_seconds(undisturbed.directory)


@pytest.mark.parametrize(
    ("epochs", "an_epoch", "expected"),
    [
        (None, 100, ()),
        (None, 23, ("6.52 epochs", "23 steps")),
        (3.0, 100, ()),
        (2.0, 100, ("2 epochs", "200 steps", "300 (3 epochs)")),
        (3.0, 23, ("warning: ", "3 epochs", "69 steps", "150 (6.52 epochs)")),
        (1.0, 5000, ("1 epoch", "5,000 steps", "15,000 (3 epochs)")),
    ],
)
def test_epochs_are_logged_as_steps_and_too_few_give_a_warning(epochs, an_epoch, expected):
    messages = []
    with messages_to(messages.append):
        log_epochs(epochs, 150, Epoch(an_epoch, 16 * an_epoch, 160 * an_epoch))
    assert len(messages) == bool(expected)
    assert all(part in message for part in expected for message in messages)


@pytest.mark.parametrize(("width", "rate"), [(1024, 3.25e-5), (768, 5e-5), (384, 1.41e-4), (256, 2.6e-4), (32, 5e-4)])
def test_the_default_learning_rate_depends_on_the_width(width, rate):
    assert default_learning_rate(width) == pytest.approx(rate, rel=0.01)


@pytest.mark.slow
def test_the_default_learning_rate_by_width_is_logged_and_used(settings):
    messages = []
    own = replace(settings, learning_rate=None, warmup=0.0, epochs=0.5)
    with messages_to(messages.append):
        directory = run_task(own).directory
    assert any(line.startswith("peak learning rate 5.0e-04, for a width of ") for line in messages)
    assert max(row["learning_rate"] for row in rows_of(directory) if "learning_rate" in row) == 5e-4


def test_the_best_seed_is_kept():
    assert best_seed({3: 0.7, 4: 0.9, 5: 0.8, 6: 0.9}) == 4


def test_batch_size_sets_the_examples_of_a_step_which_micro_batches_divide(settings):
    made = plan.make_plan(replace(settings, batch_size=7, gradient_accumulation=3))
    assert made.epoch(0).steps == -(-120 // 7)
    micro_batches = next(made.steps(0))
    assert len(micro_batches) == 3 and sum(map(len, micro_batches)) == 7


@pytest.mark.slow
def test_micro_batches_change_no_loss(settings, tmp_path):
    losses = []
    for parts in (1, 3):
        run = run_task(replace(settings, epochs=1.0, gradient_accumulation=parts, out=tmp_path / str(parts)))
        losses.append([row["loss"] for row in rows_of(run.directory) if row["split"] == "train"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.slow
def test_a_step_of_many_tokens_is_cut_between_texts_and_changes_no_loss(settings, tmp_path, monkeypatch):
    """So nothing is computed twice, except for a text that is longer than the bound itself."""
    runs, losses = {}, ClassObjective.losses
    for bound in (10_000, 30):
        sizes = []
        monkeypatch.setattr(Classification, "max_micro_batch_tokens", bound)
        monkeypatch.setattr(
            ClassObjective, "losses",
            lambda self, model, batch, scores, sizes=sizes: (
                sizes.append(batch.num_tokens) or losses(self, model, batch, scores)
            ),
        )  # fmt: skip
        run = run_task(replace(settings, epochs=1.0, gradient_accumulation=2, out=tmp_path / str(bound)))
        runs[bound] = sizes, [row["loss"] for row in rows_of(run.directory) if row["split"] == "train"]
    assert runs[10_000][1] == pytest.approx(runs[30][1], rel=1e-5)
    assert min(runs[10_000][0]) > 30 and max(runs[30][0]) <= 30


@pytest.mark.parametrize("task", [Classification, Regression])
def test_what_reads_texts_one_by_one_never_has_more_in_memory_than_is_kept_for_the_way_back(task):
    assert task.max_micro_batch_tokens == MAX_TOKENS


def test_windows_beyond_the_bound_have_the_gradients_of_all_at_once(make_model):
    model = make_model("bert", {"classes": 3}).train()
    lengths = np.array([5, 7, 7, 11, 12, 19])
    ids = np.random.default_rng(0).integers(5, 20, lengths.sum())
    batch = Batch.from_arrays(ids, np.zeros_like(ids), lengths)
    gradients = []
    for bound in (1000, 20, 6):
        model.zero_grad()
        vectors_WH = forward.window_vectors(model, batch, bound)
        (vectors_WH * torch.arange(1, 7)[:, None]).sin().sum().backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
        with torch.no_grad():
            assert torch.allclose(forward.window_vectors(model, batch, bound), vectors_WH, atol=1e-6)
    for other in gradients[1:]:
        assert 0 < (gradients[0] - other).norm() / gradients[0].norm() < 1e-5  # other sums round differently


def test_parts_of_a_batch_hold_its_entries_in_order_within_the_bound():
    lengths = np.array([3, 5, 5, 9, 30, 2])
    ids = np.arange(lengths.sum())
    parts = list(split_batch(Batch.from_arrays(ids, ids % 2, lengths), 14))
    assert [part.lengths.tolist() for part in parts] == [[3, 5, 5], [9], [30], [2]]
    assert torch.cat([part.input_ids for part in parts]).tolist() == ids.tolist()
    assert torch.cat([part.segment_ids for part in parts]).tolist() == (ids % 2).tolist()
    assert all(part.position_ids[0] == 0 for part in parts)


def test_a_text_of_a_hundred_windows_keeps_the_activations_of_few(make_model, global_seed):
    model = make_model("bert", {"classes": 2}, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1).train()

    def kept_by(windows, bound):
        lengths = np.full(windows, 16)
        ids = np.random.default_rng(1).integers(5, 20, lengths.sum())
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x: sizes.append(x.numel()) or x, lambda x: x):
            forward.window_vectors(model, Batch.from_arrays(ids, np.zeros_like(ids), lengths), bound).sum()
        return sum(sizes)

    assert kept_by(100, 160) < kept_by(10, 160) < kept_by(100, 1600) / 8


def test_dropout_is_the_same_when_activations_are_recomputed(make_model, global_seed):
    """The gradient is that of the forward pass: it agrees with a finite difference in its own direction."""
    model = make_model("bert", {"classes": 2}, hidden_dropout_prob=0.3, attention_probs_dropout_prob=0.3).train()
    lengths = np.array([6, 9, 13])
    ids = np.random.default_rng(2).integers(5, 20, lengths.sum())
    batch = Batch.from_arrays(ids, np.zeros_like(ids), lengths)

    def value():
        torch.manual_seed(7)
        return forward.window_vectors(model, batch, 10).sin().sum()

    weight = model.encoder.layers[0].attention.output.weight
    value().backward()
    direction = weight.grad.clone()
    step = 1e-3
    with torch.no_grad():
        weight += step * direction
        up = float(value())
        weight -= 2 * step * direction
        down = float(value())
    assert (up - down) / (2 * step) == pytest.approx(float((direction**2).sum()), rel=0.02)


class Killed(BaseException):
    """Stands for a killed process."""


def resumable(settings, **changes):
    options = {"seeds": 2, "epochs": 2.0, "evaluations_per_epoch": 1.0, "dropout": 0.1, "checkpoint_every": 4}
    return replace(settings, **options, dtype="bfloat16", **changes)


def without_seconds(run):
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows_of(run)]


@pytest.fixture(scope="module")
def undisturbed(start, train_file, tmp_path_factory):
    settings = Classify(
        model=start, train=train_file, out=tmp_path_factory.mktemp("whole") / "run", batch_tokens=256,
        learning_rate=5e-3, baselines=False, linear_start=False,
    )  # fmt: skip
    result = run_task(resumable(settings))
    assert len({row["seed"] for row in rows_of(result.directory)}) == 2
    return result


@pytest.mark.slow
@pytest.mark.parametrize("rows", [22])
def test_a_killed_run_resumes_to_the_same_numbers(settings, undisturbed, rows, monkeypatch):
    """Killed in the second seed. soak/test_finetune_kills.py kills it after every row."""
    assert_a_kill_changes_no_number(settings, undisturbed, rows, monkeypatch)


def assert_a_kill_changes_no_number(settings, undisturbed, rows, monkeypatch):
    """A run that is killed after so many rows of the metrics resumes to those of a whole one, and to its files."""
    metric, written = Run.log_metrics, []

    def dies(self, **row):
        written.append(row)
        if len(written) > rows:
            raise Killed
        metric(self, **row)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Run, "log_metrics", dies)
        run_task(resumable(settings))
    resumed = []
    result = run_task(resumable(settings, resume=True), callbacks=[resumed.append])
    assert without_seconds(result.directory) == without_seconds(undisturbed.directory)
    assert result.scores == undisturbed.scores
    for name, value in checkpoint.load(undisturbed.model_directory).model.state_dict().items():
        assert torch.equal(value, checkpoint.load(result.model_directory).model.state_dict()[name]), name
    steps = sum(row["seed"] == written[-1]["seed"] and row["split"] == "train" for row in written[:-1])
    has_checkpoint = steps >= resumable(settings).checkpoint_every
    assert (resumed[0]["step"] > 1) == has_checkpoint
    assert sorted(path.name for path in result.directory.iterdir()) == sorted(
        path.name for path in undisturbed.directory.iterdir()
    )


@pytest.mark.slow
def test_a_stopped_run_saves_and_resumes(settings, undisturbed, monkeypatch):
    metric = Run.log_metrics

    def log_then_stop(self, **row):
        metric(self, **row)
        if row["split"] == "train" and row["step"] == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch, pytest.raises(Stopped, match="--resume"):
        patch.setattr(Run, "log_metrics", log_then_stop)
        run_task(resumable(settings))
    metadata = json.loads((settings.out / "bothways.json").read_text(encoding="utf-8"))
    assert metadata["status"] == "stopped"
    with pytest.raises(MissingFile, match="finetune classify .*--resume"):
        bothways.load(settings.out)
    result = run_task(resumable(settings, resume=True))
    assert without_seconds(result.directory) == without_seconds(undisturbed.directory)


@pytest.mark.slow
@pytest.mark.parametrize("split", ["train", "heldout"])
def test_a_run_stopped_in_the_last_step_of_a_seed_starts_no_other_seed(split, settings, undisturbed, monkeypatch):
    last = max(row["step"] for row in rows_of(undisturbed.directory))
    metric = Run.log_metrics

    def log_then_stop(self, **row):
        metric(self, **row)
        if (row["split"], row["step"], row["seed"]) == (split, last, 0):
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch, pytest.raises(Stopped, match=f"step {last}; .*--resume"):
        patch.setattr(Run, "log_metrics", log_then_stop)
        run_task(resumable(settings))
    assert {row["seed"] for row in rows_of(settings.out)} == {0}
    result = run_task(resumable(settings, resume=True))
    assert without_seconds(result.directory) == without_seconds(undisturbed.directory)


@pytest.mark.slow
def test_a_run_does_not_resume_from_another_model(settings, monkeypatch, tmp_path):
    own = tmp_path / "start"
    shutil.copytree(settings.model, own)
    settings = replace(settings, model=own, epochs=0.1)
    run_task(settings)
    start = checkpoint.load(own)
    with torch.no_grad():
        start.model.encoder.layers[0].attention.output.bias += 0.01
    checkpoint.save(start, own)
    with pytest.raises(InputError, match="weights in .*start"):
        run_task(replace(settings, resume=True))


def test_processes_that_cannot_find_each_other_are_an_error(settings, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match=r"WORLD_SIZE is 2, but RANK, .* are not set; start with torchrun"):
        run_task(settings)
    assert not settings.out.exists()


@pytest.mark.slow
def test_a_run_that_is_done_gives_its_result_again_with_a_message_but_not_with_other_settings(settings, monkeypatch):
    done = run_task(replace(settings, epochs=0.1))
    messages = []
    monkeypatch.setattr(seeds, "train_seed", None)  # nothing is trained again
    with messages_to(messages.append):
        assert run_task(replace(settings, epochs=0.1, resume=True)) == done
    assert messages[-1].startswith(f"{done.directory}: ") and "done" in messages[-1]
    before = (done.directory / "bothways.json").read_text(encoding="utf-8")
    with pytest.raises(InputError, match=r"\(learning_rate: 0.005 -> 0.1\)"):
        run_task(replace(settings, epochs=0.1, resume=True, learning_rate=0.1))
    assert (done.directory / "bothways.json").read_text(encoding="utf-8") == before


@pytest.mark.slow
def test_a_run_that_is_done_gives_no_result_for_other_data(settings, train_file, tmp_path):
    own = tmp_path / "own.jsonl"
    own.write_text(train_file.read_text(encoding="utf-8"), encoding="utf-8")
    run_task(replace(settings, train=own, epochs=0.1))
    own.write_text(train_file.read_text(encoding="utf-8").replace("ran", "sat on a mat"), encoding="utf-8")
    with pytest.raises(InputError, match="examples of train"):
        run_task(replace(settings, train=own, epochs=0.1, resume=True))


def test_lengths_in_the_first_message_are_those_of_texts_not_of_windows(settings, tmp_path):
    rows = [json.dumps({"text": "cat " * number, "label": "xy"[number % 2]}) for number in range(1, 61)]
    (tmp_path / "long.jsonl").write_text("\n".join(rows), encoding="utf-8")
    changed = replace(settings, train=tmp_path / "long.jsonl", dev=tmp_path / "long.jsonl", window=16)
    described = plan.make_plan(changed).task.report.describe()
    assert re.search(r"dev: 60 .* 32, .* 56, .* 62; 46 ", described)


@pytest.mark.slow
def test_a_run_whose_end_failed_is_not_done(settings, monkeypatch):
    """For example, the disk is full and the report cannot be written: a resumed run saves a model."""
    changed = replace(settings, epochs=0.2)
    with monkeypatch.context() as patch, pytest.raises(OSError, match="full"):
        patch.setattr(deliver, "write_report", mock.Mock(side_effect=OSError("full")))
        run_task(changed)
    assert not (changed.out / "model").exists()
    result = run_task(replace(changed, resume=True))
    assert checkpoint.load(result.model_directory).labels == ("canine", "feline")
    assert not (changed.out / "seeds").exists()


@pytest.fixture
def small_disk(tmp_path):
    """A file system of one megabyte, and a function that changes how many."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a file system can only be mounted by root")
    resize = "mount -o remount,size={} {}".format
    yield disk, lambda size: subprocess.run(resize(size, disk).split(), check=True)
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.mark.slow
def test_a_full_disk_is_reported_before_the_training_of_a_seed(settings, small_disk):
    disk, resize = small_disk
    with (disk / "others").open("wb") as file:
        file.write(bytes(900_000))
    changed = replace(settings, epochs=0.2, out=disk / "run")
    with pytest.raises(OSError, match="No space left on device"):
        run_task(changed)
    assert not (disk / "run").exists()
    resize("8m")
    assert run_task(changed).model_directory.exists()


@pytest.mark.slow
def test_a_disk_that_is_full_at_a_seeds_end_loses_no_seed(settings, small_disk, undisturbed, monkeypatch):
    """Another process fills it during training, except for the files of this run."""
    disk, resize = small_disk
    metric, last = Run.log_metrics, max(row["step"] for row in rows_of(undisturbed.directory))

    def fills(self, **row):
        metric(self, **row)
        if (row["split"], row["step"], row["seed"]) == ("heldout", last, 1):
            with (disk / "others").open("wb", buffering=0) as file, suppress(OSError):
                while file.write(bytes(4096)):
                    pass

    resize("8m")
    with monkeypatch.context() as patch:
        patch.setattr(Run, "log_metrics", fills)
        result = run_task(resumable(settings, out=disk / "run"))
    assert (disk / "others").stat().st_size > 1e5  # it was full, and has the room that the checkpoints freed
    assert without_seconds(result.directory) == without_seconds(undisturbed.directory)
    assert result.scores == undisturbed.scores


@pytest.mark.slow
def test_unwritable_weights_are_a_disk_error_and_the_run_can_be_resumed(settings, undisturbed, monkeypatch):
    """Whatever the cause: here, a limit on the size of files."""
    limits, write = resource.getrlimit(resource.RLIMIT_FSIZE), seeds.write_weights

    def limited(*arguments):
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
        try:
            write(*arguments)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    with monkeypatch.context() as patch, pytest.raises(OSError, match="model.safetensors could not be written"):
        patch.setattr(seeds, "write_weights", limited)
        run_task(resumable(settings))
    assert json.loads((settings.out / "bothways.json").read_text(encoding="utf-8"))["status"] == "failed"
    result = run_task(resumable(settings, resume=True))
    assert without_seconds(result.directory) == without_seconds(undisturbed.directory)
    assert result.scores == undisturbed.scores


@pytest.mark.slow
def test_the_frequency_of_checkpoints_does_not_change_the_result(settings, tmp_path):
    def kept(name, every):
        changed = replace(
            settings, epochs=4.0, evaluations_per_epoch=0.5, patience=2, checkpoint_every=every, out=tmp_path / name
        )
        result = run_task(changed)
        return without_seconds(result.directory), result.scores

    assert kept("often", 3) == kept("never", 0)


@pytest.mark.slow
@pytest.mark.parametrize("split", ["dev", "test"])
def test_a_run_does_not_resume_with_other_dev_or_test_rows(split, settings, train_file, tmp_path, monkeypatch):
    files = {name: tmp_path / f"{name}.jsonl" for name in ("dev", "test")}
    lines = train_file.read_text(encoding="utf-8").splitlines()
    for file in files.values():
        file.write_text("\n".join(lines[:30]), encoding="utf-8")
    changed = replace(settings, epochs=0.2, seeds=2, **files)
    train, done = seeds.train, []

    def dies(*arguments):
        if done:
            raise Killed
        done.append(arguments)
        return train(*arguments)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(seeds, "train", dies)
        run_task(changed)
    files[split].write_text("\n".join(lines[30:70]), encoding="utf-8")
    with pytest.raises(InputError, match=f"examples of {split}"):
        run_task(replace(changed, resume=True))


@pytest.mark.slow
def test_a_run_does_not_resume_with_other_labels(settings, train_file, tmp_path, monkeypatch):
    own = tmp_path / "train.jsonl"
    own.write_text(train_file.read_text(encoding="utf-8"), encoding="utf-8")
    metric = Run.log_metrics

    def dies(self, **row):
        if row["step"] == 5:
            raise Killed
        metric(self, **row)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Run, "log_metrics", dies)
        run_task(resumable(settings, train=own))
    swapped = {"feline": "canine", "canine": "feline"}
    rows = [json.loads(line) for line in own.read_text(encoding="utf-8").splitlines()]
    lines = [json.dumps({**row, "label": swapped[row["label"]]}) for row in rows]
    own.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(InputError, match="examples of train"):
        run_task(resumable(settings, train=own, resume=True))
