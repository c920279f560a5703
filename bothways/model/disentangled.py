"""Relative positions of DeBERTa: disentangled attention with a table of distance embeddings.

An attention score is the sum of content to content, content to position and position to content (He 2021, section 3.1,
eq. 4; logarithmic buckets, shared projections and the convolution next to the first layer: He 2021b, section 3.2).

For texts of S tokens there are 2S - 1 distances, so positions are scored once per distance rather than once per pair of
tokens, and the scores of pairs are a skewed view of the scores of distances. Letters: T tokens, N heads, D head size,
H hidden = N x D, S tokens of a text, n texts of a bucket, R rows of the distance table, C distances.
"""

from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bothways.model.attention import Attention, Context, Positions, Prepared, take_rows
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
        return Distances(table_RH=distances(), position_ids_T=batch.position_ids)


class DisentangledAttention(Attention):
    """Attention whose scores depend on the distance between two tokens too, by one or both terms of the config."""

    def __init__(self, config: EncoderConfig, *, sides: Sides, positions: Positions) -> None:
        super().__init__(config, sides=sides, positions=positions)
        relative = config.relative_positions
        hidden = config.hidden_size
        assert relative is not None
        self.relative = relative
        self.table_dropout = Dropout(config.hidden_dropout_prob)

        if relative.joint:
            self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
            self.query_bias = nn.Parameter(torch.zeros(hidden))
            self.value_bias = nn.Parameter(torch.zeros(hidden))
            self.has_query_block = False  # queries, keys and values alternate by head

        if not relative.shared:
            # v1's key projection has no bias; its query projection and all later ones have one.
            self.position_key = nn.Linear(hidden, hidden, bias=not relative.joint) if "c2p" in relative.terms else None
            self.position_query = nn.Linear(hidden, hidden) if "p2c" in relative.terms else None

    def attend(self, x_TH: Tensor, qkv_TX: Tensor, context: Context) -> Tensor:
        q_TND, k_TND, v_TND = self.split_heads(qkv_TX)
        return self.attend_with_bias(q_TND, k_TND, v_TND, context)

    def attend_with_bias(self, q_TND: Tensor, k_TND: Tensor, v_TND: Tensor, context: Context) -> Tensor:
        """Attention before the output projection, [T, H].

        q_TND, k_TND, v_TND: queries, keys and values.
        context: has the layout and the distance table.
        """
        prepared = context.positions[self.positions]
        assert isinstance(prepared, Distances)
        table_RH = self.table_dropout(prepared.table_RH.to(q_TND.dtype))
        keys_NRD, queries_NRD = self.project_distances(table_RH)

        # The layout divides scores by sqrt(D); here by the root of the number of terms too.
        scale = (1 + len(self.relative.terms)) ** -0.5
        root = q_TND.shape[-1] ** -0.5

        def bias(q_NnSD: Tensor, k_NnSD: Tensor) -> Tensor:
            """[N, n, S, S]"""
            rows = table_rows(self.relative, q_NnSD.shape[2], q_NnSD.device)
            total = q_NnSD.new_zeros(())
            if keys_NRD is not None:
                c2p_NnSC = score_distances(q_NnSD * root, keys_NRD[:, rows.flip(0)])
                total = total + skew(c2p_NnSC)
            if queries_NRD is not None:
                p2c_NnSC = score_distances(k_NnSD * (root * scale), queries_NRD[:, rows])
                total = total + skew(p2c_NnSC).mT
            return total

        dropout = self.dropout if self.training else 0.0
        attended_TND = context.layout.attend(
            q_TND * scale,
            k_TND,
            v_TND,
            sides=self.sides,
            dropout=dropout,
            bias=bias,
        )
        return attended_TND.flatten(1)

    def split_heads(self, qkv_TX: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys, values, [T, N, D] each."""
        if not self.relative.joint:
            q_TND, k_TND, v_TND = qkv_TX.unflatten(-1, (3, self.num_heads, -1)).unbind(1)
            return q_TND, k_TND, v_TND

        q_TND, k_TND, v_TND = qkv_TX.unflatten(-1, (self.num_heads, 3, -1)).unbind(2)
        query_bias_ND = self.query_bias.view(self.num_heads, -1)
        value_bias_ND = self.value_bias.view(self.num_heads, -1)
        return q_TND + query_bias_ND, k_TND, v_TND + value_bias_ND

    def project_distances(self, table_RH: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Keys and queries of the distances, [N, R, D] each; None for a term that the config omits."""
        keys_NRD = None
        if "c2p" in self.relative.terms:
            keys_NRD = self._split_rows(self._project_keys(table_RH))

        queries_NRD = None
        if "p2c" in self.relative.terms:
            queries_NRD = self._split_rows(self._project_queries(table_RH))
        return keys_NRD, queries_NRD

    def _project_keys(self, table_RH: Tensor) -> Tensor:
        if self.relative.shared:
            _, weight_HH, _ = self.qkv.weight.chunk(3)
            _, bias_H, _ = self.qkv.bias.chunk(3)
            return F.linear(table_RH, weight_HH, bias_H)

        assert self.position_key is not None
        keys_RH: Tensor = self.position_key(table_RH)
        return keys_RH

    def _project_queries(self, table_RH: Tensor) -> Tensor:
        if self.relative.shared:
            weight_HH, _, _ = self.qkv.weight.chunk(3)
            bias_H, _, _ = self.qkv.bias.chunk(3)
            return F.linear(table_RH, weight_HH, bias_H)

        assert self.position_query is not None
        queries_RH: Tensor = self.position_query(table_RH)
        return queries_RH

    def _split_rows(self, x_RH: Tensor) -> Tensor:
        """[N, R, D]"""
        return x_RH.unflatten(-1, (self.num_heads, -1)).transpose(0, 1)


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

    # One element less from row to row than a row has: each row begins one column earlier.
    x = x.contiguous()
    strides = (*x.stride()[:-2], 2 * size - 2, 1)
    return x.as_strided((*x.shape[:-1], size), strides, x.storage_offset() + size - 1)


def table_rows(relative: RelativePositionsConfig, size: int, device: torch.device) -> Tensor:
    """The table's rows for distances from 1 - S to S - 1, [2S - 1].

    relative: the table's span and buckets.
    size: S, tokens of a text.
    device: of the result.
    """
    if torch.compiler.is_exporting():  # the cache cannot hold a symbolic size
        return _table_rows.__wrapped__(relative, size, device)
    return _table_rows(relative, size, device)


@lru_cache(maxsize=64)
@torch.inference_mode(mode=False)  # cached for training too
def _table_rows(relative: RelativePositionsConfig, size: int, device: torch.device) -> Tensor:
    distances = torch.arange(2 * size - 1, device=device) - (size - 1)
    if relative.buckets:
        distances = log_buckets(distances, relative.buckets, relative.max_distance)
    return (distances + relative.span).clamp(0, 2 * relative.span - 1)


def log_buckets(distances: Tensor, buckets: int, max_distance: int) -> Tensor:
    """A bucket for each distance up to half the buckets, then logarithmic ones up to max_distance.

    distances: positive or negative.
    buckets: their number in each direction.
    max_distance: longer distances count as this one.
    """
    half = buckets // 2
    far = distances.abs().clamp(min=half)
    steps = torch.log(far / half) / torch.log(torch.tensor((max_distance - 1) / half)) * (half - 1)
    far_buckets = (steps.ceil().long() + half) * distances.sign()
    return torch.where(distances.abs() <= half, distances, far_buckets)


class ConvolvedLayer(Layer):
    """The first layer of DeBERTa v2 with a convolution over neighbouring tokens of the same text (He 2021b, section
    3.2)."""

    def __init__(self, config: EncoderConfig, attention: Attention, *, first: bool) -> None:
        super().__init__(config, attention, first=first)
        assert config.relative_positions is not None
        kernel = config.relative_positions.kernel
        self.convolution = nn.Conv1d(config.hidden_size, config.hidden_size, kernel, padding=kernel // 2)
        self.activation = {"tanh": torch.tanh, **ACTIVATIONS}[config.relative_positions.kernel_act]
        self.convolution_norm = norm(config)
        self.convolution_dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, x_TH: Tensor, context: Context, rows_R: Tensor | None = None) -> Tensor:
        """norm(layer(x) + act(conv(x))), for all tokens before some are taken."""
        prepared = context.positions[self.attention.positions]
        assert isinstance(prepared, Distances)
        convolved_TH = self.convolve(x_TH, prepared.position_ids_T)
        convolved_TH = self.activation(self.convolution_dropout(convolved_TH))
        normed_TH: Tensor = self.convolution_norm(super().forward(x_TH, context) + convolved_TH)
        return take_rows(normed_TH, rows_R)

    def convolve(self, x_TH: Tensor, position_ids: Tensor) -> Tensor:
        """The convolution, [T, H]. A neighbour belongs to the same text if its position follows."""
        reach = self.convolution.kernel_size[0] // 2
        taps = range(-reach, reach + 1)
        total = self.convolution.bias
        assert total is not None
        for tap, weight_HH in zip(taps, self.convolution.weight.unbind(-1), strict=True):
            same_T1 = (position_ids.roll(-tap) == position_ids + tap)[:, None]
            total = total + torch.where(same_T1, x_TH.roll(-tap, 0), 0.0) @ weight_HH.T
        return total
