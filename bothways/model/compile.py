"""Compile layers with torch.compile, except attention and dropout, whose shapes change every batch.

Compilation takes half a minute. It pays on GPUs and wherever matrix products are fast (docs/LOG.md).
"""

import torch

from bothways.model import global_attention, heads, kernels, layout
from bothways.model.layer import Layer
from bothways.model.model import Model


def compile_layers(model: Model) -> None:
    """Compile the token-wise parts of each layer, in place, once for all layers and any number of tokens.

    The compiled code depends on the first batch, so reproducible runs need the same first batch.
    """
    for owner, name in (
        (layout.Bucketed, "attend"),
        (layout.Varlen, "attend"),
        (global_attention.Pattern, "attend"),
        (global_attention.RandomBlockAttention, "attend_in_blocks"),
        (global_attention.GlobalAttention, "attend_globally"),
        (kernels, "apply_dropout"),
    ):
        function = getattr(owner, name)
        if not getattr(function, "_torchdynamo_disable", False):
            setattr(owner, name, torch.compiler.disable(function))
    for layer in model.encoder.modules():
        if isinstance(layer, Layer):
            layer.compile(dynamic=True)
    for head in model.heads.values():
        if isinstance(head, heads.MaskedLMHead):
            head.compile(dynamic=True)
