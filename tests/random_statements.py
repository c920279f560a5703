"""A random head of statements, for models that decide."""

import torch

from bothways.model.statement_head import StatementHead
from bothways.model.statements import StatementModel


def random_statements(config, rank=4) -> StatementHead:
    """For an encoder with this configuration; its gates are open."""
    statements = StatementModel(config, rank)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, values in statements.named_parameters():
            if name.endswith("up") or name in ("gates", "linear.weight"):
                values.copy_(torch.randn(values.shape, generator=generator))
        statements.linear.bias.fill_(0.5)
    return statements.to_head()
