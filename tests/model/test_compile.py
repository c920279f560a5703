"""Compiled layers give the losses of plain ones for all shapes, with a single compilation."""

import shutil

import numpy as np
import pytest
import torch

from bothways.model import global_attention, kernels, layout
from bothways.model.config import RandomBlocksConfig
from bothways.text.batch import Batch
from bothways.training.pretraining.setup import compile_layers


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("g++"), reason="torch.compile needs a C++ compiler")
@pytest.mark.filterwarnings("default")  # torch.compile uses deprecated parts of torch
def test_compiled_layers_give_the_losses_and_gradients_of_plain_ones(make_model, monkeypatch):
    for owner, name in ((layout.Bucketed, "attend"), (layout.Varlen, "attend"), (kernels, "apply_dropout")):
        monkeypatch.setattr(owner, name, getattr(owner, name))  # restored afterwards
    results = []
    for compiled in (False, True):
        model = make_model("bert", {"masked_words": 0}, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
        model.train()
        if compiled:
            compile_layers(model)
        for lengths in ([5, 5, 9], [3, 11, 11, 17], [2], [7, 8, 9, 10, 23]):
            ids = np.random.default_rng(sum(lengths)).integers(5, 97, sum(lengths))
            torch.manual_seed(1)
            vectors = model(Batch.from_arrays(ids, np.zeros_like(ids), np.array(lengths)))
            model.zero_grad()
            (vectors * torch.arange(24)).sum().backward()
            results.append((compiled, vectors.detach(), model.encoder.layers[1].attention.qkv.weight.grad.clone()))
    plain, fast = results[:4], results[4:]
    for (_, vectors, gradient), (_, vectors_fast, gradient_fast) in zip(plain, fast, strict=True):
        assert torch.allclose(vectors, vectors_fast, atol=1e-5)
        assert torch.allclose(gradient, gradient_fast, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("g++"), reason="torch.compile needs a C++ compiler")
@pytest.mark.filterwarnings("default")
def test_layers_with_blocks_of_their_own_share_one_compilation(make_model, monkeypatch):
    from torch._dynamo.utils import counters

    for owner, name in (
        (layout.Bucketed, "attend"), (layout.Varlen, "attend"), (kernels, "apply_dropout"),
        (global_attention.Pattern, "attend"),
        (global_attention.RandomBlockAttention, "attend_in_blocks"),
        (global_attention.GlobalAttention, "attend_globally"),
    ):  # fmt: skip
        monkeypatch.setattr(owner, name, getattr(owner, name))  # restored afterwards
    compiled = []
    for layers in (2, 3):
        torch._dynamo.reset()
        counters.clear()
        model = make_model(
            "big_bird", sparse_attention=RandomBlocksConfig(size=2, num_random=1), num_hidden_layers=layers
        ).train()
        compile_layers(model)
        for lengths in ([30, 20], [17, 23, 5]):
            ids = np.random.default_rng(sum(lengths)).integers(5, 97, sum(lengths))
            model(Batch.from_arrays(ids, np.zeros_like(ids), np.array(lengths))).sum().backward()
        compiled.append(counters["stats"]["unique_graphs"])
    assert compiled[0] == compiled[1] > 0
