"""Layers through torch.compile, with attention and random bits left outside, where their shapes change every batch.

Worth its half minute on GPUs and where matrix products are so fast that the rest shows (docs/LOG.md); elsewhere not.
"""

import torch

from bothways.model import global_attention, heads, kernels, layout
from bothways.model.layer import Layer
from bothways.model.model import Model


def compile_layers(model: Model) -> None:
    """Compile each layer's token-wise parts (in place; all layers share one compilation), the number of tokens free.

    What is compiled depends on the first batch seen, so show it the same one first in every run that is to repeat.
    """
    for owner, name in (
        (layout.Bucketed, "attend"),
        (layout.Varlen, "attend"),
        (global_attention.Pattern, "attend"),
        (global_attention.BlockAttention, "among"),
        (global_attention.GlobalAttention, "far"),
        (kernels, "dropped"),
    ):
        plain = getattr(owner, name)
        if not getattr(plain, "_torchdynamo_disable", False):
            setattr(owner, name, torch.compiler.disable(plain))
    for layer in model.encoder.modules():
        if isinstance(layer, Layer):
            layer.compile(dynamic=True)
    for head in model.heads.values():
        if isinstance(head, heads.MaskedLMHead):
            head.compile(dynamic=True)
