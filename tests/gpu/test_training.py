"""Training on a GPU: seeds, resumption, loss scaling, optimizers, checkpoints that move between CPU and GPU."""

import os
import subprocess
import sys
import warnings
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

import bothways
from bothways.model.adapters.install import install, merge
from bothways.model.adapters.spec import AdapterSpec
from bothways.model.families import FAMILIES
from bothways.settings import Classify, Distill, Pretrain
from bothways.tasks.forward import checkpointed
from bothways.training import optimizer as precision
from bothways.training.loop import fit
from bothways.training.optimizer import Optimizer
from bothways.training.run import read_metrics
from bothways.training.run_checkpoints import Checkpoints, TrainingState
from bothways.training.schedule import TrainingOptions
from bothways.training.step import StepQueue
from bothways.training.trainer import Trainer
from bothways.training.transfers import upload
from tests.gpu.oracle import (
    HALVES,
    LOSSES,
    OBJECTIVE,
    PRETRAINING_HEADS,
    apart,
    batch_of,
    copy_to,
    exact,
    flat,
    gradients,
    hidden_states,
    with_labels,
)

pytestmark = pytest.mark.gpu

SENTENCES = ["the cat sat on the mat", "a dog ran and ran", "the dogs sat on a mat and the cat ran", "cats and dogs"]
CPU = torch.device("cpu")


class Interrupted(Exception):
    """Ends a run after a step, as a lost machine would."""


def steps(first):
    """Two micro-batches of unequal size for each step."""
    for step in range(first, 10_000):
        lengths = np.random.default_rng(step).integers(1, 18, 11).tolist()
        yield [with_labels(batch_of(part, seed=step)) for part in (lengths[:4], lengths[4:])]


@pytest.fixture
def small_model(make_model):
    """A model with the heads of pre-training, by its dropout."""

    def make(dropout):
        rates = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), dropout)
        return make_model("bert", PRETRAINING_HEADS, **rates)

    return make


def trained(
    model, device, *, losses=LOSSES, dtype=torch.float32, folder=None, resume=False, stop_at=0, reads_late=None,
    **options,
):  # fmt: skip
    """The rows of metrics of six steps of pre-training, from a checkpoint in `folder` if there is one."""
    rows = []

    def record(row):
        rows.append(row)
        if row["step"] == stop_at:
            raise Interrupted

    checkpoints = Checkpoints(folder)
    training = {"steps": 6, "learning_rate": 1e-2, "checkpoint_every": 2, "seed": 3, **options}
    try:
        fit(
            model, losses, OBJECTIVE.counts, steps, TrainingOptions(device=device, dtype=dtype, **training),
            evaluate=lambda: {"loss": 1.0}, record=record, checkpoints=checkpoints,
            start=checkpoints.load_latest(dtype) if resume else None, reads_late=reads_late,
        )  # fmt: skip
    except Interrupted:
        assert stop_at
    return [row for row in rows if row["split"] == "train"]


def losses_of(rows):
    return [(row["step"], row["loss"], row["norm"]) for row in rows if row["split"] == "train"]


def assert_same_weights(model, other):
    for (name, value), expected in zip(model.state_dict().items(), other.state_dict().values(), strict=True):
        assert torch.equal(value, expected), name


# --- one step ---------------------------------------------------------------------------------------------------------


