"""Two stacks of half the width over one table, of which one looks ahead and one back, joined at the end (as Peters 2018
joins its two directions). What BERT's authors compared theirs with (Devlin 2018, section 5.1)."""

import torch
from torch import Tensor, nn

from bothways.batch import Batch
from bothways.config import EncoderConfig
from bothways.model.attention import Context
from bothways.model.encoder import Encoder
from bothways.model.parts import layers_of
from bothways.model.positions import Positions


class Halves(Encoder):
    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config.half("forward"))
        self.config, self.back = config, nn.ModuleDict({"layers": layers_of(config.half("backward"))[0]})
        self.positions += [part for part in self.back.modules() if isinstance(part, Positions)]

    def forward(self, batch: Batch, context: Context | None = None) -> Tensor:
        """[T, H]: H/2 numbers that know what stands before and H/2 that know what stands behind."""
        context = context or self.context(batch)
        ahead_TH = back_TH = self.embeddings(batch)
        layers = self.back["layers"]
        assert isinstance(layers, nn.ModuleList)
        for ahead, back in zip(self.layers, layers, strict=True):
            ahead_TH, back_TH = ahead(ahead_TH, context), back(back_TH, context)
        return torch.cat([ahead_TH, back_TH], dim=-1)
