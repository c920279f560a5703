"""An encoder of two one-way stacks, left to right and right to left, concatenated at the end.

Each stack has half the width; both share one embedding table. Peters 2018 concatenates two directions in this way;
Devlin 2018, section 5.1, compares BERT with it.
"""

import torch
from torch import Tensor, nn

from bothways.batch import Batch
from bothways.config import EncoderConfig
from bothways.model.attention import Context
from bothways.model.build_layers import build_layers
from bothways.model.encoder import Encoder
from bothways.model.positions import Positions


class Halves(Encoder):
    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config.half("forward"))
        self.config, self.back = config, nn.ModuleDict({"layers": build_layers(config.half("backward"))[0]})
        self.positions += [module for module in self.back.modules() if isinstance(module, Positions)]

    def forward(self, batch: Batch, context: Context | None = None) -> Tensor:
        """[T, H]: H/2 features from the tokens before and H/2 from the tokens after."""
        context = context or self.build_context(batch)
        forward_TH = backward_TH = self.embeddings(batch)
        backward_layers = self.back["layers"]
        assert isinstance(backward_layers, nn.ModuleList)
        for forward_layer, backward_layer in zip(self.layers, backward_layers, strict=True):
            forward_TH, backward_TH = forward_layer(forward_TH, context), backward_layer(backward_TH, context)
        return torch.cat([forward_TH, backward_TH], dim=-1)
