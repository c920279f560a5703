"""Texts with statements behind them, in torch: for training the adapter and the head, and for models that torch
computes.

The texts are read by the encoder as it is, without gradients; statements attend to the keys and values of their text in
each layer. inference/backends/statements.py has the same in numpy, and is the specification.

Letters: N texts, T tokens of texts, U tokens of statements, k statements of L tokens, S tokens of a text; H hidden
size, A heads of size D, R rank of the adapter.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bothways.base.errors import InputError
from bothways.model.config import EncoderConfig
from bothways.model.encoder import Encoder
from bothways.model.layer import ACTIVATIONS, Layer
from bothways.model.parameters import same_random_numbers
from bothways.model.statement_head import ADAPTED, INNER, QKV, StatementHead
from bothways.text.batch import Batch
from bothways.text.statements import StatementBatch

CLOSED = -5.0  # a gate at the start: a statement reads little but itself
ROWS = 16  # products have a multiple of so many rows: of fewer, BLAS sums in another order


class Thin(nn.Module):
    """What an adapter adds to a linear layer: (x down^T) up^T (Hu 2022), in float32."""

    def __init__(self, inputs: int, outputs: int, rank: int, generator: torch.Generator) -> None:
        super().__init__()
        self.down = nn.Parameter(torch.randn(rank, inputs, generator=generator) / inputs**0.5)
        self.up = nn.Parameter(torch.zeros(outputs, rank))

    def forward(self, x_UI: Tensor) -> Tensor:
        added_UO: Tensor = F.linear(F.linear(x_UI.float(), self.down), self.up)
        return added_UO.to(x_UI.dtype)


class StatementModel(nn.Module):
    """The adapter of an encoder and the head of statements, as they are trained (statement_head.py)."""

    def __init__(self, config: EncoderConfig, rank: int, seed: int = 0) -> None:
        """A head and an adapter to be trained. seed: of the adapter."""
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        size = config.hidden_size
        self.depth = config.num_unique_layers
        outputs = {QKV: 3 * config.num_attention_heads * config.head_size, INNER: config.intermediate_size}
        self.thin = nn.ModuleDict()
        for index in range(self.depth):
            for name in ADAPTED:
                self.thin[layer_key(index, name)] = Thin(size, outputs[name], rank, generator)

        self.gates = nn.Parameter(torch.full((self.depth, config.num_attention_heads), CLOSED))

        # At the start the score is the cosine of the vectors of statement and text.
        with same_random_numbers():
            self.projection = nn.Linear(size, size)
            self.linear = nn.Linear(size, 1)
        nn.init.eye_(self.projection.weight)
        nn.init.zeros_(self.projection.bias)
        nn.init.zeros_(self.linear.weight)
        nn.init.constant_(self.linear.bias, -4.0)
        self.cosine_scale = nn.Parameter(torch.tensor(10.0))

    def scores(self, texts_PH: Tensor, statements_PH: Tensor) -> Tensor:
        """The log-odds of each statement with the vector of its text, [P]."""
        cosines_P = F.cosine_similarity(self.projection(statements_PH), texts_PH, dim=-1)
        scores_P: Tensor = self.cosine_scale * cosines_P + self.linear(statements_PH)[:, 0]
        return scores_P

    def to_head(self) -> StatementHead:
        """The same as arrays."""

        def array(values: Tensor) -> np.ndarray:
            return values.detach().float().numpy()

        products = {}
        for index in range(self.depth):
            for name in ADAPTED:
                thin = self.thin[layer_key(index, name)]
                assert isinstance(thin, Thin)
                products[f"layers.{index}.{name}"] = array(thin.down), array(thin.up)
        return StatementHead(
            products=products,
            gates_LA=array(self.gates),
            projection_HH=array(self.projection.weight),
            shift_H=array(self.projection.bias),
            weight_H=array(self.linear.weight)[0],
            bias=self.linear.bias.item(),
            cosine_scale=self.cosine_scale.item(),
        )

    @staticmethod
    def of_head(config: EncoderConfig, head: StatementHead) -> StatementModel:
        """The module with the numbers of a head."""
        rank = len(next(iter(head.products.values()))[0])
        model = StatementModel(config, rank)
        values = {
            "gates": head.gates_LA,
            "projection.weight": head.projection_HH,
            "projection.bias": head.shift_H,
            "linear.weight": head.weight_H[None],
            "linear.bias": np.array([head.bias], np.float32),
            "cosine_scale": np.array(head.cosine_scale, np.float32),
        }
        for name, (down_RI, up_OR) in head.products.items():
            _, index, layer = name.split(".", 2)
            values[f"thin.{layer_key(int(index), layer)}.down"] = down_RI
            values[f"thin.{layer_key(int(index), layer)}.up"] = up_OR
        model.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in values.items()})
        return model


def layer_key(index: int, name: str) -> str:
    """The name of a linear layer in a ModuleDict, which allows no dots."""
    return f"{index}_{name.replace('.', '_')}"


@dataclass(frozen=True)
class StatementTensors:
    """A batch of statements on a device.

    texts: the texts alone.
    text_rows [T], statement_rows [U]: places among all tokens.
    statements: the tokens of the statements, as a batch.
    runs: of each text, its tokens (first, last) among T, and of its statements of one length the places [k, L] in U.
    """

    texts: Batch
    statements: Batch
    text_rows: Tensor
    statement_rows: Tensor
    runs: list[tuple[int, int, list[Tensor]]]

    @staticmethod
    def of(batch: StatementBatch, device: torch.device) -> StatementTensors:
        first_parts = batch.first_parts
        is_text_P = np.zeros(len(batch.lengths_P), bool)
        is_text_P[first_parts[:-1]] = True
        is_text_T = np.repeat(is_text_P, batch.lengths_P)
        text_rows = np.flatnonzero(is_text_T)
        statement_rows = np.flatnonzero(~is_text_T)

        lengths_N = batch.lengths_P[is_text_P]
        text_starts = np.concatenate([[0], lengths_N.cumsum()])
        # The place of each part among the tokens of statements.
        starts_P = np.concatenate([[0], np.where(is_text_P, 0, batch.lengths_P).cumsum()])
        runs = []
        for text, (first, last) in enumerate(pairwise(first_parts.tolist())):
            groups = []
            lengths_K = batch.lengths_P[first + 1 : last]
            for length in np.unique(lengths_K[lengths_K > 0]).tolist():
                starts_k = starts_P[first + 1 : last][lengths_K == length]
                groups.append(torch.from_numpy(starts_k[:, None] + np.arange(length)).to(device))
            runs.append((int(text_starts[text]), int(text_starts[text + 1]), groups))

        def part(rows: np.ndarray, lengths: np.ndarray) -> Batch:
            return Batch(
                input_ids=torch.from_numpy(batch.ids_T[rows].astype(np.int64)),
                segment_ids=torch.zeros(len(rows), dtype=torch.int64),
                position_ids=torch.from_numpy(batch.positions[rows]),
                lengths=torch.from_numpy(lengths),
            ).to(device)

        return StatementTensors(
            texts=part(text_rows, lengths_N),
            statements=part(statement_rows, batch.lengths_P[~is_text_P]),
            text_rows=torch.from_numpy(text_rows).to(device),
            statement_rows=torch.from_numpy(statement_rows).to(device),
            runs=runs,
        )


def read_statements(
    encoder: Encoder, batch: StatementTensors, adapter: StatementModel | None = None
) -> tuple[Tensor, Tensor]:
    """The last hidden states of texts [T, H], without gradients, and of the statements behind them [U, H]. adapter: of
    the statements."""
    check_readable(encoder)
    with torch.no_grad():
        x_TH = encoder.embeddings(batch.texts)
        x_UH = encoder.embeddings(batch.statements)

    num_unique = len(encoder.layers)
    depth = encoder.config.num_hidden_layers
    for place, layer in enumerate(encoder.layer_sequence):
        assert isinstance(layer, Layer)
        index = place * num_unique // depth
        qkv = inner = gates_A = None
        if adapter is not None:
            qkv = adapter.thin[layer_key(index, QKV)]
            inner = adapter.thin[layer_key(index, INNER)]
            gates_A = adapter.gates[index]

        with torch.no_grad():
            q_TAD, k_TAD, v_TAD = project(layer, x_TH, None)
            attended_TH = attend_texts(batch, q_TAD, k_TAD, v_TAD).flatten(1)
            next_TH = finish(layer, x_TH, attended_TH, None)

        q_UAD, k_UAD, v_UAD = project(layer, x_UH, qkv)
        attended_UH = attend_statements(batch, (q_UAD, k_UAD, v_UAD), k_TAD, v_TAD, gates_A).flatten(1)
        x_UH = finish(layer, x_UH, attended_UH, inner)
        x_TH = next_TH
    return x_TH, x_UH


def check_readable(encoder: Encoder) -> None:
    """InputError for an encoder that is not of BERT's layout."""
    if type(encoder) is not Encoder or not encoder.config.has_bert_layout:
        raise InputError("decide is for encoders of BERT's layout; use bothways-en, or another BERT")


