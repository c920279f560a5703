"""Build the layers, attention and position modules of a config. Special attention is imported where a config has it."""

from torch import nn

from bothways.config import EncoderConfig, GlobalTokensConfig, RandomBlocksConfig
from bothways.model.attention import Attention
from bothways.model.layer import Layer
from bothways.model.positions import Positions, Rotary


def build_layers(config: EncoderConfig) -> tuple[nn.ModuleList, nn.ModuleDict]:
    """The unique layers, and the modules they share."""
    shared = nn.ModuleDict()
    if config.relative_positions:
        from bothways.model.disentangled import DistanceTable

        shared["distances"] = DistanceTable(config, config.relative_positions)
    windows = [config.layer_window(index) for index in range(config.num_unique_layers)]
    positions = {window: build_positions(config, window, shared) for window in set(windows)}
    layers = [_build_layer(config, index, positions[window]) for index, window in enumerate(windows)]
    return nn.ModuleList(layers), shared


def build_positions(config: EncoderConfig, window: int, shared: nn.ModuleDict) -> Positions:
    if config.position_embedding == "rotary":
        return Rotary(config.head_size, config.rotary_theta_window if window else config.rotary_theta)
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
    relative, attention = config.relative_positions, _build_attention(config, index, positions)
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
        if not config.relative_positions:
            return GlobalAttention(config, sides=sides, positions=positions)
    if config.relative_positions:
        from bothways.model.disentangled import DisentangledAttention

        return DisentangledAttention(config, sides=sides, positions=positions)
    return Attention(config, sides=sides, positions=positions)
