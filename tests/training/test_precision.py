"""Loss scaling for float16: an overflow skips the step and halves the scale, good steps double it."""

import pytest
import torch

from bothways.training import optimizer as precision
from bothways.training.optimizer import LossScale


def test_other_formats_are_not_scaled():
    for dtype in (torch.float32, torch.bfloat16):
        scale = LossScale.for_dtype(dtype)
        assert scale.value == 1 and not scale.skips(float("inf")) and scale.metrics(1.0) == {}
        assert scale.update(float("inf")) == scale


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_an_overflow_is_skipped_and_halves_and_good_steps_double(bad, monkeypatch):
    monkeypatch.setattr(precision, "GROWTH_INTERVAL", 3)
    scale = LossScale.for_dtype(torch.float16)
    assert scale.value == 65536 and scale.skips(bad) and not scale.skips(1.0)
    assert scale.metrics(bad) == {"scale": 65536, "skipped": True} and scale.metrics(1.0) == {
        "scale": 65536,
        "skipped": False,
    }
    values = []
    for norm in (1.0, bad, 1.0, 1.0, 1.0, 1.0, bad):
        scale = scale.update(norm)
        values.append(scale.value)
    assert values == [65536, 32768, 32768, 32768, 65536, 65536, 32768]


def test_a_scale_that_cannot_shrink_any_more_skips_nothing():
    assert not LossScale(precision.MIN_SCALE, dynamic=True).skips(float("inf"))
