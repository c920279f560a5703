"""The encoder: embeddings and a stack of layers, from token ids to hidden states [T, H].

The batch is ragged throughout; only attention depends on which tokens form a text, through the layout.
"""

from torch import Tensor, nn

from bothways.batch import Batch
from bothways.config import EncoderConfig
from bothways.model.attention import Context
from bothways.model.build_layers import build_layers
from bothways.model.embeddings import Embeddings
from bothways.model.layer import norm
from bothways.model.layout import Layout, choose_layout
from bothways.model.positions import Positions


class Encoder(nn.Module):
    adds_rows = False  # whether it adds rows to each text (adapters/rows.py)

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.layers, self.shared = build_layers(config)
        self.final_norm = norm(config) if config.norm == "pre" else nn.Identity()
        self.positions = [module for module in self.modules() if isinstance(module, Positions)]

    def forward(self, batch: Batch, context: Context | None = None) -> Tensor:
        """The last hidden states, [T, H], in the order of the batch's tokens."""
        context = context or self.build_context(batch)
        x_TH = self.embeddings(batch)
        for layer in self.layer_sequence:
            x_TH = layer(x_TH, context)
        last_TH: Tensor = self.final_norm(x_TH)
        return last_TH

    @property
    def layer_sequence(self) -> list[nn.Module]:
        """The layers in the order of application; shared layers occur several times (Lan 2020, section 3.1)."""
        depth = self.config.num_hidden_layers
        return [self.layers[index * len(self.layers) // depth] for index in range(depth)]

    def build_context(self, batch: Batch, layout: Layout | None = None) -> Context:
        """The context that the layers share for this batch. layout: None chooses the best one for device and dtype."""
        weight = self.embeddings.words.weight
        dropout = self.config.attention_probs_dropout_prob if self.training else 0.0
        has_bias = any(positions.biases for positions in self.positions)
        layout = layout or choose_layout(batch.lengths, weight.device, weight.dtype, dropout, has_bias)
        return Context(
            layout, {positions: positions.prepare(batch, layout, weight.dtype) for positions in self.positions}
        )