def by_rows(linear: nn.Module, x_UI: Tensor) -> Tensor:
    """A linear layer whose product has a multiple of ROWS rows on a CPU, so that a row has the same bits in each."""
    missing = -len(x_UI) % ROWS
    if x_UI.device.type != "cpu" or not missing or torch.is_grad_enabled():
        outputs_UO: Tensor = linear(x_UI)
        return outputs_UO
    padded: Tensor = linear(torch.cat([x_UI, x_UI.new_zeros(missing, x_UI.shape[1])]))
    return padded[: len(x_UI)]


def project(layer: Layer, x_UH: Tensor, thin: nn.Module | None) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values by heads, [U, A, D]."""
    qkv_UX = by_rows(layer.attention.qkv, x_UH)
    if thin is not None:
        qkv_UX = qkv_UX + by_rows(thin, x_UH)
    q_UAD, k_UAD, v_UAD = qkv_UX.unflatten(-1, (3, layer.attention.num_heads, -1)).unbind(1)
    return q_UAD, k_UAD, v_UAD


def attend_texts(batch: StatementTensors, q_TAD: Tensor, k_TAD: Tensor, v_TAD: Tensor) -> Tensor:
    """Attention within each text, [T, A, D]. Texts are computed one by one, so that none depends on the others."""
    attended = []
    for first, last, _ in batch.runs:
        q_ASD, k_ASD, v_ASD = (x_TAD[first:last].transpose(0, 1) for x_TAD in (q_TAD, k_TAD, v_TAD))
        attended.append(attend(q_ASD, k_ASD, v_ASD).transpose(0, 1))
    return torch.cat(attended)


def attend(queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None = None) -> Tensor:
    """softmax(Q K^T / sqrt(D) + bias) V of [..., L, D] with [..., S, D]."""
    scores = ((queries * queries.shape[-1] ** -0.5) @ keys.transpose(-1, -2)).float()
    if bias is not None:
        scores = scores + bias
    attended: Tensor = scores.softmax(-1).to(values.dtype) @ values
    return attended


def attend_statements(
    batch: StatementTensors, qkv: tuple[Tensor, Tensor, Tensor], k_TAD: Tensor, v_TAD: Tensor, gates_A: Tensor | None
) -> Tensor:
    """Attention of each statement to its text and to itself, [U, A, D]. Statements of one text and one length are
    computed together: of each, the products have the same shapes whatever the others are."""
    q_UAD = qkv[0]
    places = []
    attended = []
    for first, last, groups in batch.runs:
        k_ASD, v_ASD = (x_TAD[first:last].transpose(0, 1) for x_TAD in (k_TAD, v_TAD))
        for places_kL in groups:
            q_kALD, k_kALD, v_kALD = (x_UAD[places_kL].transpose(1, 2) for x_UAD in qkv)
            count = len(places_kL)
            keys = torch.cat([k_ASD.expand(count, -1, -1, -1), k_kALD], 2)
            values = torch.cat([v_ASD.expand(count, -1, -1, -1), v_kALD], 2)
            bias_A1S = None
            if gates_A is not None:
                bias_A1S = F.pad(gates_A[:, None, None].expand(-1, 1, last - first), (0, k_kALD.shape[2]))
            places.append(places_kL.flatten())
            attended.append(attend(q_kALD, keys, values, bias_A1S).transpose(1, 2).flatten(0, 1))

    if not places:
        return q_UAD
    return torch.cat(attended)[torch.cat(places).argsort()]


def finish(layer: Layer, x_UH: Tensor, attended_UH: Tensor, thin: nn.Module | None) -> Tensor:
    """The rest of a layer after its attention, without dropout."""
    x_UH = layer.attention_norm(x_UH + by_rows(layer.attention.output, attended_UH))
    if thin is None:
        output_UH = by_rows(layer.feed_forward, x_UH)
    else:
        # int8 layers compute the activation with the product, to which nothing could be added.
        activation = layer.feed_forward.activation
        activate = ACTIVATIONS[activation] if isinstance(activation, str) else activation
        inner_UI = by_rows(layer.feed_forward.inner, x_UH) + by_rows(thin, x_UH)
        output_UH = by_rows(layer.feed_forward.output, activate(inner_UI))
    normalized_UH: Tensor = layer.feed_forward_norm(x_UH + output_UH)
    return normalized_UH


def states_of(encoder: Encoder, batch: StatementBatch, adapter: StatementModel | None) -> Tensor:
    """The last hidden states [T, H] of all tokens of a batch, for inference."""
    with torch.no_grad():
        tensors = StatementTensors.of(batch, encoder.embeddings.words.weight.device)
        x_TH, x_UH = read_statements(encoder, tensors, adapter)
        states = x_TH.new_empty(len(batch.ids_T), x_TH.shape[1])
        states[tensors.text_rows] = x_TH
        states[tensors.statement_rows] = x_UH
        return states
