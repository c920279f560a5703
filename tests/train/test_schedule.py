"""The learning rate over a run, by hand."""

import pytest

from bothways.train.schedule import linear


def test_the_rate_rises_in_a_line_then_falls_in_one():
    shares = [linear(step, steps=10, warmup=0.4) for step in range(10)]
    assert shares == pytest.approx([1 / 5, 2 / 5, 3 / 5, 4 / 5, 6 / 6, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6])


@pytest.mark.parametrize(("steps", "warmup"), [(1, 0.1), (2, 0.1), (1, 0.0), (7, 0.0), (7, 1.0), (1000, 0.06)])
def test_every_step_learns_and_none_above_the_peak(steps, warmup):
    shares = [linear(step, steps=steps, warmup=warmup) for step in range(steps)]
    assert all(0 < share <= 1 for share in shares)
    peak = shares.index(max(shares))
    assert shares[: peak + 1] == sorted(shares[: peak + 1])
    assert shares[peak:] == sorted(shares[peak:], reverse=True)


def test_a_long_run_reaches_its_peak_after_the_warm_up():
    assert linear(100, steps=1000, warmup=0.1) == 1.0
    assert linear(999, steps=1000, warmup=0.1) == pytest.approx(1 / 900)
