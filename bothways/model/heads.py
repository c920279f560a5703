"""Heads: masked language model, classification of texts and tokens, answer spans (Devlin 2018); pooling.

See its sections 3.1 and 4. The pooler is between the vector of a text and a head. Letters: N texts, T tokens, M masked
positions, H hidden, E embedding size, V vocabulary, C classes.
"""

from collections.abc import Collection

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bothways.base.device import copy_to
from bothways.model.config import POOLED_HEADS, EncoderConfig, unit_scale
from bothways.model.dropout import Dropout
from bothways.model.layer import ACTIVATIONS, FeedForward, norm
from bothways.text.batch import Batch

SLOPE = 0.125  # slope of a near-identity pooler; a power of two, exact in bf16


class MaskedLMHead(nn.Module):
    """Predicts masked words. `forward` stops before the output embeddings, which are tied to the token table."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        size = config.embedding_size or config.hidden_size
        self.transform = nn.Linear(config.hidden_size, size, bias=config.head_bias)
        self.activation = ACTIVATIONS[config.hidden_act]
        self.norm = nn.LayerNorm(size, eps=config.layer_norm_eps, bias=config.norm_bias)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, x_MH: Tensor) -> Tensor:
        """[M, H] -> [M, E]"""
        transformed: Tensor = self.norm(self.activation(self.transform(x_MH)))
        return transformed

    def scores(self, x_MH: Tensor, table_VE: Tensor) -> Tensor:
        """Logits over the vocabulary, with tied embeddings (Press & Wolf 2017). [M, V]"""
        transformed_ME = self(x_MH)
        return F.linear(transformed_ME, table_VE, self.bias)


class ReplacedTokensHead(nn.Module):
    """Logit per token: was it replaced by the generator (Clark 2020, section 2)? [T, H] -> [T, 1]"""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.transform = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = ACTIVATIONS[config.hidden_act]
        self.output = nn.Linear(config.hidden_size, 1)

    def forward(self, x_TH: Tensor) -> Tensor:
        scores_T1: Tensor = self.output(self.activation(self.transform(x_TH)))
        return scores_T1


class ClassificationHead(nn.Module):
    """Logits of C classes for texts (from pooled vectors) or tokens; C = 1 for regression. [*, H] -> [*, C]

    Computes in float32 even if the encoder does not: with bf16's three digits, different scores would become equal.
    """

    def __init__(self, config: EncoderConfig, num_classes: int, input_size: int | None = None) -> None:
        super().__init__()
        self.dropout = Dropout(config.head_dropout)
        self.output = nn.Linear(input_size or config.hidden_size, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        dtype = torch.promote_types(x.dtype, torch.float32)
        dropped = self.dropout(x).to(dtype)
        return F.linear(dropped, self.output.weight.to(dtype), self.output.bias.to(dtype))


class AnswerHead(ClassificationHead):
    """Start and end logits, after one more feed-forward layer with residual and norm (BigBird). [T, H] -> [T, 2]"""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config.replace(classifier_dropout=0.0), 2)
        self.feed_forward = FeedForward(config)
        self.norm = norm(config)
        self.inner_dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.inner_dropout(self.feed_forward(self.inner_dropout(x)))
        return super().forward(self.norm(x + inner))


class Pooler(nn.Module):
    """BERT's pooler: tanh (or another activation) of a linear layer. [N, H] -> [N, H]"""

    def __init__(self, config: EncoderConfig, activation: str) -> None:
        super().__init__()
        dropout = config.head_dropout if config.pooler_dropout else 0.0
        self.dropout = Dropout(dropout)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size, bias=config.head_bias)
        self.activation = ACTIVATIONS[activation]
        self.norm = norm(config) if config.pooler_norm else nn.Identity()

    def forward(self, first_NH: Tensor) -> Tensor:
        pooled_NH: Tensor = self.norm(self.activation(self.dense(self.dropout(first_NH))))
        return pooled_NH


def build_pooler(config: EncoderConfig, heads: Collection[str], pooler: bool) -> nn.Module | None:
    """The module between a text's vector and a head: Pooler, UnitLength, Distance, PairFeatures or the identity (none).
    None if no head reads text vectors.

    config: of the encoder; `pooler_act` chooses the module.
    heads: names of the model's heads.
    pooler: build one even if no head reads text vectors.
    """
    names = set(heads) - {"masked_words"}
    reads_texts = not names.isdisjoint(POOLED_HEADS)
    reads_normed_tokens = bool(names) and config.pooler_norm  # ModernBERT's heads on tokens go through the pooler
    if not (pooler or reads_texts or reads_normed_tokens):
        return None

    if config.pooler_act == "unit":
        return UnitLength(config.hidden_size)
    if config.pooler_act == "distance":
        return Distance(config.hidden_size)
    if config.pooler_act == "pair":
        return PairFeatures(config.hidden_size)
    if config.pooler_act == "none":
        return nn.Identity()

    activation: str = config.pooler_act
    if config.deep_heads and "classes" in names:
        activation = config.hidden_act
    return Pooler(config, activation)


