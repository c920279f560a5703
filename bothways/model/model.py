"""Encoder + named heads, and how weights begin.

Heads by name: masked_words, next_sentence (or the order of two), replaced_tokens, classes (texts), tokens (a class a
token), spans (start and end of an answer).
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from bothways.batch import Batch
from bothways.config import EncoderConfig
from bothways.model.attention import Context
from bothways.model.encoder import Encoder
from bothways.model.halves import Halves
from bothways.model.heads import AnswerHead, ClassificationHead, MaskedLMHead, ReplacedTokensHead
from bothways.model.kernels import append_dummy_text
from bothways.model.pooler import build_pooler, pool_texts

WHOLE: dict[str, type[nn.Module]] = {"masked_words": MaskedLMHead, "replaced_tokens": ReplacedTokensHead}
# Classes and tokens have as many as there are labels.
OUTPUTS = {"masked_words": 0, "next_sentence": 2, "replaced_tokens": 1, "spans": 2}


class Model(nn.Module):
    """An encoder with the heads asked for; heads: name -> number of outputs.

    pooler: whether there is one without a head that needs it (published encoders carry it).
    """

    def __init__(self, config: EncoderConfig, heads: Mapping[str, int] | None = None, *, pooler: bool = False) -> None:
        super().__init__()
        self.config, self.num_outputs = config, dict(heads or {})
        self.encoder = (Halves if config.direction == "halves" else Encoder)(config)
        for part in self.encoder.positions:
            part.heads = frozenset(self.num_outputs)
        self.pooler = build_pooler(config, self.num_outputs.keys(), pooler)
        self.heads = nn.ModuleDict({name: build_head(name, config, size) for name, size in self.num_outputs.items()})

    def forward(self, batch: Batch, context: Context | None = None) -> Tensor:
        """The last hidden states, [T, H]."""
        whole = batch if context else append_dummy_text(batch, self.encoder.embeddings.words.weight)
        hidden_TH: Tensor = self.encoder(whole, context)
        return hidden_TH if whole is batch else hidden_TH[: batch.num_tokens]  # never cut where it is exported

    def word_scores(self, x_MH: Tensor) -> Tensor:
        """Vocabulary scores of hidden states at the places one wants to guess, [M, V]."""
        head = self.heads["masked_words"]
        assert isinstance(head, MaskedLMHead)
        return head.scores(x_MH, self.encoder.embeddings.words.weight)

    def text_states(self, hidden_TH: Tensor, batch: Batch) -> Tensor:
        """The hidden state that stands for each text, most often its first token's. [N, H]"""
        return pool_texts(self.config, hidden_TH, batch)

    def text_scores(self, name: str, first_NH: Tensor) -> Tensor:
        """Scores of a head for whole texts, from the hidden states that stand for them, [N, C]."""
        assert self.pooler is not None
        scores: Tensor = self.heads[name](self.pooler(first_NH))
        return scores

    def token_scores(self, name: str, x_TH: Tensor) -> Tensor:
        """Scores of a head for each token (`tokens`, `spans`, `replaced_tokens`), [T, C]."""
        if self.config.pooler_norm and self.pooler is not None:
            x_TH = self.pooler(x_TH)
        scores: Tensor = self.heads[name](x_TH)
        return scores


def build_head(name: str, config: EncoderConfig, num_outputs: int) -> nn.Module:
    if name in WHOLE or (name == "spans" and config.deep_heads):
        return WHOLE.get(name, AnswerHead)(config)
    if name in ("classes", "tokens"):
        return ClassificationHead(config, num_outputs)
    # No dropout before these two (google-research/bert).
    return ClassificationHead(config.replace(classifier_dropout=0.0), OUTPUTS[name])


def initialize(module: nn.Module, std: float, generator: torch.Generator) -> None:
    """Begin with normal weights of the given deviation, biases 0, norms 1 (Devlin 2018's code; BERT uses 0.02).

    BERT's own truncates at two deviations; a generator of the caller's makes the result a function of its seed.
    """
    for part in module.modules():
        if isinstance(part, (nn.Linear, nn.Embedding, nn.Conv1d)):
            nn.init.trunc_normal_(part.weight, std=std, a=-2 * std, b=2 * std, generator=generator)
        if isinstance(part, (nn.Linear, nn.Conv1d)) and part.bias is not None:
            nn.init.zeros_(part.bias)
