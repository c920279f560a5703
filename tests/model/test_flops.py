"""FLOPs of a batch, against torch's own count of matrix products."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from bothways.model.losses import forward_losses
from bothways.text.batch import Batch
from bothways.training.pretraining.objectives import PretrainingObjective
from bothways.training.progress import training_flops

LENGTHS = np.array([5, 5, 29, 7, 1 + 16])  # each fills its rectangle, since filling is not counted as work


def batch_of(places):
    ids = np.random.default_rng(0).integers(5, 97, LENGTHS.sum())
    batch = Batch.from_arrays(ids, np.zeros_like(ids), LENGTHS)
    masked = torch.tensor(places)
    labels = torch.zeros(len(LENGTHS), dtype=torch.long)
    return replace(batch, masked_positions=masked, masked_labels=batch.input_ids[masked], labels=labels)


@pytest.mark.parametrize("family", ["bert", "electra", "albert", "roberta"])
def test_flops_of_a_step_equal_those_that_torch_counts(family, make_model):
    model, batch = make_model(family, {"masked_words": 0}).train(), batch_of([1, 7, 11, 40])
    objective = PretrainingObjective("next")
    with FlopCounterMode(display=False) as counter:
        forward_losses(objective)(model, batch)["masked_lm"][0].backward()
    # torch does not count products that are added in place: the gradient of the vocabulary.
    table = model.encoder.embeddings.words.weight
    assert (
        training_flops(model.config, batch, objective.rows(batch)) == counter.get_total_flops() + 2 * 4 * table.numel()
    )


def test_windows_need_fewer_flops_than_whole_texts(make_model):
    model, batch = make_model("modernbert"), batch_of([1])
    near = training_flops(model.config, batch)
    whole = training_flops(model.config.replace(attention_window=0, full_attention_every=1), batch)
    # Of 7 layers, 4 see at most 9 tokens of the texts of 29 and 17.
    assert whole - near == 12 * 24 * 4 * (29 * (29 - 9) + 17 * (17 - 9))
