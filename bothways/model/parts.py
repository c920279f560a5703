"""Which parts a config asks for."""

from torch import nn

from bothways.axes import Globals, RandomBlocks
from bothways.config import EncoderConfig
from bothways.model.attention import Attention
from bothways.model.convolution import ConvolvedLayer
from bothways.model.disentangled import Apart, Disentangled, Distances
from bothways.model.global_attention import BlockAttention, Chosen, Drawn, GlobalAttention
from bothways.model.layer import Layer
from bothways.model.positions import Positions, Rotary


def layers_of(config: EncoderConfig) -> tuple[nn.ModuleList, nn.ModuleDict]:
    """The layers that have weights of their own, and what they share."""
    shared = nn.ModuleDict({"distances": Distances(config, config.relative)} if config.relative else {})
    windows = [config.window_of_layer(index) for index in range(config.own_layers)]
    positions = {window: positions_for(config, window, shared) for window in set(windows)}
    layers = [layer_of(config, index, positions[window]) for index, window in enumerate(windows)]
    return nn.ModuleList(layers), shared


def positions_for(config: EncoderConfig, window: int, shared: nn.ModuleDict) -> Positions:
    if config.position == "rotary":
        return Rotary(config.head_size, config.rotary_theta_window if window else config.rotary_theta)
    if isinstance(config.far, Globals):
        return Chosen(config.far, (window, window))
    if isinstance(config.far, RandomBlocks):
        return Drawn(config.far, config.num_hidden_layers)
    if config.relative:
        distances = shared["distances"]
        assert isinstance(distances, Distances)
        return Apart(distances)
    return Positions()


def layer_of(config: EncoderConfig, index: int, positions: Positions) -> Layer:
    convolved = config.relative is not None and config.relative.kernel > 0 and index == 0
    return (ConvolvedLayer if convolved else Layer)(config, attention_of(config, index, positions), first=index == 0)


def attention_of(config: EncoderConfig, index: int, positions: Positions) -> Attention:
    sides = config.sides_of_layer(index)
    if isinstance(config.far, RandomBlocks):
        return BlockAttention(config, sides=sides, positions=positions, index=index)
    if config.relative:
        return Disentangled(config, sides=sides, positions=positions)
    return (GlobalAttention if isinstance(config.far, Globals) else Attention)(config, sides=sides, positions=positions)
