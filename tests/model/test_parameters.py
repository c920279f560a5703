"""Uninitialized modules: no random draws, the requested number format, no heavy imports."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from bothways.model.parameters import no_init


def test_parameters_have_the_number_format_and_no_value_is_drawn(global_seed):
    torch.manual_seed(0)
    before = torch.get_rng_state()
    with no_init(torch.bfloat16):
        made = nn.ModuleList([nn.Linear(5, 7), nn.Embedding(11, 3), nn.LayerNorm(3)])
    assert {value.dtype for value in made.parameters()} == {torch.bfloat16}
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_default_dtype() == torch.float32 and nn.Linear(2, 2).weight.dtype == torch.float32
    assert not torch.equal(torch.get_rng_state(), before)


def test_an_error_within_leaves_the_number_format_as_it_was():
    try:
        with no_init(torch.bfloat16):
            raise KeyError
    except KeyError:
        pass
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.slow
def test_torchs_compiler_stays_unloaded():
    code = (
        "import sys, torch; from bothways.model.parameters import no_init; before = len(sys.modules)\n"
        "with no_init(torch.bfloat16): torch.nn.Embedding(3, 3); torch.nn.Linear(3, 3); torch.nn.LayerNorm(3)\n"
        "assert len(sys.modules) == before\n"
        "from bothways.model.linear.linear_head import _LBFGS\n"
        "_LBFGS([torch.nn.Parameter(torch.zeros(3))]).zero_grad()\n"
        "assert 'torch._dynamo' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
