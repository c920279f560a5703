"""Embeddings: token + segment + positional embedding, normalized (Devlin 2018, figure 2).

Letters: T tokens, E embedding size, H hidden size.
"""

import torch
from torch import Tensor, nn

from bothways.batch import Batch
from bothways.config import EncoderConfig
from bothways.model.kernels import Dropout


class NoEmbedding(nn.Module):
    """A placeholder for embeddings that a family does not have: adds nothing."""

    def forward(self, ids_T: Tensor) -> float:
        return 0.0


class SingleSegment(nn.Embedding):
    """With a single segment type, every token uses it (RoBERTa)."""

    def forward(self, ids_T: Tensor) -> Tensor:
        return super().forward(torch.zeros_like(ids_T))


class ShiftedEmbedding(nn.Embedding):
    """Position embeddings that start at a later row of their table (RoBERTa)."""

    def __init__(self, first: int, count: int, size: int) -> None:
        super().__init__(first + count, size)
        self.first = first

    def forward(self, ids_T: Tensor) -> Tensor:
        return super().forward(ids_T + self.first)


class Embeddings(nn.Module):
    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        size = config.embedding_size or config.hidden_size
        first, positions = config.position_offset, config.max_position_embeddings
        segments, kind = config.type_vocab_size, SingleSegment if config.type_vocab_size == 1 else nn.Embedding
        self.words = nn.Embedding(config.vocab_size, size)
        self.segments = kind(segments, size) if segments else NoEmbedding()
        self.positions: nn.Module = NoEmbedding()
        if config.position_embedding == "learned":
            self.positions = ShiftedEmbedding(first, positions, size) if first else nn.Embedding(positions, size)
        self.norm = nn.LayerNorm(size, eps=config.layer_norm_eps, bias=config.norm_bias)
        self.dropout = Dropout(config.hidden_dropout_prob)
        # ALBERT and ELECTRA have a narrow table, then project to the hidden size.
        self.widen = nn.Linear(size, config.hidden_size) if size != config.hidden_size else nn.Identity()

    def forward(self, batch: Batch) -> Tensor:
        """[T, H]"""
        x_TE = self.words(batch.input_ids) + self.segments(batch.segment_ids) + self.positions(batch.position_ids)
        widened: Tensor = self.widen(self.dropout(self.norm(x_TE)))
        return widened
