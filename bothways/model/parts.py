"""Which parts a config asks for."""

from torch import nn

from bothways.attention_config import GlobalTokensConfig, RandomBlocksConfig
from bothways.config import EncoderConfig
from bothways.model.attention import Attention
from bothways.model.disentangled import ConvolvedLayer, Disentangled, Distances, RelativePositions
from bothways.model.global_attention import BlockAttention, GlobalAttention, GlobalTokens, RandomBlocks
from bothways.model.layer import Layer
from bothways.model.positions import Positions, Rotary


def layers_of(config: EncoderConfig) -> tuple[nn.ModuleList, nn.ModuleDict]:
    """The layers that have weights of their own, and what they share."""
    shared = nn.ModuleDict(
        {"distances": Distances(config, config.relative_positions)} if config.relative_positions else {}
    )
    windows = [config.layer_window(index) for index in range(config.num_unique_layers)]
    positions = {window: positions_for(config, window, shared) for window in set(windows)}
    layers = [layer_of(config, index, positions[window]) for index, window in enumerate(windows)]
    return nn.ModuleList(layers), shared


def positions_for(config: EncoderConfig, window: int, shared: nn.ModuleDict) -> Positions:
    if config.position_embedding == "rotary":
        return Rotary(config.head_size, config.rotary_theta_window if window else config.rotary_theta)
    if isinstance(config.sparse_attention, GlobalTokensConfig):
        return GlobalTokens(config.sparse_attention, (window, window))
    if isinstance(config.sparse_attention, RandomBlocksConfig):
        return RandomBlocks(config.sparse_attention, config.num_hidden_layers)
    if config.relative_positions:
        distances = shared["distances"]
        assert isinstance(distances, Distances)
        return RelativePositions(distances)
    return Positions()


def layer_of(config: EncoderConfig, index: int, positions: Positions) -> Layer:
    convolved = config.relative_positions is not None and config.relative_positions.kernel > 0 and index == 0
    return (ConvolvedLayer if convolved else Layer)(config, attention_of(config, index, positions), first=index == 0)


def attention_of(config: EncoderConfig, index: int, positions: Positions) -> Attention:
    sides = config.layer_sides(index)
    if isinstance(config.sparse_attention, RandomBlocksConfig):
        return BlockAttention(config, sides=sides, positions=positions, index=index)
    if config.relative_positions:
        return Disentangled(config, sides=sides, positions=positions)
    return (GlobalAttention if isinstance(config.sparse_attention, GlobalTokensConfig) else Attention)(
        config, sides=sides, positions=positions
    )
