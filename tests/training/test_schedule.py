"""Learning rate schedules, checked by hand."""

from typing import get_args

import pytest

from bothways.training import schedule as schedules
from bothways.training.schedule import (
    SCHEDULES,
    Schedule,
    constant,
    cosine,
    learning_rate_factor,
    linear,
    one_cycle,
    warmup_stable_decay,
)


def shares_of(schedule, steps, warmup, **options):
    return [schedule(step, steps=steps, warmup=warmup, **options) for step in range(steps)]


def test_the_rate_rises_in_a_line_then_falls_in_one():
    expected = [1 / 5, 2 / 5, 3 / 5, 4 / 5, 6 / 6, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6]
    assert shares_of(linear, 10, 0.4) == pytest.approx(expected)


def test_cosine_falls_along_half_a_cosine():
    expected = [1 / 3, 2 / 3, 1.0, (1 + 2**-0.5) / 2, 0.5, (1 - 2**-0.5) / 2]
    assert shares_of(cosine, 6, 1 / 3) == pytest.approx(expected)


def test_one_cycle_rises_from_a_25th_to_the_peak_and_falls_far_below():
    expected = [0.04, 0.04 + 0.96 * 0.25, 0.04 + 0.96 * 0.75, 1.0, (1 + 4e-6) / 2, 4e-6]
    assert shares_of(one_cycle, 6, 0.5) == pytest.approx(expected)


def test_warm_up_stable_decay_stays_at_the_peak_until_the_last_part(monkeypatch):
    monkeypatch.setattr(schedules, "DECAY", 4 / 11)
    expected = [1 / 3, 2 / 3, 1, 1, 1, 1, 1, 1, 3 / 4, 2 / 4, 1 / 4]
    assert shares_of(warmup_stable_decay, 11, 0.2) == pytest.approx(expected)
    assert [learning_rate_factor("warm-up-stable-decay", step, steps=11, warmup=0.2) for step in range(11)] == (
        pytest.approx(expected)
    )


def test_constant_stays_at_the_peak():
    assert shares_of(constant, 5, 0.4) == pytest.approx([1 / 3, 2 / 3, 1, 1, 1])


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize(("steps", "warmup"), [(1, 0.1), (2, 0.1), (1, 0.0), (7, 0.0), (7, 1.0), (1000, 0.06)])
def test_every_step_learns_and_none_above_the_peak(name, steps, warmup):
    shares = [learning_rate_factor(name, step, steps=steps, warmup=warmup) for step in range(steps)]
    assert all(0 < share <= 1 for share in shares)
    peak = shares.index(max(shares))
    assert shares[: peak + 1] == sorted(shares[: peak + 1])
    assert shares[peak:] == sorted(shares[peak:], reverse=True)


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_long_run_reaches_its_peak_after_the_warm_up(name):
    assert learning_rate_factor(name, 100, steps=1000, warmup=0.1) == 1.0


def test_every_named_schedule_is_there():
    assert set(SCHEDULES) == set(get_args(Schedule))
