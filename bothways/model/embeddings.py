"""Ids to vectors: token + segment + position, normed (Devlin 2018, figure 2). Letters: T tokens, E embedding, H
hidden size."""

from torch import Tensor, nn

from bothways.batch import Batch
from bothways.config import EncoderConfig
from bothways.model.kernels import Dropout


class NoEmbedding(nn.Module):
    """What a variant leaves out adds nothing."""

    def forward(self, ids_T: Tensor) -> float:
        return 0.0


class Segments(nn.Embedding):
    """Who knows one segment takes all for it (RoBERTa)."""

    def forward(self, ids_T: Tensor) -> Tensor:
        return super().forward(ids_T.clamp(max=self.num_embeddings - 1))


class Embeddings(nn.Module):
    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        size = config.embedding_size or config.hidden_size
        learned = config.position == "learned"
        self.words = nn.Embedding(config.vocab_size, size)
        self.segments = Segments(config.type_vocab_size, size) if config.type_vocab_size else NoEmbedding()
        self.first_position = config.first_position
        positions = config.first_position + config.max_position_embeddings
        self.positions = nn.Embedding(positions, size) if learned else NoEmbedding()
        self.norm = nn.LayerNorm(size, eps=config.layer_norm_eps, bias=config.norm_bias)
        self.dropout = Dropout(config.hidden_dropout_prob)
        # ALBERT and ELECTRA look tokens up in a narrow table, then widen.
        self.widen = nn.Linear(size, config.hidden_size) if size != config.hidden_size else nn.Identity()

    def forward(self, batch: Batch) -> Tensor:
        """[T, H]"""
        places_T = batch.position_ids + self.first_position
        x_TE = self.words(batch.input_ids) + self.segments(batch.segment_ids) + self.positions(places_T)
        widened: Tensor = self.widen(self.dropout(self.norm(x_TE)))
        return widened
