"""Parameters of a test which `make soak` runs and `make test` leaves out: the marker `soak` (tests/conftest.py)."""

import pytest


def in_soak(*values):
    """["bert", *in_soak("roberta", "albert")]: the test of one value stays, and those of the others run in soak."""
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.soak) for value in values
    ]
