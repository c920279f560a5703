"""BERT's objectives: masked language model and next sentence (Devlin 2018, section 3.1)."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from bothways.batch import Batch
from bothways.corpus.masking import MaskRule, mask_tokens
from bothways.corpus.sampler import StepRows
from bothways.corpus.sentence_pairs import to_batch
from bothways.corpus.store import TokenStore
from bothways.model.heads import MaskedLMHead
from bothways.model.model import Model
from bothways.tokenizer.tokenizer import Tokenizer
from bothways.training.losses import Loss, classification_loss, masked_lm_loss


def example_batch(store: TokenStore, step: StepRows, rows: Sequence[int], tokenizer: Tokenizer) -> Batch:
    """Rows of a step as token ids, with the labels of their sentence pairs."""
    batch, labels_N = to_batch(store, step.examples, np.array(rows, np.int64), tokenizer)
    return replace(batch, labels=torch.from_numpy(labels_N))


def mask_batch(
    batch: Batch, step: StepRows, rows: Sequence[int], rule: MaskRule, *, seed: int, rate: float | None = None
) -> Batch:
    """Mask the tokens of `example_batch`; rate overrides the rule's mask rate."""
    example_ids_N3 = np.stack(np.broadcast_arrays(step.epoch, step.section, np.array(rows, np.int64)), axis=1)
    return mask_tokens(batch, rule, seed=seed, example_ids=example_ids_N3, rate=rate)


def counts(batch: Batch) -> dict[str, int]:
    """Number of targets of each loss."""
    assert batch.masked_labels is not None and batch.labels is not None
    return {"masked_lm": len(batch.masked_labels), "next_sentence": int((batch.labels >= 0).sum())}


def losses_from_hidden(model: Model, batch: Batch, hidden_TH: Tensor) -> dict[str, Loss]:
    """Losses from the hidden states of the last layer. Next sentence and sentence order share one head;
    examples that are not pairs have no such loss."""
    assert batch.masked_positions is not None and batch.masked_labels is not None and batch.labels is not None
    head = model.heads["masked_words"]
    assert isinstance(head, MaskedLMHead)
    x_ME = head(hidden_TH[batch.masked_positions])
    losses = {"masked_lm": masked_lm_loss(x_ME, model.encoder.embeddings.words.weight, head.bias, batch.masked_labels)}
    if "next_sentence" in model.heads:
        scores_N2 = model.text_scores("next_sentence", hidden_TH[batch.first_tokens])
        losses["next_sentence"] = classification_loss(scores_N2, batch.labels)[0], (batch.labels >= 0).sum()
    return losses