def num_features(config: EncoderConfig, head: str) -> int:
    """The number of features that a head reads."""
    if head == "classes" and config.pooler_act == "pair":
        return 4 * config.hidden_size
    return config.hidden_size


class UnitLength(nn.Module):
    """Vectors scaled to the same length, as for cosine similarity. [N, H] -> [N, H]

    The length is a power of two near sqrt(H), so that the head's inputs are about as large as other hidden states.
    """

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.length = unit_scale(hidden_size)

    def forward(self, x_NH: Tensor) -> Tensor:
        dtype = torch.promote_types(x_NH.dtype, torch.float32)
        unit_NH = F.normalize(x_NH.to(dtype))
        return (self.length * unit_NH).to(x_NH.dtype)


class Distance(UnitLength):
    """|u - v| of a pair's vectors, each of a text encoded separately and scaled to the same length (Reimers 2019,
    section 3). [N, 2, H] -> [N, H]"""

    def forward(self, x_N2H: Tensor) -> Tensor:
        u_NH, v_NH = self.scale_pair(x_N2H)
        return (u_NH - v_NH).abs()

    def scale_pair(self, x_N2H: Tensor) -> tuple[Tensor, ...]:
        """Both vectors of each pair, scaled, [N, H] each."""
        scaled_XH = super().forward(x_N2H.flatten(0, 1))
        return scaled_XH.unflatten(0, (-1, 2)).unbind(1)


class PairFeatures(Distance):
    """u, v, |u - v| and u * v of such vectors (Conneau 2017, section 3.1). [N, 2, H] -> [N, 4H]"""

    def forward(self, x_N2H: Tensor) -> Tensor:
        u_NH, v_NH = self.scale_pair(x_N2H)
        distance_NH = (u_NH - v_NH).abs()
        return torch.cat([u_NH, v_NH, distance_NH, u_NH * v_NH], 1)


def initialize_near_identity(pooler: nn.Module) -> None:
    """Initialize a pooler as the identity up to scale and offset: its weights are so small that the activation is
    nearly linear, or for ReLU shifted to where it is linear."""
    assert isinstance(pooler, Pooler)
    dense = pooler.dense
    with torch.no_grad():
        dense.weight.copy_(SLOPE * torch.eye(len(dense.weight)))
        if pooler.activation is ACTIVATIONS["relu"] and dense.bias is not None:
            dense.bias.fill_(1.0)


def pool_texts(config: EncoderConfig, hidden_TH: Tensor, batch: Batch) -> Tensor:
    """The hidden state of the first token, the mean of all tokens, or where the first token sees only itself the state
    of the last one. [N, H]

    config: of the encoder; its `pooling` and `direction` choose.
    hidden_TH: the last hidden states.
    batch: the tokens.
    """
    if config.pooling == "mean":
        return mean_pool(hidden_TH, batch.lengths)

    if config.direction == "both":
        return hidden_TH[batch.first_tokens]

    # A one-way state has seen the whole text at its end: left to right at the last token, right to left at the first.
    last_NH = hidden_TH[batch.last_tokens]
    if config.direction == "forward":
        return last_NH
    first_NH = hidden_TH[batch.first_tokens]
    forward_NX, _ = last_NH.chunk(2, -1)
    _, backward_NX = first_NH.chunk(2, -1)
    return torch.cat([forward_NX, backward_NX], -1)


def mean_pool(x_TH: Tensor, lengths_N: Tensor) -> Tensor:
    """The mean over the tokens of each text, [N, H]."""
    lengths_N = copy_to(lengths_N, x_TH.device)
    text_T = torch.arange(len(lengths_N), device=x_TH.device).repeat_interleave(lengths_N, output_size=len(x_TH))

    # In half precision a sum of several hundred rows hardly grows any more.
    dtype = torch.promote_types(x_TH.dtype, torch.float32)
    zeros_NH = x_TH.new_zeros(len(lengths_N), x_TH.shape[1], dtype=dtype)
    sums_NH = zeros_NH.index_add(0, text_T, x_TH.to(dtype))
    return (sums_NH / lengths_N[:, None]).to(x_TH.dtype)
