"""Relative positions of DeBERTa: disentangled attention with a table of distance embeddings.

An attention score is the sum of content to content, content to position and position to content (He 2021, section 3.1,
eq. 4; logarithmic buckets, shared projections and the convolution next to the first layer: He 2021b, section 3.2).

For texts of S tokens there are 2S - 1 distances, so positions are scored once per distance rather than once per pair of
tokens, and the scores of pairs are a skewed view of those. Letters: T tokens, N heads, D head size, H hidden = N x D,
S tokens of a text, n texts of a bucket, R rows of the distance table.
"""

from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bothways.model.attention import Attention, Context, Positions, Prepared
from bothways.model.config import EncoderConfig, RelativePositionsConfig
from bothways.model.dropout import Dropout
from bothways.model.layer import ACTIVATIONS, Layer, norm
from bothways.model.layout import Layout, Sides
from bothways.text.batch import Batch


class DistanceTable(nn.Module):
    """Embeddings of distances, shared by all layers: row span + d for tokens d apart. [R, H]"""

    def __init__(self, config: EncoderConfig, relative: RelativePositionsConfig) -> None:
        super().__init__()
        self.table = nn.Embedding(2 * relative.span, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps) if relative.norm else nn.Identity()

    def forward(self) -> Tensor:
        table_RH: Tensor = self.norm(self.table.weight)
        return table_RH


@dataclass(frozen=True)
class Distances(Prepared):
    """The distance table [R, H], and each token's position in its text [T]."""

    table_RH: Tensor
    position_ids_T: Tensor


class RelativePositions(Positions):
    """Passes the distance table to the layers. The table belongs to the encoder, not to this module."""

    biases = True

    def __init__(self, distances: DistanceTable) -> None:
        super().__init__()
        self.owned_elsewhere = (distances,)  # in a tuple, so that its parameters are registered once

    def prepare(self, batch: Batch, layout: Layout, dtype: torch.dtype) -> Distances:
        (distances,) = self.owned_elsewhere
        return Distances(distances(), batch.position_ids)


