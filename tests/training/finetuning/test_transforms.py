"""A change of the model for training is one class and one entry in TRANSFORMS: a toy adapter is trained and merged."""

import torch
from torch import nn

from bothways.model.checkpoint import checkpoint
from bothways.model.transforms import ScaleOutputs, Transform, apply_all, finalize_all
from bothways.settings import Classify
from bothways.training.finetuning import plan

RANK = 2


class LowRank(nn.Module):
    """A frozen linear layer plus a product of two narrow matrices."""

    def __init__(self, linear):
        super().__init__()
        self.linear = linear.requires_grad_(False)
        self.down = nn.Parameter(torch.full((RANK, linear.in_features), 0.02))
        self.up = nn.Parameter(torch.zeros(linear.out_features, RANK))

    def forward(self, x):
        return self.linear(x) + x @ self.down.T @ self.up.T


class LowRankOutputs(Transform):
    """The last feed-forward output changes by a product of low rank only."""

    @property
    def stored(self):
        return {"adapter": {"rank": RANK}}

    def apply(self, model):
        feed_forward = model.encoder.layers[-1].feed_forward
        feed_forward.output = LowRank(feed_forward.output)

    def finalize(self, model):
        feed_forward = model.encoder.layers[-1].feed_forward
        added = feed_forward.output
        with torch.no_grad():
            added.linear.weight += added.up @ added.down
        feed_forward.output = added.linear


def test_an_adapter_is_one_entry(monkeypatch, table, checkpoint_of, finetuned):
    words = ["the", "sat", "on", "mat", "and", "ran"]
    rows = [
        {"text": f"{words[row % 6]} {('dog', 'cat')[row % 3 > 0]} {'on ' * (row // 6)}", "label": "ab"[row % 3 > 0]}
        for row in range(120)
    ]
    start = checkpoint_of()
    options = {"model": start, "train": table(rows), "epochs": 10.0}
    monkeypatch.setitem(plan.TRANSFORMS, "adapter", lambda settings, pretrained: LowRankOutputs())
    run = finetuned(Classify, **options)
    assert run.metadata["result"]["mean"] > 0.9
    saved = checkpoint.load(run.result.model_directory)
    assert saved.metadata["adapter"] == {"rank": RANK}
    before, after = checkpoint.load(start).model.state_dict(), saved.model.state_dict()
    changes = {
        layer: after[f"encoder.layers.{layer}.feed_forward.output.weight"]
        - before[f"encoder.layers.{layer}.feed_forward.output.weight"]
        for layer in (1, 2)
    }
    ranks = {layer: int(torch.linalg.matrix_rank(change, rtol=1e-3)) for layer, change in changes.items()}
    assert 1 <= ranks[2] <= RANK < ranks[1]
    predicted = run.predictor.classify(["sat cat", "the dog"])
    assert [one.label for one in predicted] == ["b", "a"]


def test_transforms_are_finalized_in_the_reverse_order(make_model):
    order = []

    class Noted(Transform):
        def __init__(self, name):
            self.name = name

        def apply(self, model):
            order.append(f"apply {self.name}")

        def finalize(self, model):
            order.append(f"finalize {self.name}")

        @property
        def stored(self):
            return {self.name: True}

    transforms = [Noted("first"), Noted("second")]
    apply_all(transforms, make_model())
    assert finalize_all(transforms, make_model()) == {"first": True, "second": True}
    assert order == ["apply first", "apply second", "finalize second", "finalize first"]


def test_scaled_heads_have_the_original_numbers(make_model, global_seed):
    model = make_model("bert", {"classes": 1})
    features_NH = torch.randn(5, model.config.hidden_size)
    with torch.no_grad():
        standardized = model.heads["classes"].output(features_NH)
        ScaleOutputs(mean=40.0, deviation=3.0).finalize(model)
        assert torch.allclose(model.heads["classes"].output(features_NH), standardized * 3 + 40, atol=1e-4)
