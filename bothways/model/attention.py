"""Multi-head self-attention: softmax(Q K^T / sqrt(D)) V (Vaswani 2017, eq. 1).

Letters: T tokens, H hidden, N heads, D head size; H = N x D, unless heads have been pruned.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from bothways.config import EncoderConfig
from bothways.model.layout import Layout, Sides
from bothways.model.positions import Positions, Prepared


@dataclass(frozen=True)
class Context:
    """Data that all layers share for one batch: the attention layout, and the output of each position module."""

    layout: Layout
    positions: dict[Positions, Prepared]


class Attention(nn.Module):
    def __init__(self, config: EncoderConfig, *, sides: Sides, positions: Positions) -> None:
        super().__init__()
        self.num_heads, self.sides, self.positions = config.num_attention_heads, sides, positions
        self.dropout = config.attention_probs_dropout_prob
        size = config.num_attention_heads * config.head_size  # the hidden size, unless heads have been pruned
        self.qkv = nn.Linear(config.hidden_size, 3 * size, bias=config.linear_bias)
        self.output = nn.Linear(size, config.hidden_size, bias=config.linear_bias)

    def forward(self, x_TH: Tensor, context: Context) -> Tensor:
        """[T, H] -> [T, H]"""
        attended_TH: Tensor = self.output(self.attend(x_TH, self.qkv(x_TH), context))
        return attended_TH

    def attend(self, x_TH: Tensor, qkv_TX: Tensor, context: Context) -> Tensor:
        """Attention before the output projection. qkv: queries, keys and values of x side by side. [T, H]"""
        q_TND, k_TND, v_TND = qkv_TX.unflatten(-1, (3, self.num_heads, -1)).unbind(1)
        q_TND, k_TND = self.positions.rotate(q_TND, k_TND, context.positions[self.positions])
        dropout = self.dropout if self.training else 0.0
        return context.layout.attend(q_TND, k_TND, v_TND, sides=self.sides, dropout=dropout).flatten(1)
