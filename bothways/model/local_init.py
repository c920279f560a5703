"""Initialization of attention to neighbouring tokens, so that a new model learns faster.

Each of the first heads attends to one nearby position and copies a slice of the word vector at that position. Initially
the model compares the sum of nearby word vectors with the word embeddings, as CBOW (Mikolov 2013, section 3.1).

With the usual initialization a model predicts word frequencies until its heads have learned where to attend: slow
attention maps cause the plateau of masked language modelling (Gopalani 2025, arXiv 2506.13688). Here the attention
score has a peak at one distance, sum_f cos(w_f (key position - query position - offset)), in addition to the content
term. Only initial values differ, so other libraries load the model as usual.

The perplexity of a ModernBERT after 0.4 M tokens: 1,006 with the usual initialization, 531 with heads that attend to
neighbours; with word vectors from co-occurrence 341, and 246 if the heads copy words too (docs/LOG.md).

Letters: F frequencies, N heads, D head size, H hidden, E embedding size.
"""

import math

import torch
from torch import Tensor, nn

from bothways.model.attention import Attention, Rotary
from bothways.model.disentangled import DisentangledAttention, DistanceTable
from bothways.model.encoder import Embeddings
from bothways.model.heads import MaskedLMHead
from bothways.model.model import Model

OFFSETS = (-1, 1, -2, 2, -3, 3, -4, 4)  # positions that a layer's heads attend to; further heads are not changed
PEAK = 4.0  # the attention score at a head's offset
PEAK_ADDED = 8.0  # ... if positions are added to words, which blurs it
MIN_FREQUENCY = 0.08  # radians per token; lower frequencies hardly distinguish neighbours
NUM_FREQUENCIES = 8  # unless rotary positions fix them
COPY_SCALE = {"pre": 1.0, "post": 0.5}  # scale of copied vectors, by the position of LayerNorm; less for shared layers
LINEAR = 0.1  # scale of the head's first layer: so small that its activation is nearly linear
POST_NORM = 0.65  # how a layer's last norm scales the squared size of positions
POSITION_SHARE = 0.2  # fraction of an embedding's squared norm that is due to the position


