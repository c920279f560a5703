"""How much arithmetic a batch asks for: floating-point operations of its matrix products alone, padding and everything
else not counted, so that a share of the hardware's matrix peak can be told (Chowdhery 2022, appendix B)."""

import torch

from bothways.attention_config import RandomBlocksConfig
from bothways.batch import Batch
from bothways.config import EncoderConfig


def training_flops(config: EncoderConfig, batch: Batch) -> int:
    """Operations of one step's products, forward and back, for a batch with masked places: 6 a weight and row, and
    attention's own."""
    if config.direction == "halves":  # two stacks, and a head that reads both
        masked = 0 if batch.masked_labels is None else len(batch.masked_labels)
        return 2 * training_flops(config.half("forward"), batch) + 12 * masked * (config.hidden_size // 2) ** 2
    hidden, inner = config.hidden_size, config.intermediate_size
    narrow = config.embedding_size or hidden
    layer = 4 * hidden**2 + (3 if config.feed_forward == "gated" else 2) * hidden * inner
    masked = 0 if batch.masked_labels is None else len(batch.masked_labels)
    weights = batch.num_tokens * config.num_hidden_layers * layer
    weights += batch.num_tokens * narrow * hidden * (narrow != hidden)
    weights += masked * narrow * (hidden + config.vocab_size)
    pairs = 0  # of tokens that look at each other, over all layers
    for index in range(config.num_hidden_layers):
        window = config.layer_window(index)
        seen = batch.lengths.clamp(max=2 * window + 1) if window else batch.lengths
        if isinstance(config.sparse_attention, RandomBlocksConfig):  # the first and the last block aside, which see all
            few = (5 + config.sparse_attention.number) * config.sparse_attention.size
            seen = torch.where(batch.lengths > config.sparse_attention.shortest, few, batch.lengths)
        pairs += int(torch.sum(batch.lengths * seen))
        if config.relative_positions:  # each kind of distance: one product where pairs have two, over 2 S - 1 of them
            pairs += len(config.relative_positions.terms) * int(torch.sum(batch.lengths * (2 * batch.lengths - 1))) // 2
    return 6 * weights + 12 * pairs * hidden
