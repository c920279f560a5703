"""BERT's forward pass in numpy, from token ids to hidden states and scores, as in the equations of the papers.

The texts of a batch stand one after another, without padding: all but attention treats their T tokens alike.
docs/guide/forward.md explains it step by step. Letters: T tokens, N texts, S tokens of one text, n texts of one length;
H hidden size, E embedding size, A heads of size D, M masked tokens, V vocabulary, C classes; O outputs of a layer.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bothways.model.config import NO_POOLER, POOLED_HEADS, EncoderConfig, unit_scale
from bothways.tasks.arrays import normalize

Array = NDArray[np.float32]
Ids = NDArray[Any]  # int32 or int64
BLOCK = 1 << 15  # numbers that an activation treats at once, so that they stay in a core's cache
# 2 artanh(erf(x / sqrt(2))) = x P(x^2): the coefficients of P, fitted so that the error of the probability is least.
NORMAL = (1.5957699, 0.07266617, -6.518993e-05, -1.1061239e-04, 7.9294914e-06, -2.6452688e-07, 3.5123475e-09)


def gelu(x: Array) -> Array:
    """x times the probability that a normal variable is less than x (Hendrycks 2016), in place; x is contiguous. The
    probability is 1 / (1 + exp(-x P(x^2))), to within 3e-8 before rounding."""
    for start in range(0, x.size, BLOCK):
        part = x.reshape(-1)[start : start + BLOCK]
        square = part * part

        # -P(x^2) by Horner's rule
        power = square * np.float32(-NORMAL[-1])
        for coefficient in NORMAL[-2:0:-1]:
            power -= np.float32(coefficient)
            power *= square
        power -= np.float32(NORMAL[0])

        power *= part
        np.exp(power, out=power)
        power += 1
        part /= power
    return x


ACTIVATIONS: Mapping[str, Callable[[Array], Array]] = {
    "gelu": gelu,
    "gelu_tanh": lambda x: x * (1 + np.tanh(np.float32((2 / np.pi) ** 0.5) * (x + np.float32(0.044715) * x**3))) / 2,
    "relu": lambda x: np.maximum(x, 0, out=x),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "tanh": np.tanh,
}


def softmax(x: Array) -> Array:
    """Over the last axis, in place."""
    x -= x.max(-1, keepdims=True)
    np.exp(x, out=x)
    x /= x.sum(-1, keepdims=True)
    return x


class Linear(NamedTuple):
    """x W + b"""

    weight_HO: Array
    bias_O: Array

    def __call__(self, x_TH: Array) -> Array:
        y_TO = x_TH @ self.weight_HO
        y_TO += self.bias_O
        return y_TO


class Norm(NamedTuple):
    """Layer norm (Ba 2016): each row with mean 0 and variance 1, then scaled and shifted; in place."""

    scale_H: Array
    shift_H: Array
    epsilon: float

    def __call__(self, x_TH: Array) -> Array:
        x_TH -= x_TH.mean(-1, keepdims=True)
        variance_T = np.einsum("th,th->t", x_TH, x_TH) / np.float32(x_TH.shape[-1])
        x_TH /= np.sqrt(variance_T + np.float32(self.epsilon))[:, None]
        x_TH *= self.scale_H
        x_TH += self.shift_H
        return x_TH


class BertLayer(NamedTuple):
    """A transformer layer (Vaswani 2017): attention and feed-forward, each with a residual sum and a layer norm."""

    qkv: Linear
    attention_output: Linear
    attention_norm: Norm
    inner: Linear
    output: Linear
    output_norm: Norm
    activation: Callable[[Array], Array]
    num_heads: int

    def __call__(self, x_TH: Array, runs: Sequence[tuple[slice, int, int]], rows_R: Ids | None = None) -> Array:
        """[T, H] -> [T, H]; with rows_R, the tokens that are read, ascending, [R, H]."""
        attended_RH = self.attention(x_TH, runs, rows_R)
        if rows_R is not None:
            x_TH = x_TH[rows_R]
        x_RH = self.attention_norm(x_TH + self.attention_output(attended_RH))
        return self.output_norm(x_RH + self.output(self.activation(self.inner(x_RH))))

    def attention(self, x_TH: Array, runs: Sequence[tuple[slice, int, int]], rows_R: Ids | None = None) -> Array:
        """softmax(Q K^T / sqrt(D)) V within each text, in every head (Vaswani 2017, eq. 1)."""
        q_RAD, k_TAD, v_TAD = self.project(x_TH, rows_R)
        q_RAD *= np.float32(q_RAD.shape[-1] ** -0.5)

        # Texts of one length are one product each, so that nothing is computed for padding.
        attended_RAD = np.empty_like(q_RAD)
        for tokens, n, size in runs:
            rows, slots = (tokens, None) if rows_R is None else rows_of_run(rows_R, tokens, n)
            q_rAD = q_RAD[rows]
            if slots is not None:
                q_sAD = np.zeros((n * size, *q_rAD.shape[1:]), np.float32)
                q_sAD[slots] = q_rAD
                q_rAD = q_sAD

            q_nArD, k_nASD, v_nASD = (
                x_TAD.reshape(n, -1, *x_TAD.shape[1:]).swapaxes(1, 2) for x_TAD in (q_rAD, k_TAD[tokens], v_TAD[tokens])
            )
            weights_nArS = softmax(q_nArD @ k_nASD.swapaxes(-1, -2))
            attended_rAD = (weights_nArS @ v_nASD).swapaxes(1, 2).reshape(q_rAD.shape)
            attended_RAD[rows] = attended_rAD if slots is None else attended_rAD[slots]
        return attended_RAD.reshape(len(attended_RAD), len(self.attention_output.weight_HO))

    def project(self, x_TH: Array, rows_R: Ids | None) -> Iterable[Array]:
        """Queries of the tokens that are read, and keys and values of all, by heads."""
        if rows_R is None:
            return self.qkv(x_TH).reshape(len(x_TH), 3, self.num_heads, -1).swapaxes(0, 1)

        weight_HO, bias_O = self.qkv
        size = len(bias_O) // 3
        q_RX = Linear(weight_HO[:, :size], bias_O[:size])(x_TH[rows_R])
        kv_TX = Linear(weight_HO[:, size:], bias_O[size:])(x_TH)
        q_RAD = q_RX.reshape(len(q_RX), self.num_heads, size // self.num_heads)
        return q_RAD, *kv_TX.reshape(len(kv_TX), 2, self.num_heads, -1).swapaxes(0, 1)


def rows_of_run(rows_R: Ids, tokens: slice, n: int) -> tuple[slice, Ids | None]:
    """The rows of one run of texts as a slice of all, and their places among the run's tokens: None where each text has
    one row, since a product of one query a text then needs no places.

    rows_R: ascending.
    tokens: of the run.
    n: number of texts in it.
    """
    first, last = np.searchsorted(rows_R, (tokens.start, tokens.stop))
    slots = rows_R[first:last] - tokens.start
    size = (tokens.stop - tokens.start) // n
    is_one_a_text = np.array_equal(slots // size, np.arange(n))
    return slice(first, last), None if is_one_a_text else slots


class Heads:
    """What is computed from hidden states: heads read what `text_states` returns for texts, or the states of tokens.

    parameters: by our names, matrices [in, out].
    words: the word table, whose `rows` and `pieces` are read as needed.
    """

    def __init__(self, config: EncoderConfig, parameters: Mapping[str, Array], words: Any) -> None:
        self.config, self.parameters, self.words = config, parameters, words
        self.act = ACTIVATIONS[config.hidden_act]

    def _linear(self, name: str) -> Linear:
        return Linear(self.parameters[f"{name}.weight"], self.parameters[f"{name}.bias"])

    def _norm(self, name: str) -> Norm:
        return Norm(self.parameters[f"{name}.weight"], self.parameters[f"{name}.bias"], self.config.layer_norm_eps)

    def text_states(self, hidden_TH: Array, lengths: Sequence[int]) -> Array:
        """The vector of each text that heads read: of its first token, or the mean of all, [N, H]."""
        starts_N = np.cumsum(lengths) - np.array(lengths)
        if self.config.pooling == "mean":
            sums_NH: Array = np.add.reduceat(hidden_TH, starts_N)
            return np.divide(sums_NH, np.array(lengths)[:, None], out=sums_NH)
        return hidden_TH[starts_N]

    def pool(self, x_NH: Array) -> Array:
        """From the vector of a text, or of both texts of a pair [N, 2, H], to the input of a head."""
        act = self.config.pooler_act
        if act not in NO_POOLER:
            return ACTIVATIONS[act](self._linear("pooler.dense")(x_NH))
        if act == "none":
            return x_NH

        unit_NH = normalize(x_NH) * np.float32(unit_scale(self.config.hidden_size))
        if act == "unit":
            return unit_NH

        # Reimers 2019, Conneau 2017
        u_NH = unit_NH[:, 0]
        v_NH = unit_NH[:, 1]
        distance_NH = np.abs(u_NH - v_NH)
        if act == "distance":
            return distance_NH
        return np.concatenate([u_NH, v_NH, distance_NH, u_NH * v_NH], 1)

    def scores(self, head: str, x_NH: Array) -> Array:
        """The outputs of a head for vectors of texts or hidden states of tokens, [N, C]."""
        if head in POOLED_HEADS:
            x_NH = self.pool(x_NH)
        if head == "replaced_tokens":
            x_NH = self.act(self._linear(f"heads.{head}.transform")(x_NH))
        return self._linear(f"heads.{head}.output")(x_NH)

    def word_scores(self, x_MH: Array) -> Array:
        """The scores of all words for masked tokens, with the word table as output layer (Press 2017), [M, V]."""
        x_ME = self.act(self._linear("heads.masked_words.transform")(x_MH))
        x_ME = self._norm("heads.masked_words.norm")(x_ME)
        scores_MV: Array = np.concatenate([x_ME @ rows_PE.T for rows_PE in self.words.pieces()], 1)
        scores_MV += self.parameters["heads.masked_words.bias"]
        return scores_MV


class Bert(Heads):
    """BERT and models of its layout, with their heads."""

    def __init__(self, config: EncoderConfig, parameters: Mapping[str, Array], words: Any) -> None:
        super().__init__(config, parameters, words)
        self.layers = [self._layer(f"encoder.layers.{index}.") for index in range(config.num_unique_layers)]

    def _layer(self, name: str) -> BertLayer:
        return BertLayer(
            qkv=self._linear(f"{name}attention.qkv"),
            attention_output=self._linear(f"{name}attention.output"),
            attention_norm=self._norm(f"{name}attention_norm"),
            inner=self._linear(f"{name}feed_forward.inner"),
            output=self._linear(f"{name}feed_forward.output"),
            output_norm=self._norm(f"{name}feed_forward_norm"),
            activation=self.act,
            num_heads=self.config.num_attention_heads,
        )

    def __call__(self, ids_T: Ids, segments_T: Ids, lengths: Sequence[int], rows_R: Ids | None = None) -> Array:
        """The last hidden states, [T, H]; with rows_R, the states of these tokens, [R, H]."""
        x_TH = self.embed(ids_T, segments_T, lengths)
        runs = [*equal_lengths(lengths)]

        depth = self.config.num_hidden_layers
        with np.errstate(over="ignore"):  # of exp in gelu
            for index in range(depth):
                # Fewer layers than the depth are shared (Lan 2020).
                layer = self.layers[index * len(self.layers) // depth]
                x_TH = layer(x_TH, runs, rows_R if index == depth - 1 else None)
        return x_TH

    def embed(self, ids_T: Ids, segments_T: Ids, lengths: Sequence[int]) -> Array:
        """The embeddings of texts of these lengths, [T, H]."""
        return self.embed_at(ids_T, segments_T, np.concatenate([np.arange(length) for length in lengths]))

    def embed_at(self, ids_T: Ids, segments_T: Ids, positions_T: Ids) -> Array:
        """The sum of the embeddings of words, segments and positions, normalized (Devlin 2018, figure 2). [T, H]"""
        table = "encoder.embeddings."
        x_TE: Array = self.words.rows(ids_T)

        if self.config.type_vocab_size == 1:  # RoBERTa has one segment
            segments_T = segments_T * 0
        if self.config.type_vocab_size:
            x_TE = x_TE + self.parameters[f"{table}segments.weight"][segments_T]

        x_TE = x_TE + self.parameters[f"{table}positions.weight"][positions_T + self.config.position_offset]
        x_TE = self._norm(f"{table}norm")(x_TE)

        if f"{table}widen.weight" in self.parameters:  # ALBERT looks tokens up in a narrow table
            return self._linear(f"{table}widen")(x_TE)
        return x_TE


def equal_lengths(lengths: Sequence[int]) -> Iterator[tuple[slice, int, int]]:
    """Each run of texts of one length: its tokens, the number of texts, and their length."""
    end = 0
    for size, run in groupby(lengths):
        n = len([*run])
        end += n * size
        yield slice(end - n * size, end), n, size