def test_steps_of_the_optimizer_equal_those_of_a_cpu(gpu, make_model):
    models = [copy_to(make_model("bert", PRETRAINING_HEADS), device) for device in (gpu, CPU)]
    before = {name: value.clone() for name, value in models[1].state_dict().items()}
    norms = []
    for model in models:
        optimizer = Optimizer(model, learning_rate=1e-3)
        for step in range(3):
            generator = torch.Generator().manual_seed(step)
            for value in model.parameters():
                value.grad = torch.randn(value.shape, generator=generator).to(value.device)
            norms.append(float(optimizer.step(1.0, max_grad_norm=1.0)))
    assert norms[:3] == pytest.approx(norms[3:], rel=1e-5)
    for (name, value), expected in zip(models[0].state_dict().items(), models[1].state_dict().values(), strict=True):
        assert float((value.cpu() - expected).abs().max()) < 1e-5, name
        assert float((expected - before[name]).abs().max()) > 1e-4, name  # there was a step


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_losses_of_a_run_are_those_of_a_cpu(dtype, gpu, small_model):
    model = small_model(0.0)
    expected = trained(copy_to(model, CPU), CPU)
    actual = trained(copy_to(model, CPU), gpu, dtype=dtype)
    tolerance = 1e-3 if dtype is torch.float32 else 3e-2
    assert [row["loss"] for row in actual] == pytest.approx([row["loss"] for row in expected], rel=tolerance)
    assert expected[-1]["loss"] < expected[0]["loss"]


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
def test_recomputed_activations_have_the_same_gradient_with_the_same_dropout(
    dtype, gpu, make_model, deterministic, global_seed
):  # fmt: skip
    """Activation checkpointing restores the random state of the GPU."""
    model = make_model("bert", hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.2)
    model, batch = copy_to(model, gpu, dtype).train(), batch_of().to(gpu)
    weights = torch.randn(batch.num_tokens, 24, generator=torch.Generator().manual_seed(0)).to(gpu, dtype)
    results = []
    for encode in (model, partial(checkpointed, model)):
        torch.manual_seed(5)
        model.zero_grad()
        (encode(batch) * weights).sum().backward()
        results.append({name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None})
    assert results[0].keys() == results[1].keys()
    assert all(torch.equal(value, results[1][name]) for name, value in results[0].items())


