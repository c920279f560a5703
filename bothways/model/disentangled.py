"""Disentangled attention: a score is content to content, content to position and position to content (DeBERTa, He 2021,
section 3.1, eq. 4; logarithmic buckets and shared maps, He 2021b, section 3.2).

How far apart two tokens are is one of 2S - 1 distances for texts of S tokens, so positions are scored once a distance
and not once a pair, and the pairs' scores are a slanted view of those. Letters: T tokens, N heads, D head size, H
hidden = N x D, S tokens of a text, n texts of a rectangle, R rows of the table of distances.
"""

from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bothways.attention_config import RelativePositionsConfig
from bothways.batch import Batch
from bothways.config import EncoderConfig
from bothways.model.attention import Attention, Context
from bothways.model.kernels import Dropout
from bothways.model.layer import ACTIVATIONS, Layer, norm
from bothways.model.layout import Layout, Sides
from bothways.model.positions import Positions


class Distances(nn.Module):
    """The table of distances: row span + d is for tokens d apart. One for all layers. [R, H]"""

    def __init__(self, config: EncoderConfig, relative: RelativePositionsConfig) -> None:
        super().__init__()
        self.table = nn.Embedding(2 * relative.span, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps) if relative.norm else nn.Identity()

    def forward(self) -> Tensor:
        table_RH: Tensor = self.norm(self.table.weight)
        return table_RH


class RelativePositions(Positions):
    """How far apart tokens are, for layers that ask it of a table. The table is the encoder's, not this part's."""

    biases = True

    def __init__(self, distances: Distances) -> None:
        super().__init__()
        self.owned_elsewhere = (distances,)  # in a tuple, so that its parameters have one name

    def prepare(self, batch: Batch, layout: Layout, dtype: torch.dtype) -> tuple[Any, ...]:
        """The table, [R, H], and where each token stands in its text, [T]."""
        (distances,) = self.owned_elsewhere
        return distances(), batch.position_ids


