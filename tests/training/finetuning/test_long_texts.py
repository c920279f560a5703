"""Long texts: some windows per step in training, all in inference, pooled by mean or maximum."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import bothways
from bothways.evaluation import evaluate
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint
from bothways.settings import Classify, Evaluate
from bothways.tasks import forward, text_examples
from bothways.tasks.batch_plan import BATCH_TOKENS, USUAL_STEPS, BatchPlan
from bothways.tasks.classify.scoring import ClassObjective
from bothways.tasks.classify.training import Classification
from bothways.tasks.embed.training import Embedding
from bothways.text.data.split_tables import read_tables
from bothways.training.finetuning.finetune import run as run_task
from bothways.training.finetuning.trials import Trial
from bothways.training.run import Run
from tests.token_windows import ids_of


@pytest.fixture(scope="module")
def folder(make_model, tokenizer, tmp_path_factory):
    """Texts of about 5 windows; each repeats `cat` or `dog`."""
    folder = tmp_path_factory.mktemp("long")
    checkpoint.save(
        Checkpoint(make_model("bert", {"masked_words": 0}, num_hidden_layers=1), tokenizer), folder / "start"
    )
    draw = np.random.default_rng(0)
    lines = []
    for index in range(80):
        words = draw.choice("the and on a b mat ran".split(), int(draw.integers(5, 90))).tolist()
        for place in draw.integers(0, len(words), 1 + len(words) // 8):
            words[place] = ("cat", "dog")[index % 2]
        lines.append(json.dumps({"text": " ".join(words), "label": ("feline", "canine")[index % 2]}))
    (folder / "train.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return folder


@pytest.fixture
def settings(folder, tmp_path):
    return Classify(
        model=folder / "start", train=folder / "train.jsonl", out=tmp_path / "run", epochs=2.0, window=24,
        dropout=0.0, learning_rate=2e-3, dtype="float32", baselines=False, linear_start=False,
    )  # fmt: skip


def task_of(settings):
    return Classification.build(settings, checkpoint.load(settings.model), read_tables(settings))


def test_each_epoch_samples_new_windows_reproducibly(settings):
    whole = task_of(settings).data["train"]
    numbers = whole.windows.num_windows
    assert numbers.max() > 4 and numbers.min() == 1
    passes = [whole.sample_windows(2, seed=3, epoch=epoch) for epoch in range(30)]
    for drawn in passes:
        assert drawn.windows.num_windows.tolist() == np.minimum(numbers, 2).tolist()
        assert drawn.sizes == [sum(map(len, parts)) for parts in ids_of(drawn.windows)]
    row = int(numbers.argmax())
    ids = [ids_of(drawn.windows)[row] for drawn in passes]
    parts = ids_of(whole.windows)[row]
    assert all(places == sorted(places) for places in ([parts.index(one) for one in own] for own in ids))
    assert {tuple(one) for own in ids for one in own} == {tuple(one) for one in parts}  # each has its turn
    again, other = (
        [ids_of(whole.sample_windows(2, seed=seed, epoch=epoch).windows)[row] for epoch in range(30)] for seed in (3, 4)
    )
    assert ids == again and ids != other
    assert whole.sample_windows(0, seed=3, epoch=0) is whole and whole.sample_windows(99, seed=3, epoch=0) is whole


@pytest.mark.slow
def test_training_reads_the_drawn_windows_and_measuring_reads_all(settings, monkeypatch):
    task, read = task_of(settings), {"train": 0, "all": 0}
    losses = ClassObjective.losses
    monkeypatch.setattr(
        ClassObjective, "losses",
        lambda self, model, batch, scores: (
            read.update(train=read["train"] + len(batch)) or losses(self, model, batch, scores)
        ),
    )  # fmt: skip
    monkeypatch.setattr(Trial, "run", lambda self, steps, rate: (self.model, 0.0))  # which reads some, too
    changed = replace(settings, epochs=1.0)
    run_task(changed)
    assert read["train"] == len(task.data["train"].windows)
    seen = []
    monkeypatch.setattr(
        forward,
        "window_vectors",
        lambda model, batch, kept=forward.window_vectors: seen.append(len(batch)) or kept(model, batch),
    )
    task.scoring.outputs(task.initial_checkpoint(0).model, "dev")
    assert sum(seen) == len(task.data["dev"].windows.ranges)


def test_a_step_has_a_minimum_of_long_texts_unless_its_size_is_set(settings):
    task = task_of(replace(settings, window=64))
    plan, sizes = BatchPlan.of(task), [600] * 100
    assert all(len(rows) == text_examples.MIN_STEP_TEXTS for rows in [*plan.step_rows(0, 0, sizes)][:-1])
    named = replace(task, settings=replace(settings, batch_tokens=1200))
    assert {len(rows) for rows in BatchPlan.of(named).step_rows(0, 0, sizes)} == {2}
    short = [*plan.step_rows(0, 0, [8] * 100_000)]
    assert len(short[0]) == BATCH_TOKENS // 8


def test_steps_of_few_texts_are_smaller_and_not_those_of_pairs_with_negatives(settings):
    task = task_of(settings)
    plan = BatchPlan.of(task)
    assert len(next(plan.step_rows(0, 0, [40] * 400))) == 16  # 16 texts, more than 512 tokens
    assert len(next(plan.step_rows(0, 0, [8] * 1000))) == 512 // 8
    assert len(next(plan.step_rows(0, 0, [32] * 4000))) == 3 * 4000 // USUAL_STEPS  # 300 steps in all
    assert Embedding.min_step_tokens == BATCH_TOKENS


@pytest.mark.slow
def test_windows_are_pooled_in_prediction_as_in_training(settings, folder):
    result = run_task(replace(settings, linear_start=True))
    predictor = bothways.load(result.model_directory, dtype="float32")
    task = task_of(settings)
    windows = task.data["dev"].windows
    row = int(windows.num_windows.argmax())
    read = range(windows.bounds[row], windows.bounds[row + 1])
    with torch.inference_mode():
        first_WH = torch.stack([predictor.module(windows.batch([window]))[0] for window in read])
        pooled_H = first_WH.mean(0)
        (expected,) = predictor.module.text_scores("classes", pooled_H[None]).softmax(-1).tolist()
        (trained,) = task.objective.forward(predictor.module, task.data["dev"].batch([row])).softmax(-1).tolist()
    (prediction,) = predictor.classify([task.tables["dev"].texts[row]])
    assert [*prediction.scores.values()] == pytest.approx(expected, abs=1e-5)
    assert trained == pytest.approx(expected, abs=1e-5)
    scores = evaluate.run(Evaluate(model=result.model_directory, file=(folder / "train.jsonl",), dtype="float32"))
    assert scores["accuracy"] > 0.8


class Killed(BaseException):
    """Stands for a process that is gone."""


@pytest.mark.slow
def test_a_killed_run_draws_the_same_windows_again(settings, tmp_path, monkeypatch):
    changed = replace(settings, dropout=0.1, checkpoint_every=2, batch_tokens=256)
    whole = run_task(replace(changed, out=tmp_path / "whole"))
    metric, written = Run.log_metrics, []

    def dies(run, **row):
        written.append(row)
        if len(written) > 9:
            raise Killed
        metric(run, **row)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Run, "log_metrics", dies)
        run_task(changed)
    again = run_task(replace(changed, resume=True))
    assert losses_of(again) == losses_of(whole) and len(losses_of(whole)) > 9
    state = checkpoint.load(again.model_directory).model.state_dict()
    assert all(
        torch.equal(value, state[name])
        for name, value in checkpoint.load(whole.model_directory).model.state_dict().items()
    )


def losses_of(result):
    lines = (result.directory / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [(row["step"], row["split"], row["loss"]) for row in map(json.loads, lines)]