@torch.no_grad()
def initialize_locally(model: Model) -> bool:
    """Set a new model's weights so that heads attend to neighbours and, with a masked-word head, copy their vectors.

    Returns False, without changes, for two one-way halves and for rotary positions without biases.
    """
    config = model.config
    if config.direction == "halves" or (config.position_embedding == "rotary" and not config.linear_bias):
        return False

    attentions = [module for module in model.encoder.layers.modules() if isinstance(module, Attention)]
    frequencies_F = torch.logspace(0, math.log10(MIN_FREQUENCY), min(NUM_FREQUENCIES, config.head_size // 2))
    _attend_to_neighbours(model, attentions, frequencies_F)

    words = dict(model.heads.named_children()).get("masked_words")
    if isinstance(words, MaskedLMHead):
        num_positional = 0
        if config.position_embedding == "learned" and config.relative_positions is None:
            num_positional = 2 * len(frequencies_F)
        # A shared layer copies once per application.
        scale = COPY_SCALE[config.norm] * math.sqrt(len(attentions) / config.num_hidden_layers)

        for layer, attention in enumerate(attentions):
            _copy_neighbours(attention, layer, scale=scale, num_positional=num_positional)
        _initialize_head(words, model.encoder.embeddings)
    return True


def _attend_to_neighbours(model: Model, attentions: list[Attention], frequencies_F: Tensor) -> None:
    """Where the heads attend to, by the kind of positions."""
    config = model.config
    encoder = model.encoder

    if config.position_embedding == "rotary":
        for attention in attentions:
            _attend_by_rotation(attention, PEAK)
        return

    if config.relative_positions is not None:
        distances = encoder.shared["distances"]
        assert isinstance(distances, DistanceTable)
        size = _write_distances(distances.table, frequencies_F)
        for attention in attentions:
            _attend_by_distance(attention, frequencies_F, PEAK / size)
        return

    size = _write_positions(encoder.embeddings, frequencies_F, config.initializer_range)
    for layer, attention in enumerate(attentions):
        # Each norm after a layer leaves less of the position.
        scale = POST_NORM**layer if config.norm == "post" else 1.0
        _attend_by_position(attention, frequencies_F, PEAK_ADDED / size**2 / scale)


def _attend_by_rotation(attention: Attention, peak: float) -> None:
    """Set biases of queries and keys, which the rotation turns into a score by distance."""
    rotary = attention.positions
    assert isinstance(rotary, Rotary)
    frequencies = rotary.theta ** (-torch.arange(0, rotary.head_size, 2) / rotary.head_size)

    # Only frequencies that tell neighbours apart, all of the same size.
    is_used = torch.where(frequencies > MIN_FREQUENCY, 1.0, 0.0)
    size = is_used * math.sqrt(peak * math.sqrt(rotary.head_size) / is_used.sum().item())
    size = size.repeat(2)

    q_bias, k_bias, _ = attention.qkv.bias.chunk(3)
    for offset, q_D, k_D in _local_heads(attention, q_bias, k_bias):
        q_D.copy_(size * sinusoids(0.0, frequencies))
        k_D.copy_(size * sinusoids(-float(offset), frequencies))


def _write_distances(table: nn.Embedding, frequencies_F: Tensor) -> float:
    """Write each distance (query position - key position) as sinusoids into the last 2F features of its row; returns
    their size."""
    rows, hidden = table.weight.shape
    size = math.sqrt(hidden / len(frequencies_F))  # as after a norm
    distances = torch.arange(rows).float() - rows // 2
    table.weight[:, -2 * len(frequencies_F) :] = size * sinusoids(distances, frequencies_F)
    return size


def _attend_by_distance(attention: Attention, frequencies_F: Tensor, peak: float) -> None:
    """Set the bias of queries, and the projection from distances to keys."""
    assert isinstance(attention, DisentangledAttention)
    relative = attention.relative
    q_bias = attention.query_bias if relative.joint else attention.qkv.bias.chunk(3)[0]
    if relative.shared:
        key_HH = attention.qkv.weight.chunk(3)[1]
    else:
        assert attention.position_key is not None
        key_HH = attention.position_key.weight

    width = 2 * len(frequencies_F)
    num_terms_root = math.sqrt(1 + len(relative.terms))
    head_root = math.sqrt(key_HH.shape[1] // attention.num_heads)
    size = math.sqrt(peak * num_terms_root * head_root / len(frequencies_F))
    for offset, q_D, k_DH in _local_heads(attention, q_bias, key_HH):
        q_D[:width] = size * sinusoids(-float(offset), frequencies_F)
        k_DH[:width, -width:] = size * torch.eye(width)


def _write_positions(embeddings: Embeddings, frequencies_F: Tensor, std: float) -> float:
    """Write each position as sinusoids into the last 2F features of its embedding; returns their size after the
    norm."""
    width = 2 * len(frequencies_F)
    words = embeddings.words.weight
    positions = embeddings.positions.weight
    assert isinstance(positions, Tensor)

    # No other embedding has these features.
    for other in (words, *embeddings.segments.parameters()):
        other[:, -width:] = 0
    size = std * math.sqrt(words.shape[1] / len(frequencies_F) * POSITION_SHARE / (1 - POSITION_SHARE))
    positions[:, -width:] = size * sinusoids(torch.arange(len(positions)).float(), frequencies_F)

    if isinstance(embeddings.widen, nn.Linear):
        weight_HE = embeddings.widen.weight  # scaled to keep the size of the normalized embeddings
        weight_HE /= std * math.sqrt(weight_HE.shape[1])
        weight_HE[-width:] = 0
        weight_HE[:, -width:] = 0
        weight_HE[-width:, -width:] = torch.eye(width)
    return math.sqrt(POSITION_SHARE * words.shape[1] / len(frequencies_F))


def _attend_by_position(attention: Attention, frequencies_F: Tensor, peak: float) -> None:
    """Set projections of queries and keys that read the sinusoids, with the key's rotated by the offset."""
    num_frequencies = len(frequencies_F)
    width = 2 * num_frequencies
    head_root = math.sqrt(attention.qkv.weight.shape[1] // attention.num_heads)
    size = math.sqrt(peak * head_root / num_frequencies)

    q_HH, k_HH, _ = attention.qkv.weight.chunk(3)
    for offset, q_DH, k_DH in _local_heads(attention, q_HH, k_HH):
        cos = (offset * frequencies_F).cos().diag()
        sin = (offset * frequencies_F).sin().diag()
        rotation = torch.cat([torch.cat([cos, sin], 1), torch.cat([-sin, cos], 1)])
        q_DH[:width, -width:] = size * torch.eye(width)
        k_DH[:width, -width:] = size * rotation


def _local_heads(attention: Attention, queries: Tensor, keys: Tensor) -> list[tuple[int, Tensor, Tensor]]:
    """The offset of each head that attends to a neighbour, and its rows of two tensors in which the rows of the heads
    follow each other."""
    heads = zip(queries.chunk(attention.num_heads), keys.chunk(attention.num_heads), strict=True)
    return [(offset, q, k) for offset, (q, k) in zip(OFFSETS, heads, strict=False)]


def sinusoids(position: Tensor | float, frequencies_F: Tensor) -> Tensor:
    """Cosines and sines of a position, [..., 2F]: sinusoids(a) @ sinusoids(b) is sum_f cos(w_f (a - b))."""
    angles = torch.as_tensor(position)[..., None] * frequencies_F
    return torch.cat([angles.cos(), angles.sin()], dim=-1)


def _copy_neighbours(attention: Attention, layer: int, *, scale: float, num_positional: int) -> None:
    """The values of each local head are a slice of the attended vector, which the output adds, scaled, to the same
    slice. Heads to the left and to the right share a slice; slices alternate over heads and layers. num_positional:
    features at the end that hold the position and are not copied."""
    num_heads = attention.num_heads
    weight = attention.qkv.weight
    if isinstance(attention, DisentangledAttention) and attention.relative.joint:
        values_NDH = weight.unflatten(0, (num_heads, 3, -1))[:, 2]  # queries, keys, values head by head
    else:
        values_NDH = weight.unflatten(0, (3, num_heads, -1))[2]
    outputs_NHD = attention.output.weight.unflatten(1, (num_heads, -1)).transpose(0, 1)

    identity_HH = torch.eye(attention.output.weight.shape[0])
    identity_HH[len(identity_HH) - num_positional :] = 0
    slices = identity_HH.chunk(num_heads)

    num_local = min(len(OFFSETS), num_heads)
    slices_per_layer = (num_local + 1) // 2
    for head in range(num_local):
        slice_DH = slices[(head // 2 + layer * slices_per_layer) % num_heads]
        values_NDH[head].copy_(slice_DH)
        outputs_NHD[head].copy_(scale * slice_DH.T)


def _initialize_head(words: MaskedLMHead, embeddings: Embeddings) -> None:
    """Initialize the head as the identity, or as the transpose of the embedding projection, for logits of about unit
    deviation."""
    widen = embeddings.widen
    weight_EH = words.transform.weight
    inverse_EH = widen.weight.T if isinstance(widen, nn.Linear) else torch.eye(len(weight_EH))
    # Without this, 0.4 M tokens end at a perplexity of 296 instead of 246 (docs/LOG.md).
    weight_EH.copy_(LINEAR * inverse_EH / inverse_EH.norm(dim=1, keepdim=True))

    word_deviation = embeddings.words.weight.std().item()
    words.norm.weight.fill_(1 / (word_deviation * math.sqrt(len(weight_EH))))
