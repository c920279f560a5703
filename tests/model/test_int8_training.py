"""Fake int8 layers: equal to deployed ones, gradients of the straight-through estimator, and runs that train them."""

import json
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import bothways
from bothways.base.errors import InputError
from bothways.base.log import messages_to
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.int8 import Int8Linear, is_int8, round_table
from bothways.model.int8_training import (
    FakeInt8Linear,
    Inputs,
    calibrate_fake_int8,
    candidate,
    deploy_fake_int8,
    fake_layers,
    install_fake_int8,
)
from bothways.settings import Classify
from bothways.text.batch import Batch
from bothways.training.run import Run
from bothways.training.signals import Stopped

TEXTS = ["the cat sat on the mat", "a dog", "dogs ran and ran and sat on the mat , the cat", "b"]
WORDS = ["the", "sat", "on", "mat", "and", "ran"]


@pytest.mark.parametrize("strength", [0.0, 0.7])
def test_a_fake_layer_equals_the_int8_layer(strength, global_seed):
    torch.manual_seed(0)
    linear, x_TI = nn.Linear(48, 30), torch.randn(90, 48) * torch.linspace(0.1, 3, 48)
    seen = Inputs(x_TI.amin(0), x_TI.amax(0), [x_TI])
    fake = FakeInt8Linear.of(linear)
    assert torch.equal(fake(x_TI), linear(x_TI))  # off
    fake.turn_on(candidate(linear, seen, strength).linear)
    with torch.no_grad():
        fake.weight.mul_(1.3)  # training goes on after the calibration
    x_TI = torch.cat([x_TI, 5 * x_TI[:9]])  # beyond the range too
    exact, deployed = F.linear(x_TI, fake.weight, fake.bias), fake.deployed()
    assert torch.allclose(fake(x_TI), deployed(x_TI), atol=1e-5)
    assert 1e-4 < (fake(x_TI) - exact)[:90].abs().max() < 0.5


def test_gradients_pass_rounding_and_stop_beyond_the_range(global_seed):
    torch.manual_seed(0)
    linear, x_TI = nn.Linear(6, 4), torch.randn(20, 6)
    fake = FakeInt8Linear.of(linear)
    fake.turn_on(candidate(linear, Inputs(x_TI.amin(0), x_TI.amax(0), [x_TI]), 0.0).linear)
    inside = x_TI.detach().requires_grad_()
    g = torch.randn(20, 4)
    fake(inside).backward(g)
    rounded_OI = fake.deployed().weight_int8.float() * fake.deployed().weight_scale[:, None]
    assert torch.allclose(inside.grad, g @ rounded_OI, atol=1e-5)
    assert torch.allclose(fake.weight.grad, g.T @ x_TI, atol=0.2)  # of the rounded inputs
    outside = (100 * x_TI.sign()).requires_grad_()
    fake(outside).backward(g)
    assert not outside.grad.any()


def test_scales_keep_their_precision_in_bf16(global_seed):
    fake = FakeInt8Linear.of(nn.Linear(6, 4))
    fake.input_factor.fill_(1.2345678)
    moved = fake.to(torch.bfloat16)
    assert moved.weight.dtype is torch.bfloat16 and moved.input_factor.dtype is torch.float32
    assert float(moved.input_factor[0]) == pytest.approx(1.2345678, abs=1e-7) and moved.is_on.dtype is torch.bool


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "modernbert"])
def test_a_model_with_fake_layers_equals_the_deployed_model(family, make_model, tokenizer):
    model = make_model(family, {"classes": 2})
    batch = Batch.from_encodings(tokenizer.encode_many(TEXTS))
    with torch.no_grad():
        exact = model(batch)
    install_fake_int8(model)
    with torch.no_grad():
        assert torch.allclose(model(batch), exact, atol=1e-5)
        calibrate_fake_int8(model, lambda: model(batch))
        round_table(model)
        fake = model(batch)
        deploy_fake_int8(model)
        assert is_int8(model) and not fake_layers(model)
        deployed = model.eval()(batch)
    assert torch.allclose(deployed, fake, atol=1e-5 * float(fake.abs().max()))
    assert 1e-3 < (fake - exact).abs().max() < 0.6 * exact.abs().max()


# --- runs -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def settings(make_model, tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("int8")
    checkpoint.save(Checkpoint(make_model("bert", {"masked_words": 0}), tokenizer), folder / "start")
    texts = [f"{WORDS[row % 6]} {('dog', 'cat')[row % 2]} {'on ' * (row // 6)}" for row in range(120)]
    rows = [{"text": text, "label": "ab"["cat" in text]} for text in texts]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return Classify(
        model=folder / "start", train=folder / "rows.jsonl", out=folder / "run", quantize="int8", epochs=5.0,
        baselines=False, learning_rate=5e-3, dropout=0.0, dtype="float32", batch_tokens=256,
    )  # fmt: skip


@pytest.fixture(scope="module")
def result(settings):
    messages = []
    with messages_to(messages.append):
        found = bothways.train(settings)
    return found, messages


def test_the_score_of_int8_without_training_is_logged(result):
    _, messages = result
    assert any("in int8 without training" in line for line in messages)


def test_a_run_with_quantize_saves_an_int8_model_that_scores_as_it_was_measured(result, settings):
    found, _ = result
    loaded = checkpoint.load(found.model_directory)
    assert sum(isinstance(part, Int8Linear) for part in loaded.model.modules()) == 12
    assert loaded.metadata["quantize"] == {"method": "int8, trained"}
    predictor = bothways.load(found.model_directory, dtype="float32")
    scores = bothways.evaluate(
        bothways.settings.Evaluate(model=found.model_directory, file=settings.train, dtype="float32")
    )
    assert scores["accuracy"] > 0.8 and predictor.labels == ("a", "b")


def test_a_stopped_run_goes_on_to_the_same_int8_model(result, settings, tmp_path, monkeypatch):
    log_metrics, rows = Run.log_metrics, []

    def log_then_stop(self, **row):
        log_metrics(self, **row)
        if row["split"] == "train" and row["step"] > self.metadata["steps"]:
            rows.append(row)
        if len(rows) == 4:
            raise Stopped("stopped")

    own = replace(settings, out=tmp_path / "run", checkpoint_every=2)
    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(Run, "log_metrics", log_then_stop)
        bothways.train(own)
    again = bothways.train(replace(own, resume=True))
    file = "int8.safetensors"
    assert (again.model_directory / file).read_bytes() == (result[0].model_directory / file).read_bytes()


def test_quantize_and_an_adapter_exclude_each_other(settings, tmp_path):
    with pytest.raises(InputError, match="quantize changes the weights, which adapter leaves as they are"):
        replace(settings, adapter="lora", out=tmp_path / "run")
