"""FLOPs of a training step, to report hardware utilization (Chowdhery 2022, appendix B).

Counts only the floating-point operations of matrix products, without padding.
"""

import torch

from bothways.batch import Batch
from bothways.config import EncoderConfig, RandomBlocksConfig


def training_flops(config: EncoderConfig, batch: Batch) -> int:
    """FLOPs of the forward and backward pass for a batch with masked positions: 6 per weight and token, and
    attention."""
    if config.direction == "halves":  # two stacks, and a head on both
        masked = 0 if batch.masked_labels is None else len(batch.masked_labels)
        return 2 * training_flops(config.half("forward"), batch) + 12 * masked * (config.hidden_size // 2) ** 2
    hidden, inner = config.hidden_size, config.intermediate_size
    embedding = config.embedding_size or hidden
    layer = 4 * hidden**2 + (3 if config.feed_forward == "gated" else 2) * hidden * inner
    masked = 0 if batch.masked_labels is None else len(batch.masked_labels)
    weights = batch.num_tokens * config.num_hidden_layers * layer
    weights += batch.num_tokens * embedding * hidden * (embedding != hidden)
    weights += masked * embedding * (hidden + config.vocab_size)
    pairs = 0  # query-key pairs, over all layers
    for index in range(config.num_hidden_layers):
        window = config.layer_window(index)
        keys = batch.lengths.clamp(max=2 * window + 1) if window else batch.lengths
        if isinstance(
            config.sparse_attention, RandomBlocksConfig
        ):  # ignoring the first and the last block, with full attention
            sparse = (5 + config.sparse_attention.num_random) * config.sparse_attention.size
            keys = torch.where(batch.lengths > config.sparse_attention.max_full_length, sparse, batch.lengths)
        pairs += int(torch.sum(batch.lengths * keys))
        if config.relative_positions:  # per term one product, where pairs have two, over 2 S - 1 distances
            pairs += len(config.relative_positions.terms) * int(torch.sum(batch.lengths * (2 * batch.lengths - 1))) // 2
    return 6 * weights + 12 * pairs * hidden
