"""Heads: masked language model, classification of texts and tokens, answer spans (Devlin 2018).

See its sections 3.1 and 4. Letters: T tokens, M masked positions, H hidden, E embedding size, V vocabulary, C classes.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bothways.config import EncoderConfig
from bothways.model.kernels import Dropout
from bothways.model.layer import ACTIVATIONS, FeedForward, norm


class MaskedLMHead(nn.Module):
    """Predicts masked words. `forward` stops before the output embeddings, which are tied to the token table.
    [M, H] -> [M, E]"""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        size = config.embedding_size or config.hidden_size
        self.transform = nn.Linear(config.hidden_size, size, bias=config.head_bias)
        self.activation = ACTIVATIONS[config.hidden_act]
        self.norm = nn.LayerNorm(size, eps=config.layer_norm_eps, bias=config.norm_bias)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, x_MH: Tensor) -> Tensor:
        transformed: Tensor = self.norm(self.activation(self.transform(x_MH)))
        return transformed

    def scores(self, x_MH: Tensor, table_VE: Tensor) -> Tensor:
        """Logits over the vocabulary, with tied embeddings (Press & Wolf 2017). [M, V]"""
        return F.linear(self(x_MH), table_VE, self.bias)


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
        return F.linear(self.dropout(x).to(dtype), self.output.weight.to(dtype), self.output.bias.to(dtype))


class AnswerHead(ClassificationHead):
    """Start and end logits, after one more feed-forward layer with residual and norm (BigBird). [T, H] -> [T, 2]"""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config.replace(classifier_dropout=0.0), 2)
        self.feed_forward, self.norm = FeedForward(config), norm(config)
        self.inner_dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.norm(x + self.inner_dropout(self.feed_forward(self.inner_dropout(x)))))
