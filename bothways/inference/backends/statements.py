"""Texts with statements behind them, in numpy: what encode.c computes, of which this is the specification.

Each text and each statement has matrix products of its own, since BLAS chooses its order of sums by the number of rows:
so a statement has the same states, bit for bit, whatever other statements and texts are read with it.

Letters: S tokens of a text, k statements of L tokens, H hidden size, A heads of size D, O outputs of a layer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from bothways.inference.backends.forward import Array, Bert, BertLayer, Norm, softmax
from bothways.model.statement_head import INNER, QKV, StatementHead
from bothways.text.statements import StatementBatch


class ThinProducts(NamedTuple):
    """What an adapter adds to a linear layer (Hu 2022): (x down^T) up^T."""

    down_RI: Array
    up_OR: Array

    def __call__(self, x_kLI: Array) -> Array:
        added_kLO: Array = np.matmul(np.matmul(x_kLI, self.down_RI.T), self.up_OR.T)
        return added_kLO


class Adapter(NamedTuple):
    """What is added for statements, not for texts.

    products: to linear layers, by their names ("layers.0.attention.qkv").
    gates_LA: to the scores of attention to the text, for each layer and head.
    """

    products: Mapping[str, ThinProducts]
    gates_LA: Array

    @staticmethod
    def of_head(head: StatementHead) -> Adapter:
        products = {name: ThinProducts(*products) for name, products in head.products.items()}
        return Adapter(products, head.gates_LA)


def read_statements(bert: Bert, batch: StatementBatch, adapter: Adapter | None = None) -> Array:
    """The last hidden states [T, H] of texts and of the statements behind them. adapter: of the statements."""
    x_TH = bert.embed_at(batch.ids_T, np.zeros_like(batch.ids_T), batch.positions)
    starts = batch.starts
    first_parts = batch.first_parts

    for first, last in pairwise(first_parts):
        text = slice(starts[first], starts[first + 1])
        statements = [slice(starts[part], starts[part + 1]) for part in range(first + 1, last)]
        with np.errstate(over="ignore", under="ignore"):  # of an activation, whose result is right all the same
            read_text(bert, x_TH, text, of_one_length(statements), adapter)
    return x_TH


def of_one_length(statements: Sequence[slice]) -> list[list[slice]]:
    """The statements by their numbers of tokens; empty ones are left out."""
    by_length: dict[int, list[slice]] = defaultdict(list)
    for statement in statements:
        by_length[statement.stop - statement.start].append(statement)
    return [same for length, same in by_length.items() if length]


def read_text(bert: Bert, x_TH: Array, text: slice, groups: list[list[slice]], adapter: Adapter | None) -> None:
    """The states of a text and its statements, in place."""
    depth = bert.config.num_hidden_layers
    x_1SH = x_TH[None, text]
    size = x_1SH.shape[1]
    states = [np.stack([x_TH[statement] for statement in group]) for group in groups]

    for index in range(depth):
        number = index * len(bert.layers) // depth
        layer = bert.layers[number]
        qkv = adapter and adapter.products[f"layers.{number}.{QKV}"]
        inner = adapter and adapter.products[f"layers.{number}.{INNER}"]
        gates_A = None if adapter is None else adapter.gates_LA[number]

        q_1ASD, k_1ASD, v_1ASD = project(layer, x_1SH, None)
        for place, x_kLH in enumerate(states):
            q_kALD, k_kALD, v_kALD = project(layer, x_kLH, qkv)
            keys = np.concatenate([np.broadcast_to(k_1ASD, (len(x_kLH), *k_1ASD.shape[1:])), k_kALD], 2)
            values = np.concatenate([np.broadcast_to(v_1ASD, (len(x_kLH), *v_1ASD.shape[1:])), v_kALD], 2)
            attended_kLH = attend(q_kALD, keys, values, gates_A, size)
            states[place] = finish(layer, x_kLH, attended_kLH, inner)
        x_1SH = finish(layer, x_1SH, attend(q_1ASD, k_1ASD, v_1ASD), None)

    x_TH[text] = x_1SH[0]
    for group, x_kLH in zip(groups, states, strict=True):
        for statement, x_LH in zip(group, x_kLH, strict=True):
            x_TH[statement] = x_LH


def project(layer: BertLayer, x_kLH: Array, thin: ThinProducts | None) -> Array:
    """Queries, keys and values by heads, [3, k, A, L, D]."""
    qkv_kLO = layer.qkv(x_kLH)
    if thin is not None:
        qkv_kLO += thin(x_kLH)
    by_heads: Array = qkv_kLO.reshape(*x_kLH.shape[:2], 3, layer.num_heads, -1).transpose(2, 0, 3, 1, 4)
    return by_heads


def attend(q_kALD: Array, k_kASD: Array, v_kASD: Array, gates_A: Array | None = None, size: int = 0) -> Array:
    """softmax(Q K^T / sqrt(D)) V, heads side by side: [k, L, H].

    gates_A: added to the scores of the first `size` keys, those of the text.
    """
    scale = np.float32(q_kALD.shape[-1] ** -0.5)
    scores_kALS: Array = np.matmul(q_kALD * scale, k_kASD.swapaxes(-1, -2))
    if gates_A is not None:
        scores_kALS[..., :size] += gates_A[:, None, None]
    weights_kALS = softmax(scores_kALS)
    attended_kLAD = (weights_kALS @ v_kASD).swapaxes(1, 2)
    return attended_kLAD.reshape(*attended_kLAD.shape[:2], -1)


def finish(layer: BertLayer, x_kLH: Array, attended_kLH: Array, thin: ThinProducts | None) -> Array:
    """The rest of a layer after its attention."""
    x_kLH = normalize(layer.attention_norm, x_kLH + layer.attention_output(attended_kLH))
    inner_kLI = layer.inner(x_kLH)
    if thin is not None:
        inner_kLI += thin(x_kLH)
    return normalize(layer.output_norm, x_kLH + layer.output(layer.activation(inner_kLI)))


def normalize(norm: Norm, x_kLH: Array) -> Array:
    """The norm of each token."""
    return norm(x_kLH.reshape(-1, x_kLH.shape[-1])).reshape(x_kLH.shape)
