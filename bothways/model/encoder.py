"""The stack: ids in, a vector a token out. The batch is ragged, [T, H] throughout; only attention asks the layout."""

from torch import Tensor, nn

from bothways.batch import Batch
from bothways.config import EncoderConfig
from bothways.model import layout
from bothways.model.attention import Context
from bothways.model.embeddings import Embeddings
from bothways.model.layer import norm
from bothways.model.parts import layers_of
from bothways.model.positions import Positions


class Encoder(nn.Module):
    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.layers, self.shared = layers_of(config)
        self.final_norm = norm(config) if config.norm == "pre" else nn.Identity()
        self.positions = [part for part in self.modules() if isinstance(part, Positions)]

    def forward(self, batch: Batch, context: Context | None = None) -> Tensor:
        """The last hidden states, [T, H], one row a token of the batch, in its order."""
        context = context or self.context(batch)
        x_TH = self.embeddings(batch)
        for layer in self.in_turn:
            x_TH = layer(x_TH, context)
        last_TH: Tensor = self.final_norm(x_TH)
        return last_TH

    @property
    def in_turn(self) -> list[nn.Module]:
        """The layers in the order of their use; shared ones several times (Lan 2020, section 3.1)."""
        number = self.config.num_hidden_layers
        return [self.layers[index * len(self.layers) // number] for index in range(number)]

    def context(self, batch: Batch, places: layout.Layout | None = None) -> Context:
        """What the layers share of this batch. places: a layout other than the best one for this device and dtype."""
        weight = self.embeddings.words.weight
        dropout = self.config.attention_probs_dropout_prob if self.training else 0.0
        biased = any(part.biases for part in self.positions)
        places = places or layout.choose(batch.lengths, weight.device, weight.dtype, dropout, biased)
        return Context(places, {part: part.prepare(batch, places, weight.dtype) for part in self.positions})
