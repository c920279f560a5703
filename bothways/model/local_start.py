"""Attention that begins at the neighbours: the weights of a new encoder's first heads begin so that each looks at one
near place.

A new encoder stays at word frequencies until its heads have learned where to look: slow attention maps are the plateau
of masked-word learning (Gopalani 2025, arXiv 2506.13688). Here a score begins with a bump around one distance,
sum_f cos(w_f (key's place - query's place - offset)), beside what content adds. Only initial values differ, so that
every reader of the family loads the model. Letters: F frequencies, N heads, D head size, H hidden, E embedding size.
"""

import math

import torch
from torch import Tensor, nn

from bothways.model.attention import Attention
from bothways.model.disentangled import Disentangled, Distances
from bothways.model.embeddings import Embeddings
from bothways.model.model import Model
from bothways.model.positions import Rotary

OFFSETS = (-1, 1, -2, 2, -3, 3, -4, 4)  # of a layer's heads in turn; heads beyond begin as usual
PEAK = 4.0  # the score of the place that a head looks at
SLOWEST = 0.08  # radians a token; slower frequencies do not tell neighbours apart
FREQUENCIES = 8  # where no rotation fixes them
SHARE = 0.2  # of an embedding's squared norm that is its position's, where the two are added


@torch.no_grad()
def start_locally(model: Model, peak: float = PEAK) -> bool:
    """Set initial weights of a new model so that heads look at their neighbours. False where the family has no place
    for that: two one-way halves, or rotary positions without biases."""
    config, encoder = model.config, model.encoder
    attentions = [part for part in encoder.layers.modules() if isinstance(part, Attention)]
    frequencies_F = torch.logspace(0, math.log10(SLOWEST), min(FREQUENCIES, config.head_size // 2))
    if config.direction == "halves" or (config.position == "rotary" and not config.linear_bias):
        return False
    if config.position == "rotary":
        for attention in attentions:
            _rotary(attention, peak)
    elif config.relative is not None:
        distances = encoder.shared["distances"]
        assert isinstance(distances, Distances)
        size = _number_distances(distances.table, frequencies_F)
        for attention in attentions:
            _relative(attention, frequencies_F, peak / size)
    else:
        size = _number_positions(encoder.embeddings, frequencies_F, config.initializer_range)
        for attention in attentions:
            _absolute(attention, frequencies_F, peak / size**2)
    return True


def wave(place: Tensor | float, frequencies_F: Tensor) -> Tensor:
    """A place as cosines and sines, [..., 2F]: wave(a) @ wave(b) is sum_f cos(w_f (a - b))."""
    angles = torch.as_tensor(place)[..., None] * frequencies_F
    return torch.cat([angles.cos(), angles.sin()], dim=-1)


def _heads(attention: Attention, values: Tensor) -> list[tuple[int, Tensor]]:
    """(offset, the head's part) of rows that belong to heads one after another."""
    return list(zip(OFFSETS, values.chunk(attention.num_heads), strict=False))


def _rotary(attention: Attention, peak: float) -> None:
    """By biases of queries and keys, which the rotation by position turns into a score by distance."""
    part = attention.positions
    assert isinstance(part, Rotary)
    frequencies = part.theta ** (-torch.arange(0, part.head_size, 2) / part.head_size)
    size = torch.where(frequencies > SLOWEST, 1.0, 0.0)
    size = (size * math.sqrt(peak * math.sqrt(part.head_size) / size.sum().item())).repeat(2)
    q_bias, k_bias, _ = attention.qkv.bias.chunk(3)
    for (offset, q), (_, k) in zip(_heads(attention, q_bias), _heads(attention, k_bias), strict=True):
        q.copy_(size * wave(0.0, frequencies))
        k.copy_(size * wave(-float(offset), frequencies))


def _number_positions(embeddings: Embeddings, frequencies_F: Tensor, std: float) -> float:
    """Write each position as its wave into the last 2F numbers of its embedding; how large the wave is behind the
    norm."""
    wide = 2 * len(frequencies_F)
    words, positions = embeddings.words.weight, embeddings.positions.weight
    assert isinstance(positions, Tensor)
    size = std * math.sqrt(words.shape[1] / len(frequencies_F) * SHARE / (1 - SHARE))
    for other in (words, *embeddings.segments.parameters()):
        other[:, -wide:] = 0
    positions[:, -wide:] = size * wave(torch.arange(len(positions)).float(), frequencies_F)
    if isinstance(embeddings.widen, nn.Linear):
        weight_HE = embeddings.widen.weight
        weight_HE[-wide:], weight_HE[:, -wide:] = 0, 0
        weight_HE[-wide:, -wide:] = std * math.sqrt(weight_HE.shape[1]) * torch.eye(wide)
    return math.sqrt(SHARE * words.shape[1] / len(frequencies_F))


def _absolute(attention: Attention, frequencies_F: Tensor, peak: float) -> None:
    """By maps of queries and keys that read the position's wave, the key's turned back by the offset."""
    number = len(frequencies_F)
    size = math.sqrt(peak * math.sqrt(attention.qkv.weight.shape[1] // attention.num_heads) / number)
    q_HH, k_HH, _ = attention.qkv.weight.chunk(3)
    for (offset, q_DH), (_, k_DH) in zip(_heads(attention, q_HH), _heads(attention, k_HH), strict=True):
        cos, sin = (offset * frequencies_F).cos().diag(), (offset * frequencies_F).sin().diag()
        q_DH[: 2 * number, -2 * number :] = size * torch.eye(2 * number)
        k_DH[: 2 * number, -2 * number :] = size * torch.cat([torch.cat([cos, sin], 1), torch.cat([-sin, cos], 1)])


def _number_distances(table: nn.Embedding, frequencies_F: Tensor) -> float:
    """Write each distance (query's place - key's) as its wave into the last 2F numbers of its row; how large it is."""
    rows, hidden = table.weight.shape
    size = math.sqrt(hidden / len(frequencies_F))  # as a norm would make it
    distances = torch.arange(rows).float() - rows // 2
    table.weight[:, -2 * len(frequencies_F) :] = size * wave(distances, frequencies_F)
    return size


def _relative(attention: Attention, frequencies_F: Tensor, peak: float) -> None:
    """By the bias of queries, and the map that makes keys of distances."""
    assert isinstance(attention, Disentangled)
    wide = 2 * len(frequencies_F)
    q_bias = attention.query_bias if attention.relative.joint else attention.qkv.bias.chunk(3)[0]
    key_HH = attention.qkv.weight.chunk(3)[1]
    if not attention.relative.shared:
        assert attention.position_key is not None
        key_HH = attention.position_key.weight
    share = math.sqrt(1 + len(attention.relative.terms))
    size = math.sqrt(peak * share * math.sqrt(key_HH.shape[1] // attention.num_heads) / len(frequencies_F))
    for (offset, q_D), (_, k_DH) in zip(_heads(attention, q_bias), _heads(attention, key_HH), strict=True):
        q_D[:wide] = size * wave(-float(offset), frequencies_F)
        k_DH[:wide, -wide:] = size * torch.eye(wide)
