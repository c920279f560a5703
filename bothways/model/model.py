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
from bothways.model.encoder import Encoder, Halves
from bothways.model.heads import (
    AnswerHead,
    ClassificationHead,
    MaskedLMHead,
    ReplacedTokensHead,
    build_pooler,
    num_features,
    pool_texts,
)
from bothways.model.kernels import append_dummy_text
from bothways.text.batch import Batch

HEAD_MODULES: dict[str, type[nn.Module]] = {"masked_words": MaskedLMHead, "replaced_tokens": ReplacedTokensHead}
# Heads for classes and tokens have one output per label.


class Model(nn.Module):
    """An encoder with heads. heads: name -> number of outputs.

    pooler: build one even if no head needs it (published encoders include it). The attribute `adapter` describes the
    adapter that is part of the encoder (bothways/model/adapters); None if there is none.
    """

    adapter: Any = None

    def __init__(self, config: EncoderConfig, heads: Mapping[str, int] | None = None, *, pooler: bool = False) -> None:
        super().__init__()
        self.config, self.num_outputs = config, dict(heads or {})
        self.encoder = Halves(config) if config.direction == "halves" else Encoder(config)
        for positions in self.encoder.positions:
            positions.heads = frozenset(self.num_outputs)
        self.pooler = build_pooler(config, self.num_outputs.keys(), pooler)
        self.heads = nn.ModuleDict({name: build_head(name, config, size) for name, size in self.num_outputs.items()})

    def forward(self, batch: Batch, context: Context | None = None) -> Tensor:
        """The last hidden states, [T, H]."""
        padded = batch if context is not None else append_dummy_text(batch, self.encoder.embeddings.words.weight)
        hidden_TH: Tensor = self.encoder(padded, context)
        return hidden_TH if padded is batch else hidden_TH[: batch.num_tokens]  # an exported graph has no slice

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


def build_head(name: str, config: EncoderConfig, num_outputs: int) -> nn.Module:
    if name in HEAD_MODULES or (name == "spans" and config.deep_heads):
        return HEAD_MODULES.get(name, AnswerHead)(config)
    if name in ("classes", "tokens"):
        return ClassificationHead(config, num_outputs, num_features(config, name))
    # google-research/bert has no dropout before spans and next_sentence.
    return ClassificationHead(config.replace(classifier_dropout=0.0), NUM_OUTPUTS[name])


def initialize(module: nn.Module, std: float, generator: torch.Generator) -> None:
    """Normal weights of this standard deviation, truncated at two, and zero biases (google-research/bert; BERT:
    0.02)."""
    for layer in module.modules():
        if isinstance(layer, (nn.Linear, nn.Embedding, nn.Conv1d)):
            nn.init.trunc_normal_(layer.weight, std=std, a=-2 * std, b=2 * std, generator=generator)
        if isinstance(layer, (nn.Linear, nn.Conv1d)) and layer.bias is not None:
            nn.init.zeros_(layer.bias)
