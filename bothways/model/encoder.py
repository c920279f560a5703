"""The encoder: embeddings (Devlin 2018, figure 2) and a stack of layers, from token ids to hidden states [T, H].

The batch is ragged throughout; only attention depends on which tokens form a text, through the layout. Special
attention is imported where a config has it. Letters: T tokens, E embedding size, H hidden size.
"""

import torch
from torch import Tensor, nn

from bothways.model.attention import Attention, Context, Positions, Rotary, take_rows
from bothways.model.config import EncoderConfig, GlobalTokensConfig, RandomBlocksConfig
from bothways.model.dropout import Dropout
from bothways.model.layer import Layer, norm
from bothways.model.layout import Layout, choose_layout
from bothways.text.batch import Batch


class Encoder(nn.Module):
    """Embeddings, layers, and for layers with the norm first a last norm."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.layers, self.shared = build_layers(config)
        self.final_norm = norm(config) if config.norm == "pre" else nn.Identity()
        self.positions = [module for module in self.modules() if isinstance(module, Positions)]

    def forward(self, batch: Batch, context: Context | None = None, rows_R: Tensor | None = None) -> Tensor:
        """The last hidden states, [T, H], in the order of the batch's tokens; with rows_R, of these tokens, [R, H]."""
        context = context or self.build_context(batch)
        x_TH = self.embeddings(batch)
        *layers, last = self.layer_sequence
        for layer in layers:
            x_TH = layer(x_TH, context)

        x_RH = last(x_TH, context) if rows_R is None else last(x_TH, context, rows_R)
        last_RH: Tensor = self.final_norm(x_RH)
        return last_RH

    def build_context(self, batch: Batch, layout: Layout | None = None) -> Context:
        """The context that the layers share for this batch. layout: None chooses the best one for device and dtype."""
        weight = self.embeddings.words.weight
        has_bias = any(positions.biases for positions in self.positions)
        layout = layout or choose_layout(batch.lengths, weight.device, weight.dtype, has_bias)
        prepared = {positions: positions.prepare(batch, layout, weight.dtype) for positions in self.positions}
        return Context(layout=layout, positions=prepared)

    @property
    def layer_sequence(self) -> list[nn.Module]:
        """The layers in the order of application; shared layers occur several times (Lan 2020, section 3.1)."""
        depth = self.config.num_hidden_layers
        return [self.layers[index * len(self.layers) // depth] for index in range(depth)]


class TwoStackEncoder(Encoder):
    """Two one-way stacks, left to right and right to left, concatenated at the end.

    Each stack has half the width; both share one embedding table. Peters 2018 concatenates two directions in this way;
    Devlin 2018, section 5.1, compares BERT with it.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config.half("forward"))
        self.config = config
        backward_layers, _ = build_layers(config.half("backward"))
        self.back = nn.ModuleDict({"layers": backward_layers})
        self.positions += [module for module in self.back.modules() if isinstance(module, Positions)]

    def forward(self, batch: Batch, context: Context | None = None, rows_R: Tensor | None = None) -> Tensor:
        """[T, H]: H/2 features from the tokens before and H/2 from the tokens after; with rows_R, [R, H]."""
        context = context or self.build_context(batch)
        backward_layers = self.back["layers"]
        assert isinstance(backward_layers, nn.ModuleList)

        # Layer by layer in turn: `RecordingLayout` of model/states.py relies on both halves of a layer being adjacent.
        forward_TH = backward_TH = self.embeddings(batch)
        for forward_layer, backward_layer in zip(self.layers, backward_layers, strict=True):
            forward_TH = forward_layer(forward_TH, context)
            backward_TH = backward_layer(backward_TH, context)
        return take_rows(torch.cat([forward_TH, backward_TH], dim=-1), rows_R)


class Embeddings(nn.Module):
    """The sum of a token's word, segment and position embeddings, normalized."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        size = config.embedding_size or config.hidden_size
        self.words = nn.Embedding(config.vocab_size, size)
        self.segments = build_segments(config.type_vocab_size, size)
        self.positions: nn.Module = NoEmbedding()
        if config.position_embedding == "learned":
            self.positions = build_position_table(config.position_offset, config.max_position_embeddings, size)
        self.norm = nn.LayerNorm(size, eps=config.layer_norm_eps, bias=config.norm_bias)
        self.dropout = Dropout(config.hidden_dropout_prob)

        # ALBERT and ELECTRA have a narrow table, then project to the hidden size.
        self.widen = nn.Linear(size, config.hidden_size) if size != config.hidden_size else nn.Identity()

    def forward(self, batch: Batch) -> Tensor:
        """[T, H]"""
        x_TE = self.words(batch.input_ids) + self.segments(batch.segment_ids) + self.positions(batch.position_ids)
        widened: Tensor = self.widen(self.dropout(self.norm(x_TE)))
        return widened


def build_segments(count: int, size: int) -> nn.Module:
    """Embeddings of this many segment types."""
    if count == 0:
        return NoEmbedding()
    if count == 1:
        return SingleSegment(count, size)
    return nn.Embedding(count, size)


def build_position_table(first: int, count: int, size: int) -> nn.Module:
    """Learned embeddings of positions.

    first: row of a text's first token.
    count: number of positions.
    size: of an embedding.
    """
    if first:
        return ShiftedEmbedding(first, count, size)
    return nn.Embedding(count, size)


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


def build_layers(config: EncoderConfig) -> tuple[nn.ModuleList, nn.ModuleDict]:
    """The unique layers, and the modules they share."""
    shared = nn.ModuleDict()
    if config.relative_positions:
        from bothways.model.disentangled import DistanceTable

        shared["distances"] = DistanceTable(config, config.relative_positions)

    # Layers with the same window share a position module, which is prepared once per batch.
    windows = [config.layer_window(index) for index in range(config.num_unique_layers)]
    positions = {window: build_positions(config, window, shared) for window in set(windows)}
    layers = [_build_layer(config, index, positions[window]) for index, window in enumerate(windows)]
    return nn.ModuleList(layers), shared


def build_positions(config: EncoderConfig, window: int, shared: nn.ModuleDict) -> Positions:
    """The position module of all layers with the same window.

    config: of the encoder.
    window: neighbours on each side; 0: full attention.
    shared: the modules that all layers share.
    """
    if config.position_embedding == "rotary":
        theta = config.rotary_theta_window if window else config.rotary_theta
        return Rotary(config.head_size, theta)

    if config.sparse_attention:
        from bothways.model.global_attention import GlobalTokens, RandomBlocks

        if isinstance(config.sparse_attention, GlobalTokensConfig):
            return GlobalTokens(config.sparse_attention, (window, window))
        return RandomBlocks(config.sparse_attention, config.num_hidden_layers)

    if config.relative_positions:
        from bothways.model.disentangled import DistanceTable, RelativePositions

        distances = shared["distances"]
        assert isinstance(distances, DistanceTable)
        return RelativePositions(distances)

    return Positions()


def _build_layer(config: EncoderConfig, index: int, positions: Positions) -> Layer:
    attention = _build_attention(config, index, positions)
    relative = config.relative_positions
    if relative is not None and relative.kernel > 0 and index == 0:
        from bothways.model.disentangled import ConvolvedLayer

        return ConvolvedLayer(config, attention, first=True)
    return Layer(config, attention, first=index == 0)


def _build_attention(config: EncoderConfig, index: int, positions: Positions) -> Attention:
    sides = config.layer_sides(index)

    if config.sparse_attention:
        from bothways.model.global_attention import GlobalAttention, RandomBlockAttention

        if isinstance(config.sparse_attention, RandomBlocksConfig):
            return RandomBlockAttention(config, sides=sides, positions=positions, index=index)
        # With relative positions, attention is DeBERTa's: below.
        if not config.relative_positions:
            return GlobalAttention(config, sides=sides, positions=positions)

    if config.relative_positions:
        from bothways.model.disentangled import DisentangledAttention

        return DisentangledAttention(config, sides=sides, positions=positions)

    return Attention(config, sides=sides, positions=positions)
