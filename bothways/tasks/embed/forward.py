"""Forward pass of sentence embeddings: from a batch of pairs to a vector per text.

Letters: W windows of texts, T tokens, H hidden size; N pairs of R texts each.
"""

import torch
from torch import Tensor

from bothways.model.model import Model
from bothways.model.rows import pooled_rows, read_states
from bothways.tasks.embed.examples import PairBatch
from bothways.tasks.forward import checkpointed, split_batch
from bothways.tasks.pooling import pool_rows, pool_windows
from bothways.tasks.text_examples import MAX_PAIR_TOKENS
from bothways.text.batch import Batch


def text_vectors(model: Model, batch: PairBatch, pooling: str, max_tokens: int = MAX_PAIR_TOKENS) -> Tensor:
    """A vector per text as Predictor.embed pools it, not normalized: [R, N, H], float32.

    A batch of more than max_tokens is encoded with activation checkpointing. The loss still compares all vectors at
    once, so a step of any size has all its in-batch negatives (the same result as GradCache, Gao 2021).
    """
    assert batch.own_rows is not None and batch.text_of_window is not None and batch.labels is not None
    bounds_W2 = batch.own_rows.cpu()

    def encode(part: Batch, part_bounds: Tensor) -> Tensor:
        hidden_TH = read_states(model, part, pooled_rows(pooling, part))
        return pool_rows(pooling)(hidden_TH, part, part_bounds)

    if batch.num_tokens <= max_tokens:
        rows_WH = encode(batch, bounds_W2)
    else:
        rows: list[Tensor] = []
        for part in split_batch(batch, max_tokens):
            part_bounds = bounds_W2[len(rows) : len(rows) + len(part)]
            rows += checkpointed(encode, part, part_bounds)
        rows_WH = torch.stack(rows)

    order = batch.text_of_window.cpu().argsort().to(rows_WH.device)
    text_W = batch.text_of_window[order]
    vectors = pool_windows(
        pooling,
        rows_WH[order],
        text_W,
        num_texts=int(text_W[-1]) + 1,
        sizes_W=batch.own_rows.diff(dim=1)[order, 0],
    )
    return vectors.unflatten(0, (-1, batch.labels.shape[-1]))
