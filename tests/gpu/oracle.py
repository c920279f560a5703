"""Random texts for small models, and what a GPU's results are compared with: float64 on the CPU."""

from copy import deepcopy
from dataclasses import replace

import numpy as np
import torch

from bothways.model.losses import forward_losses, masked_lm_loss
from bothways.text.batch import Batch
from bothways.training.pretraining.objectives import PretrainingObjective

OBJECTIVE = PretrainingObjective("next")
LOSSES, PRETRAINING_HEADS = forward_losses(OBJECTIVE), {"masked_words": 0, "next_sentence": 2}
HALVES = [torch.bfloat16, torch.float16]
LENGTHS = (29, 13, 1, 13, 7, 2, 41, 60)  # unsorted, equal ones apart, one token alone


def batch_of(lengths=LENGTHS, seed=1):
    """Texts of these lengths, whose ids do not depend on the other texts: text i of n tokens is always the same."""
    texts = [
        np.random.default_rng([seed, index, length]).integers(5, 97, length) for index, length in lengths_of(lengths)
    ]
    ids = np.concatenate(texts)
    return Batch.from_arrays(ids, np.zeros_like(ids), np.array([len(text) for text in texts]))


def lengths_of(lengths):
    """(index, length) of each text: lengths, or such pairs."""
    return [pair if isinstance(pair, tuple) else (index, pair) for index, pair in enumerate(lengths)]


def with_labels(batch):
    """A batch of pre-training: the ids of every fourth token, and whether a text is longer than ten tokens."""
    places = torch.arange(0, batch.num_tokens, 4)
    labels = (batch.lengths > 10).long()
    return replace(batch, masked_positions=places, masked_labels=batch.input_ids[places], labels=labels)


def exact(model):
    """A copy in float64 on the CPU."""
    return deepcopy(model).cpu().double()


def copy_to(model, device, dtype=torch.float32):
    return deepcopy(model).to(device, dtype)


def hidden_states(model, batch):
    """[T, H], float64 on the CPU."""
    device = next(model.parameters()).device
    with torch.no_grad():
        return model(batch.to(device)).double().cpu()


def gradients(model, batch):
    """The gradient of each parameter, float64 on the CPU: of the loss of masked words and a weighted sum of states."""
    device = next(model.parameters()).device
    hidden_TH = model(batch.to(device))
    generator = torch.Generator().manual_seed(3)
    places = torch.arange(0, batch.num_tokens, 7)
    words = torch.randint(5, 97, places.shape, generator=generator)
    weights_TH = torch.randn(hidden_TH.shape, generator=generator, dtype=torch.float64).to(hidden_TH)
    head, table = model.heads["masked_words"], model.encoder.embeddings.words.weight
    loss, _ = masked_lm_loss(head(hidden_TH[places.to(device)]), table, head.bias, words.to(device))
    model.zero_grad()
    (loss + (hidden_TH * weights_TH).sum()).backward()
    return {name: value.grad.double().cpu() for name, value in model.named_parameters() if value.grad is not None}


def cosines(actual, expected):
    """The cosine of each row of two matrices."""
    return torch.nn.functional.cosine_similarity(actual.double().cpu(), expected.double().cpu(), dim=-1)


def apart(actual, expected):
    """The norm of the difference, relative to that of the expected value."""
    actual, expected = actual.detach().double().cpu(), expected.detach().double().cpu()
    return float((actual - expected).norm() / expected.norm())


def flat(tensors):
    return torch.cat([value.flatten() for value in tensors.values()])
