"""Attention that begins at the neighbours: the weights of a new encoder's first heads begin so that each looks at one
near place and hands on a slice of the word vector that stands there. The stack begins as a sum of the vectors of the
near words, read against the table of words: CBOW (Mikolov 2013, section 3.1).

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
from bothways.model.heads import MaskedLMHead
from bothways.model.model import Model
from bothways.model.positions import Rotary

OFFSETS = (-1, 1, -2, 2, -3, 3, -4, 4)  # of a layer's heads in turn; heads beyond begin as usual
PEAK = 4.0  # the score of the place that a head looks at
PEAK_ADDED = 8.0  # where positions are added to words, which blurs it
SLOWEST = 0.08  # radians a token; slower frequencies do not tell neighbours apart
FREQUENCIES = 8  # where no rotation fixes them
HAND_ON = {"pre": 1.0, "post": 0.5}  # how much of it, by where the norm stands; shared layers less
LINEAR = 0.1  # the head's first map times the identity: so small that its activation is nearly linear
POST_NORM = 0.65  # what a layer's last norm leaves of a wave's square, beside all that the layer adds
SHARE = 0.2  # of an embedding's squared norm that is its position's, where the two are added


@torch.no_grad()
def initialize_locally(model: Model) -> bool:
    """Set initial weights of a new model so that heads look at their neighbours and, where words are guessed, hand on
    what stands there. False where the family has no place for that: two one-way halves, or rotary positions without
    biases."""
    config, encoder = model.config, model.encoder
    attentions = [part for part in encoder.layers.modules() if isinstance(part, Attention)]
    frequencies_F = torch.logspace(0, math.log10(SLOWEST), min(FREQUENCIES, config.head_size // 2))
    if config.direction == "halves" or (config.position_embedding == "rotary" and not config.linear_bias):
        return False
    if config.position_embedding == "rotary":
        for attention in attentions:
            _rotary(attention, PEAK)
    elif config.relative_positions is not None:
        distances = encoder.shared["distances"]
        assert isinstance(distances, Distances)
        size = _number_distances(distances.table, frequencies_F)
        for attention in attentions:
            _relative(attention, frequencies_F, PEAK / size)
    else:
        size = _number_positions(encoder.embeddings, frequencies_F, config.initializer_range)
        for layer, attention in enumerate(attentions):
            shrunk = POST_NORM**layer if config.norm == "post" else 1.0
            _absolute(attention, frequencies_F, PEAK_ADDED / size**2 / shrunk)
    if isinstance(words := dict(model.heads.named_children()).get("masked_words"), MaskedLMHead):
        of_places = (
            2 * len(frequencies_F)
            if config.position_embedding == "learned" and config.relative_positions is None
            else 0
        )
        share = HAND_ON[config.norm] * math.sqrt(len(attentions) / config.num_hidden_layers)
        for layer, attention in enumerate(attentions):
            _hand_on(attention, layer, share, of_places)
        _read_linearly(words, encoder.embeddings)
    return True


def _hand_on(attention: Attention, layer: int, share: float, of_places: int) -> None:
    """Values of each near head are a slice of what it looks at, of which the output adds a share where it was; heads to
    the left and to the right share a slice, the slices take turns over heads and layers. of_places: numbers at the end
    that say where a token stands, and stay."""
    number, hidden_H = attention.num_heads, torch.eye(attention.output.weight.shape[0])
    hidden_H[len(hidden_H) - of_places :] = 0
    near = min(len(OFFSETS), number)
    joint = isinstance(attention, Disentangled) and attention.relative.joint  # queries, keys, values head by head
    rows = attention.qkv.weight.unflatten(0, (number, 3, -1) if joint else (3, number, -1))
    values_NDH = rows[:, 2] if joint else rows[2]
    outputs_NHD = attention.output.weight.unflatten(1, (number, -1)).transpose(0, 1)
    slices = hidden_H.chunk(number)
    for head in range(near):
        part_DH = slices[(head // 2 + layer * ((near + 1) // 2)) % number]
        values_NDH[head].copy_(part_DH)
        outputs_NHD[head].copy_(share * part_DH.T)


def _read_linearly(words: MaskedLMHead, embeddings: Embeddings) -> None:
    """The head begins as the identity, or as the way back of what widens the embeddings; scores deviate by about 1."""
    widen, weight_EH = embeddings.widen, words.transform.weight
    back_EH = widen.weight.T if isinstance(widen, nn.Linear) else torch.eye(len(weight_EH))
    weight_EH.copy_(LINEAR * back_EH / back_EH.norm(dim=1, keepdim=True))
    words.norm.weight.fill_(1 / (embeddings.words.weight.std().item() * math.sqrt(len(weight_EH))))


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
        weight_HE = embeddings.widen.weight  # leaves numbers as large as the norm before it made them
        weight_HE /= std * math.sqrt(weight_HE.shape[1])
        weight_HE[-wide:], weight_HE[:, -wide:] = 0, 0
        weight_HE[-wide:, -wide:] = torch.eye(wide)
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