# --- seeds and resumption ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
def test_dropout_follows_the_seed_and_the_step(dtype, gpu, deterministic, small_model):
    rows = [trained(small_model(0.1), gpu, dtype=dtype, seed=seed, steps=4) for seed in (3, 3, 4)]
    assert losses_of(rows[0]) == losses_of(rows[1]) and len(rows[0]) == 4
    assert losses_of(rows[0])[0] != losses_of(rows[2])[0]
    without = trained(small_model(0.0), gpu, dtype=dtype, steps=1)
    assert losses_of(rows[0])[0] != losses_of(without)[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_run_that_is_resumed_ends_with_the_same_bits(dtype, gpu, deterministic, tmp_path, small_model):
    options = {"dtype": dtype}
    whole, resumed = small_model(0.1), small_model(0.1)
    expected = trained(whole, gpu, **options)
    first = trained(small_model(0.1), gpu, **options, folder=tmp_path, stop_at=3)
    second = trained(resumed, gpu, **options, folder=tmp_path, resume=True)
    assert [row["step"] for row in second] == [3, 4, 5, 6]
    assert losses_of(first[:2] + second) == losses_of(expected)
    assert_same_weights(resumed, whole)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_pre_training_is_reproducible_and_resumes_bit_for_bit(dtype, gpu, needs_cuda, deterministic, tmp_path):
    """By the public call, with dropout, a vocabulary that is learned, and evaluation."""
    if dtype == "bfloat16":
        needs_cuda("in bfloat16 it takes a CPU four times as long, and tests nothing more")
    (tmp_path / "text.txt").write_text("\n\n".join([*SENTENCES] * 20), encoding="utf-8")
    settings = Pretrain(
        corpus=(tmp_path / "text.txt",), out=tmp_path / "whole", model="tiny", vocab_size=80, steps=4, dropout=0.1,
        batch_tokens=128, max_length=32, evaluate_every=2, checkpoint_every=2, heldout_examples=4, processes=1,
        token_store=tmp_path / "store", device=str(gpu), dtype=dtype, deterministic=True, family="bert",
    )  # fmt: skip

    def stop(row):
        if row["step"] == 3:
            raise Interrupted

    bothways.train(settings)
    other = replace(settings, out=tmp_path / "stopped")
    with pytest.raises(Interrupted):
        bothways.train(other, callbacks=stop)
    bothways.train(replace(other, resume=True))
    rows = [read_metrics(run.out) for run in (settings, other)]
    assert losses_of(rows[0]) == losses_of(rows[1]) and len(losses_of(rows[0])) == 4
    weights = [bothways.load(run.out, dtype="float32", device="cpu").module for run in (settings, other)]
    assert_same_weights(*weights)


@pytest.mark.slow
def test_the_command_with_deterministic_kernels_needs_no_environment_variable(gpu, needs_cuda, tmp_path):
    """In a process of its own, since cuBLAS reads CUBLAS_WORKSPACE_CONFIG once."""
    needs_cuda("a CPU has deterministic kernels alone")
    (tmp_path / "text.txt").write_text("\n\n".join([*SENTENCES] * 20), encoding="utf-8")
    command = [
        sys.executable, "-m", "bothways", "pretrain", str(tmp_path / "text.txt"), "-o", str(tmp_path / "run"),
        "--model", "tiny", "--steps", "2", "--vocab-size", "80", "--batch-tokens", "128", "--max-length", "32",
        "--device", str(gpu), "--deterministic", "--dtype", "float32",
    ]  # fmt: skip
    environment = {name: value for name, value in os.environ.items() if name != "CUBLAS_WORKSPACE_CONFIG"}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert len(losses_of(read_metrics(tmp_path / "run"))) == 2


def rows_of(numbers):
    animals = ["dog", "cat"]
    texts = [f"{SENTENCES[row % 4]} {animals[row % 2]} {row}" for row in numbers]
    return [{"text": text, "label": animals[row % 2]} for row, text in zip(numbers, texts, strict=True)]


def classify_settings(tmp_path, name, gpu, model, **options):
    small = {"epochs": 2.0, "batch_tokens": 256, "learning_rate": 5e-3, "baselines": False, "linear_start": False}
    splits = {"train": rows_of(range(40)), "dev": rows_of(range(40, 52)), "test": rows_of(range(52, 64))}
    defaults = {**small, **splits, "dtype": "float32", "device": str(gpu)}
    return Classify(model=model, out=tmp_path / name, **{**defaults, **options})


def finetuned(*arguments, **options):
    return bothways.train(classify_settings(*arguments, **options))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_fine_tuning_twice_gives_the_same_losses_and_weights(dtype, gpu, deterministic, checkpoint_of, tmp_path):
    start = checkpoint_of()
    runs = [finetuned(tmp_path, f"run-{run}", gpu, start, dtype=dtype, dropout=0.1) for run in range(2)]
    rows = [losses_of(read_metrics(run.directory)) for run in runs]
    assert rows[0] == rows[1] and len(rows[0]) > 3
    assert_same_weights(*(bothways.load(run.model_directory, dtype="float32", device="cpu").module for run in runs))


# --- loss scaling -----------------------------------------------------------------------------------------------------


def test_an_overflow_in_float16_skips_the_step_and_halves_the_scale(gpu, monkeypatch, small_model):
    monkeypatch.setattr(precision, "INITIAL_SCALE", 2.0**22)  # too much for the gradients of any of these steps
    monkeypatch.setattr(precision, "GROWTH_INTERVAL", 4)
    seen = []

    def losses(module, batch):
        seen.append(module.state_dict()["encoder.layers.1.attention.qkv.weight"].clone())
        return LOSSES(module, batch)

    rows = trained(small_model(0.1), gpu, losses=losses, dtype=torch.float16, steps=24, learning_rate=1e-3)
    skipped, scales = [row["skipped"] for row in rows], [row["scale"] for row in rows]
    assert skipped[0] and scales[0] == 2.0**22 and not all(skipped)
    assert all(np.isfinite([row["loss"] for row in rows]))
    good = 0
    for index, was_skipped in enumerate(skipped[:-1]):
        assert torch.equal(seen[2 * index], seen[2 * index + 2]) == was_skipped  # two micro-batches a step
        good = 0 if was_skipped else good + 1
        factor = 0.5 if was_skipped else 2.0 if good % 4 == 0 else 1.0
        assert scales[index + 1] == scales[index] * factor
        good %= 4


def test_training_in_float16_learns(gpu, small_model):
    model = small_model(0.0)
    rows = trained(model, gpu, dtype=torch.float16, steps=20, learning_rate=3e-3)
    losses = [row["loss"] for row in rows]
    assert all(np.isfinite(losses)) and np.mean(losses[-5:]) < np.mean(losses[:5])
    assert next(model.parameters()).dtype is torch.float32 and next(model.parameters()).device == CPU


# --- between CPU and GPU ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("to_gpu", [True, False], ids=["CPU to GPU", "GPU to CPU"])
def test_a_run_moves_to_another_device(to_gpu, gpu, tmp_path, small_model):
    devices = (CPU, gpu) if to_gpu else (gpu, CPU)
    whole, moved = small_model(0.0), small_model(0.0)
    options = {"learning_rate": 1e-3}
    expected = trained(whole, CPU, **options)
    trained(small_model(0.0), devices[0], **options, folder=tmp_path, stop_at=3)
    rows = trained(moved, devices[1], **options, folder=tmp_path, resume=True)
    assert [row["step"] for row in rows] == [3, 4, 5, 6]
    assert [row["loss"] for row in rows] == pytest.approx([row["loss"] for row in expected[2:]], rel=1e-3)
    assert apart(flat(moved.state_dict()), flat(whole.state_dict())) < 1e-3
    assert {value.device.type for value in moved.parameters()} == {"cpu"}


def test_a_model_that_was_trained_on_a_gpu_gives_the_same_on_a_cpu(gpu, checkpoint_of, tmp_path):
    run = finetuned(tmp_path, "run", gpu, checkpoint_of(), linear_start=True)
    there, here = (bothways.load(run.model_directory, dtype="float32", device=str(device)) for device in (gpu, CPU))
    assert there.device.startswith(gpu.type) and here.device == "cpu"
    texts = [row["text"] for row in rows_of(range(12))]
    for one, other in zip(there.classify(texts), here.classify(texts), strict=True):
        assert one.label == other.label and one.scores == pytest.approx(other.scores, abs=1e-4)
    there.save(tmp_path / "saved")
    again = bothways.load(tmp_path / "saved", dtype="float32", device="cpu")
    assert_same_weights(again.module, here.module)


def test_a_run_of_fine_tuning_that_began_on_a_gpu_goes_on_on_a_cpu(gpu, checkpoint_of, tmp_path):
    start, options = checkpoint_of(), {"checkpoint_every": 2, "dropout": 0.0, "evaluations_per_epoch": 1.0}
    whole = finetuned(tmp_path, "whole", CPU, start, **options)

    def stop(row):
        if row["split"] == "train" and row["step"] == 3:
            raise Interrupted

    settings = classify_settings(tmp_path, "moved", gpu, start, **options)
    with pytest.raises(Interrupted):
        bothways.train(settings, callbacks=stop)
    moved = bothways.train(replace(settings, device="cpu", resume=True))
    rows = [losses_of(read_metrics(run.directory)) for run in (whole, moved)]
    assert [step for step, *_ in rows[0]] == [step for step, *_ in rows[1]]
    for one, other in zip(*rows, strict=True):
        assert other[1:] == pytest.approx(one[1:], rel=2e-2, abs=1e-3)


# --- adapters, teachers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["bert", "modernbert", "longformer"])
def test_lora_that_is_trained_on_a_gpu_and_merged_equals_unmerged(family, gpu, make_model):
    model = make_model(family, {"masked_words": 0})
    install(model, AdapterSpec("lora", rank=3, alpha=5.0), FAMILIES[family])
    model.to(gpu).train()
    batch, frozen = batch_of(), model.encoder.embeddings.words.weight.detach().clone()
    optimizer = Optimizer(model, learning_rate=1e-2)
    for _ in range(3):
        gradients(model, batch)
        optimizer.step(1.0)
    before = hidden_states(model.eval(), batch)
    merge(model)
    assert torch.equal(model.encoder.embeddings.words.weight, frozen)
    assert float((before - hidden_states(copy_to(make_model(family), gpu), batch)).abs().max()) > 1e-2
    assert float((hidden_states(model, batch) - before).abs().max()) < 1e-4
    assert float((hidden_states(exact(model), batch) - before).abs().max()) < 1e-4


@pytest.mark.parametrize("kind", ["lora", "bitfit"])
def test_an_adapter_that_is_trained_on_a_gpu_is_read_on_a_cpu(kind, gpu, checkpoint_of, tmp_path):
    run = finetuned(tmp_path, "run", gpu, checkpoint_of(), adapter=kind)
    texts = [row["text"] for row in rows_of(range(12))]
    there, here = (bothways.load(run.model_directory, dtype="float32", device=str(device)) for device in (gpu, CPU))
    for one, other in zip(there.classify(texts), here.classify(texts), strict=True):
        assert one.label == other.label and one.scores == pytest.approx(other.scores, abs=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_distillation_on_a_gpu_has_the_losses_of_a_cpu(dtype, gpu, checkpoint_of, tmp_path):
    teacher = checkpoint_of(heads={"masked_words": 0}, pooling="mean", normalized=True)
    (tmp_path / "text.txt").write_text("\n\n".join([*SENTENCES] * 20), encoding="utf-8")
    weights = {name: 1.0 for name in ("relations", "hidden_states", "logits", "vectors")}
    rows = []
    for device, number_format in ((gpu, dtype), (CPU, "float32")):
        settings = Distill(
            teacher=teacher, corpus=(tmp_path / "text.txt",), out=tmp_path / device.type / number_format, layers=2,
            steps=1, batch_tokens=256, max_length=32, heldout_examples=8, token_store=tmp_path / "store", processes=1,
            dtype=number_format, device=str(device), **weights,
        )  # fmt: skip
        if not settings.out.exists():
            bothways.train(settings)
        rows.append(next(row for row in read_metrics(settings.out) if row["split"] == "train"))
    losses = [{name: row[name] for name in rows[1] if name.endswith("loss") or name in weights} for row in rows]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3 if dtype == "float32" else 0.1) and len(losses[0]) > 3


# --- without waits ----------------------------------------------------------------------------------------------------


@contextmanager
def no_waits(device):
    """In this context it is an error to wait for the work of a GPU, as far as torch sees it."""
    if device.type != "cuda":
        yield
        return
    with warnings.catch_warnings():  # torch warns that it does not see every wait
        warnings.simplefilter("ignore")
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_steps_of_a_training_wait_only_for_the_numbers_of_the_step_before(dtype, gpu, small_model):
    """On a CPU tests/training/test_loop.py and test_reading_late.py look for waits, on tensors without data."""
    options = TrainingOptions(steps=10, learning_rate=1e-3, device=gpu, dtype=dtype)
    trainer = Trainer(small_model(0.1), LOSSES, OBJECTIVE.counts, options)
    progress = TrainingState()
    queue = StepQueue(trainer, progress.scale, reads_late=True)
    batches = steps(0)
    for _ in range(2):  # the first steps load kernels and reserve memory
        queue.add(progress, next(batches))
    progress, _, _ = queue.read(progress)

    rows = []
    with no_waits(gpu):
        for _ in range(4):
            queue.add(progress, next(batches))
            progress, row, _ = queue.read(progress)
            rows.append(row)
    assert progress.step == 5
    assert all(np.isfinite([row["loss"], row["norm"]]).all() for row in rows)


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
def test_reading_late_changes_no_bit(dtype, gpu, deterministic, small_model):
    models = [small_model(0.1) for _ in range(2)]
    rows = [
        trained(model, gpu, dtype=dtype, reads_late=late) for model, late in zip(models, (False, True), strict=True)
    ]
    assert losses_of(rows[0]) == losses_of(rows[1]) and len(rows[0]) == 6
    assert_same_weights(*models)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_gradient_that_is_not_finite_changes_nothing(dtype, gpu, small_model):
    model = copy_to(small_model(0.0), gpu)
    optimizer = Optimizer(model, learning_rate=1e-2)
    model.to(dtype)

    def step(bad, unread_norm=None):
        for number, value in enumerate(model.parameters()):
            value.grad = torch.full_like(value, float("nan") if bad and number == 3 else 0.1)
        return optimizer.step(1.0, unread_norm=unread_norm)

    norm = step(False)
    state = {name: value.clone() for name, value in optimizer.state().items()}
    weights = [value.clone() for value in model.parameters()]
    bad = step(True)
    step(False, unread_norm=bad)
    assert norm.isfinite() and not bad.isfinite()
    assert all(torch.equal(value, state[name]) for name, value in optimizer.state().items())
    assert all(torch.equal(value, before) for value, before in zip(model.parameters(), weights, strict=True))


def test_uploaded_batches_are_whole_when_they_are_read(gpu):
    """Each is freed while the GPU still has other work before it, so its memory must not go to the next one."""
    work = torch.eye(1024, device=gpu)
    texts = [batch_of([400] * 20, seed=seed) for seed in range(12)]
    expected = [int((batch.input_ids * torch.arange(batch.num_tokens)).sum()) for batch in texts]
    sums = []
    for batch in texts:
        uploaded = upload(batch, gpu)
        for _ in range(3):
            work = torch.nn.functional.normalize(work @ work)
        sums.append((uploaded.input_ids * torch.arange(uploaded.num_tokens, device=gpu)).sum())
        del uploaded
    assert [int(value) for value in sums] == expected
