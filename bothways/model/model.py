"""The model: an encoder with named heads, and weight initialization.

Heads: masked_words, next_sentence (or sentence order), replaced_tokens, classes (of texts), tokens (a class per token),
spans (start and end of an answer).
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from bothways.model.attention import Context
from bothways.model.config import NUM_OUTPUTS, EncoderConfig
from bothways.model.encoder import Encoder, TwoStackEncoder
from bothways.model.heads import (
    AnswerHead,
    ClassificationHead,
    MaskedLMHead,
    ReplacedTokensHead,
    build_pooler,
    num_features,
    pool_texts,
)
from bothways.model.kernels import append_dummy_rows, append_dummy_text
from bothways.text.batch import Batch

# Heads of their own kind; all others are linear classifiers, for classes and tokens with one output per label.
HEAD_MODULES: dict[str, type[nn.Module]] = {
    "masked_words": MaskedLMHead,
    "replaced_tokens": ReplacedTokensHead,
}


class Model(nn.Module):
    """An encoder with heads. A new model has torch's initial weights: see `initialize`.

    config: sizes and architecture of the encoder.
    heads: name -> number of outputs.
    pooler: build one even if no head needs it (published encoders include it).
    """

    adapter: Any = None  # describes the adapter that is part of the encoder (bothways/model/adapters)

    def __init__(self, config: EncoderConfig, heads: Mapping[str, int] | None = None, *, pooler: bool = False) -> None:
        super().__init__()
        self.config = config
        self.num_outputs = dict(heads or {})
        self.encoder = build_encoder(config)
        # Global tokens depend on the task: Longformer has them on the question, or on [CLS].
        for positions in self.encoder.positions:
            positions.heads = frozenset(self.num_outputs)
        self.pooler = build_pooler(config, self.num_outputs.keys(), pooler)
        self.heads = nn.ModuleDict(
            {name: build_head(name, config, num_outputs) for name, num_outputs in self.num_outputs.items()}
        )

    def forward(self, batch: Batch, context: Context | None = None, rows_R: Tensor | None = None) -> Tensor:
        """The last hidden states, [T, H]; with rows_R, the states of these tokens, [R, H], for which the last layer
        computes only them."""
        # A context belongs to the tokens of its batch, so only a batch without one gets more of them.
        padded = batch
        if context is None:
            padded = append_dummy_text(batch, self.encoder.embeddings.words.weight)

        if rows_R is not None:
            padded_rows = append_dummy_rows(rows_R, self.encoder.embeddings.words.weight)
            hidden_RH: Tensor = self.encoder(padded, context, padded_rows)
            return hidden_RH[: len(rows_R)]

        hidden_TH: Tensor = self.encoder(padded, context)
        if padded is batch:
            return hidden_TH  # an exported graph has no slice
        return hidden_TH[: batch.num_tokens]

    def word_scores(self, x_MH: Tensor) -> Tensor:
        """Logits over the vocabulary for the hidden states of masked tokens, [M, V]."""
        head = self.heads["masked_words"]
        assert isinstance(head, MaskedLMHead)
        return head.scores(x_MH, self.encoder.embeddings.words.weight)

    def text_states(self, hidden_TH: Tensor, batch: Batch) -> Tensor:
        """One vector per text by the config's pooling, usually the first token's hidden state. [N, H]"""
        return pool_texts(self.config, hidden_TH, batch)

    def text_scores(self, name: str, first_NH: Tensor) -> Tensor:
        """Logits of a head for texts, from their vectors, [N, C]."""
        assert self.pooler is not None
        scores: Tensor = self.heads[name](self.pooler(first_NH))
        return scores

    def token_scores(self, name: str, x_TH: Tensor) -> Tensor:
        """Logits of a head for each token (`tokens`, `spans`, `replaced_tokens`), [T, C]."""
        if self.config.pooler_norm and self.pooler is not None:
            x_TH = self.pooler(x_TH)
        scores: Tensor = self.heads[name](x_TH)
        return scores


def build_encoder(config: EncoderConfig) -> Encoder:
    """The encoder with this config."""
    if config.is_static:
        from bothways.model.static import StaticEncoder

        return StaticEncoder(config)
    return TwoStackEncoder(config) if config.direction == "halves" else Encoder(config)


def build_head(name: str, config: EncoderConfig, num_outputs: int) -> nn.Module:
    """The head of this name.

    name: one of the heads that the module's description lists.
    config: of the encoder.
    num_outputs: number of classes, for heads on classes and tokens.
    """
    if name in HEAD_MODULES:
        return HEAD_MODULES[name](config)
    if name == "spans" and config.deep_heads:
        return AnswerHead(config)
    if name in ("classes", "tokens"):
        return ClassificationHead(config, num_outputs, num_features(config, name))

    # google-research/bert has no dropout before spans and next_sentence.
    return ClassificationHead(config.replace(classifier_dropout=0.0), NUM_OUTPUTS[name])


def initialize(module: nn.Module, std: float, generator: torch.Generator) -> None:
    """Normal weights, truncated at two standard deviations, and zero biases (google-research/bert).

    module: all its linear layers, embeddings and convolutions are initialized, in place.
    std: standard deviation (BERT: 0.02).
    generator: of the random numbers.
    """
    for layer in module.modules():
        if isinstance(layer, (nn.Linear, nn.Embedding, nn.Conv1d)):
            nn.init.trunc_normal_(layer.weight, std=std, a=-2 * std, b=2 * std, generator=generator)
        if isinstance(layer, (nn.Linear, nn.Conv1d)) and layer.bias is not None:
            nn.init.zeros_(layer.bias)