class DisentangledAttention(Attention):
    def __init__(self, config: EncoderConfig, *, sides: Sides, positions: Positions) -> None:
        super().__init__(config, sides=sides, positions=positions)
        relative, hidden = config.relative_positions, config.hidden_size
        assert relative is not None
        self.relative, self.table_dropout = relative, Dropout(config.hidden_dropout_prob)
        if relative.joint:
            self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
            self.query_bias, self.value_bias = (nn.Parameter(torch.zeros(hidden)) for _ in range(2))
        if not relative.shared:
            # v1's key projection has no bias; its query projection and all later ones have one.
            self.position_key = nn.Linear(hidden, hidden, bias=not relative.joint) if "c2p" in relative.terms else None
            self.position_query = nn.Linear(hidden, hidden) if "p2c" in relative.terms else None

    def attend(self, x_TH: Tensor, qkv_TX: Tensor, context: Context) -> Tensor:
        return self.attend_with_bias(*self.split_heads(qkv_TX), context)

    def attend_with_bias(self, q_TND: Tensor, k_TND: Tensor, v_TND: Tensor, context: Context) -> Tensor:
        """[T, H]"""
        prepared = context.positions[self.positions]
        assert isinstance(prepared, Distances)
        keys_NRD, queries_NRD = self.project_distances(self.table_dropout(prepared.table_RH.to(q_TND.dtype)))
        # The layout divides scores by sqrt(D); here by the root of the number of terms too.
        scale, root = (1 + len(self.relative.terms)) ** -0.5, q_TND.shape[-1] ** -0.5

        def bias(q_NnSD: Tensor, k_NnSD: Tensor) -> Tensor:
            """[N, n, S, S]"""
            rows, total = table_rows(self.relative, q_NnSD.shape[2], q_NnSD.device), q_NnSD.new_zeros(())
            if keys_NRD is not None:
                total = total + skew(score_distances(q_NnSD * root, keys_NRD[:, rows.flip(0)]))
            if queries_NRD is not None:
                total = total + skew(score_distances(k_NnSD * (root * scale), queries_NRD[:, rows])).mT
            return total

        dropout = self.dropout if self.training else 0.0
        return context.layout.attend(q_TND * scale, k_TND, v_TND, sides=self.sides, dropout=dropout, bias=bias).flatten(
            1
        )

    def split_heads(self, qkv_TX: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys, values, [T, N, D] each."""
        if not self.relative.joint:
            q_TND, k_TND, v_TND = qkv_TX.unflatten(-1, (3, self.num_heads, -1)).unbind(1)
            return q_TND, k_TND, v_TND
        q_TND, k_TND, v_TND = qkv_TX.unflatten(-1, (self.num_heads, 3, -1)).unbind(2)
        query_bias, value_bias = (bias.view(self.num_heads, -1) for bias in (self.query_bias, self.value_bias))
        return q_TND + query_bias, k_TND, v_TND + value_bias

    def project_distances(self, table_RH: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Keys and queries of the distances, [N, R, D] each; None for a term that the config omits."""
        if self.relative.shared:
            weight, bias = self.qkv.weight, self.qkv.bias
            queries_RH, keys_RH = (
                F.linear(table_RH, w, b) for w, b in zip(weight.chunk(3)[:2], bias.chunk(3)[:2], strict=True)
            )
            projected = {"c2p": keys_RH, "p2c": queries_RH}
        else:
            projections = {"c2p": self.position_key, "p2c": self.position_query}
            projected = {term: linear(table_RH) for term, linear in projections.items() if linear is not None}
        by_term = {
            term: x_RH.unflatten(-1, (self.num_heads, -1)).transpose(0, 1)
            for term, x_RH in projected.items()
            if term in self.relative.terms
        }
        return by_term.get("c2p"), by_term.get("p2c")


def score_distances(x_NnSD: Tensor, positions_NCD: Tensor) -> Tensor:
    """The product of each token with each of C distances, [N, n, S, C]."""
    scores = x_NnSD.flatten(1, 2) @ positions_NCD.mT
    return scores.unflatten(1, x_NnSD.shape[1:3])


def skew(x: Tensor) -> Tensor:
    """[..., S, 2S - 1] -> [..., S, S], a view: row i begins at column S - 1 - i."""
    size = x.shape[-2]
    if torch.compiler.is_exporting():  # a symbolic size has no strides
        columns = torch.arange(size, device=x.device)
        return x.gather(-1, (columns - columns[:, None] + size - 1).expand(*x.shape[:-1], size))
    x = x.contiguous()
    strides = (*x.stride()[:-2], 2 * size - 2, 1)
    return x.as_strided((*x.shape[:-1], size), strides, x.storage_offset() + size - 1)


def table_rows(relative: RelativePositionsConfig, size: int, device: torch.device) -> Tensor:
    """The table's rows for distances from 1 - S to S - 1, [2S - 1]."""
    return (_table_rows.__wrapped__ if torch.compiler.is_exporting() else _table_rows)(relative, size, device)


@lru_cache(maxsize=64)
@torch.inference_mode(mode=False)  # cached for training too
def _table_rows(relative: RelativePositionsConfig, size: int, device: torch.device) -> Tensor:
    distances = torch.arange(2 * size - 1, device=device) - (size - 1)
    if relative.buckets:
        distances = log_buckets(distances, relative.buckets, relative.max_distance)
    return (distances + relative.span).clamp(0, 2 * relative.span - 1)


def log_buckets(distances: Tensor, buckets: int, max_distance: int) -> Tensor:
    """A bucket for each distance up to half the buckets, then logarithmic ones up to max_distance."""
    half = buckets // 2
    far = distances.abs().clamp(min=half)
    steps = torch.log(far / half) / torch.log(torch.tensor((max_distance - 1) / half)) * (half - 1)
    return torch.where(distances.abs() <= half, distances, (steps.ceil().long() + half) * distances.sign())


class ConvolvedLayer(Layer):
    """The first layer of DeBERTa v2 with a convolution over neighbouring tokens of the same text (He 2021b, section
    3.2)."""

    def __init__(self, config: EncoderConfig, attention: Attention, *, first: bool) -> None:
        super().__init__(config, attention, first=first)
        assert config.relative_positions is not None
        kernel = config.relative_positions.kernel
        self.convolution = nn.Conv1d(config.hidden_size, config.hidden_size, kernel, padding=kernel // 2)
        self.activation = {"tanh": torch.tanh, **ACTIVATIONS}[config.relative_positions.kernel_act]
        self.convolution_norm, self.convolution_dropout = norm(config), Dropout(config.hidden_dropout_prob)

    def forward(self, x_TH: Tensor, context: Context) -> Tensor:
        """norm(layer(x) + act(conv(x)))"""
        prepared = context.positions[self.attention.positions]
        assert isinstance(prepared, Distances)
        convolved_TH = self.activation(self.convolution_dropout(self.convolve(x_TH, prepared.position_ids_T)))
        normed_TH: Tensor = self.convolution_norm(super().forward(x_TH, context) + convolved_TH)
        return normed_TH

    def convolve(self, x_TH: Tensor, position_ids: Tensor) -> Tensor:
        """The convolution, [T, H]. A neighbour belongs to the same text if its position follows."""
        reach, total = self.convolution.kernel_size[0] // 2, self.convolution.bias
        assert total is not None
        for tap, weight_HH in zip(range(-reach, reach + 1), self.convolution.weight.unbind(-1), strict=True):
            same_T1 = (position_ids.roll(-tap) == position_ids + tap)[:, None]
            total = total + torch.where(same_T1, x_TH.roll(-tap, 0), 0.0) @ weight_HH.T
        return total
