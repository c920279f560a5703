"""What BERT is pre-trained on (Devlin 2018, section 3.1): masked words, and next sentences or their order, as batches
and as losses."""

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
from bothways.training.losses import Loss, class_loss, masked_lm_loss


def masked_batch(
    store: TokenStore, step: StepRows, rows: Sequence[int], tokenizer: Tokenizer, rule: MaskRule, *, seed: int,
    rate: float | None = None,
) -> Batch:  # fmt: skip
    """Some rows of a step, with tokens hidden by the rule (or at another rate) and the labels of their pairs."""
    rows_N = np.array(rows, np.int64)
    batch, labels_N = to_batch(store, step.examples, rows_N, tokenizer)
    places_N3 = np.stack(np.broadcast_arrays(step.epoch, step.section, rows_N), axis=1)
    masked = mask_tokens(batch, rule, seed=seed, example_ids=places_N3, rate=rate)
    return replace(masked, labels=torch.from_numpy(labels_N))


def counts(batch: Batch) -> dict[str, int]:
    """Targets of each loss, known from the labels."""
    assert batch.masked_labels is not None
    return {"masked_lm": len(batch.masked_labels), "next_sentence": len(batch)}


def losses(model: Model, batch: Batch) -> dict[str, Loss]:
    """Masked words and next sentence (or sentence order, which the same head learns), added up as in the paper."""
    return losses_of(model, batch, model(batch))


def losses_of(model: Model, batch: Batch, hidden_TH: Tensor) -> dict[str, Loss]:
    """The same from the batch's hidden states."""
    assert batch.masked_positions is not None and batch.masked_labels is not None and batch.labels is not None
    words = model.heads["masked_words"]
    assert isinstance(words, MaskedLMHead)
    table_VE = model.encoder.embeddings.words.weight
    found = {
        "masked_lm": masked_lm_loss(words(hidden_TH[batch.masked_positions]), table_VE, words.bias, batch.masked_labels)
    }
    if "next_sentence" in model.heads:
        first_NH = hidden_TH[batch.first_tokens]
        found["next_sentence"] = class_loss(model.text_scores("next_sentence", first_NH), batch.labels)
    return found