class Disentangled(Attention):
    def __init__(self, config: EncoderConfig, *, sides: Sides, positions: Positions) -> None:
        super().__init__(config, sides=sides, positions=positions)
        relative, hidden = config.relative_positions, config.hidden_size
        assert relative is not None
        self.relative, self.dropout_of_table = relative, Dropout(config.hidden_dropout_prob)
        if relative.joint:
            self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
            self.query_bias, self.value_bias = (nn.Parameter(torch.zeros(hidden)) for _ in range(2))
        if not relative.shared:
            # The map of v1's keys has no bias; that of its queries has one, as all have since.
            self.position_key = nn.Linear(hidden, hidden, bias=not relative.joint) if "c2p" in relative.terms else None
            self.position_query = nn.Linear(hidden, hidden) if "p2c" in relative.terms else None

    def mixed(self, x_TH: Tensor, qkv_TX: Tensor, context: Context) -> Tensor:
        return self.mixture(*self.apart(qkv_TX), context)

    def mixture(self, q_TND: Tensor, k_TND: Tensor, v_TND: Tensor, context: Context) -> Tensor:
        """[T, H]"""
        table_RH, _ = context.positions[self.positions]
        keys_NRD, queries_NRD = self.of_positions(self.dropout_of_table(table_RH.to(q_TND.dtype)))
        # The layout divides scores by the root of D; each kind of score counts alike.
        share, root = (1 + len(self.relative.terms)) ** -0.5, q_TND.shape[-1] ** -0.5

        def bias(q_NnSD: Tensor, k_NnSD: Tensor) -> Tensor:
            """[N, n, S, S]"""
            rows, total = rows_of(self.relative, q_NnSD.shape[2], q_NnSD.device), q_NnSD.new_zeros(())
            if keys_NRD is not None:
                total = total + slanted(across(q_NnSD * root, keys_NRD[:, rows.flip(0)]))
            if queries_NRD is not None:
                total = total + slanted(across(k_NnSD * (root * share), queries_NRD[:, rows])).mT
            return total

        dropout = self.dropout if self.training else 0.0
        return context.layout.attend(
            q_TND * share, k_TND, v_TND, sides=self.sides, dropout=dropout, bias=bias
        ).flatten(1)  # fmt: skip

    def apart(self, qkv_TX: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys, values, [T, N, D] each."""
        if not self.relative.joint:
            q_TND, k_TND, v_TND = qkv_TX.unflatten(-1, (3, self.num_heads, -1)).unbind(1)
            return q_TND, k_TND, v_TND
        q_TND, k_TND, v_TND = qkv_TX.unflatten(-1, (self.num_heads, 3, -1)).unbind(2)
        biases = (bias.view(self.num_heads, -1) for bias in (self.query_bias, self.value_bias))
        return q_TND + next(biases), k_TND, v_TND + next(biases)

    def of_positions(self, table_RH: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Keys and queries of the distances, [N, R, D] each, where they count."""
        if self.relative.shared:
            weight, bias = self.qkv.weight, self.qkv.bias
            found = [F.linear(table_RH, w, b) for w, b in zip(weight.chunk(3)[:2], bias.chunk(3)[:2], strict=True)]
            made = {"c2p": found[1], "p2c": found[0]}
        else:
            maps = {"c2p": self.position_key, "p2c": self.position_query}
            made = {term: one(table_RH) for term, one in maps.items() if one is not None}
        counting = {term: x for term, x in made.items() if term in self.relative.terms}
        apart = {term: x.unflatten(-1, (self.num_heads, -1)).transpose(0, 1) for term, x in counting.items()}
        return apart.get("c2p"), apart.get("p2c")


def across(x_NnSD: Tensor, positions_NCD: Tensor) -> Tensor:
    """Each token against each of C distances, [N, n, S, C]."""
    scores = x_NnSD.flatten(1, 2) @ positions_NCD.mT
    return scores.unflatten(1, x_NnSD.shape[1:3])


def slanted(x: Tensor) -> Tensor:
    """[..., S, 2S - 1] -> [..., S, S]: in row i what stands S - 1 - i places further on. No number is moved."""
    size = x.shape[-2]
    if torch.compiler.is_exporting():  # a size that is a symbol has no strides
        places = torch.arange(size, device=x.device)
        return x.gather(-1, (places - places[:, None] + size - 1).expand(*x.shape[:-1], size))
    x = x.contiguous()
    strides = (*x.stride()[:-2], 2 * size - 2, 1)
    return x.as_strided((*x.shape[:-1], size), strides, x.storage_offset() + size - 1)


def rows_of(relative: RelativePositionsConfig, size: int, device: torch.device) -> Tensor:
    """The table's rows for distances from 1 - S to S - 1, [2S - 1]."""
    return (_rows.__wrapped__ if torch.compiler.is_exporting() else _rows)(relative, size, device)


@lru_cache(maxsize=64)
@torch.inference_mode(mode=False)  # remembered for training too
def _rows(relative: RelativePositionsConfig, size: int, device: torch.device) -> Tensor:
    distances = torch.arange(2 * size - 1, device=device) - (size - 1)
    if relative.buckets:
        distances = bucketed(distances, relative.buckets, relative.longest)
    return (distances + relative.span).clamp(0, 2 * relative.span - 1)


def bucketed(distances: Tensor, buckets: int, longest: int) -> Tensor:
    """Up to half the buckets each distance for itself; from there to `longest` in logarithmic steps."""
    half = buckets // 2
    far = distances.abs().clamp(min=half)
    steps = torch.log(far / half) / torch.log(torch.tensor((longest - 1) / half)) * (half - 1)
    return torch.where(distances.abs() <= half, distances, (steps.ceil().long() + half) * distances.sign())


class ConvolvedLayer(Layer):
    def __init__(self, config: EncoderConfig, attention: Attention, *, first: bool) -> None:
        super().__init__(config, attention, first=first)
        assert config.relative_positions is not None
        kernel = config.relative_positions.kernel
        self.convolution = nn.Conv1d(config.hidden_size, config.hidden_size, kernel, padding=kernel // 2)
        self.activation = {"tanh": torch.tanh, **ACTIVATIONS}[config.relative_positions.kernel_act]
        self.convolution_norm, self.convolution_dropout = norm(config), Dropout(config.hidden_dropout_prob)

    def forward(self, x_TH: Tensor, context: Context) -> Tensor:
        """norm(layer(x) + act(conv(x)))"""
        _, position_ids = context.positions[self.attention.positions]
        beside_TH = self.activation(self.convolution_dropout(self.neighbours(x_TH, position_ids)))
        found: Tensor = self.convolution_norm(super().forward(x_TH, context) + beside_TH)
        return found

    def neighbours(self, x_TH: Tensor, position_ids: Tensor) -> Tensor:
        """The convolution, [T, H]. A neighbour is of the same text where its position says so."""
        reach, total = self.convolution.kernel_size[0] // 2, self.convolution.bias
        assert total is not None
        for tap, weight_HH in zip(range(-reach, reach + 1), self.convolution.weight.unbind(-1), strict=True):
            same_T1 = (position_ids.roll(-tap) == position_ids + tap)[:, None]
            total = total + torch.where(same_T1, x_TH.roll(-tap, 0), 0.0) @ weight_HH.T
        return total
