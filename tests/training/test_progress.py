"""Displayed progress: speed of the last steps, utilization, time left; log lines without a terminal."""

import pytest

from bothways.base.log import messages_to
from bothways.base.progress import Heartbeat
from bothways.training import progress
from bothways.training.progress import TrainingProgress, format_duration


def rows(number):
    """Steps of 100 tokens and 2 s each, after a slow first one."""
    return [
        {
            "split": "train",
            "step": step,
            "loss": 1.0,
            "learning_rate": 2e-4,
            "tokens": 100 * step,
            "seconds": 50 + 2.0 * step,
        }
        for step in range(1, number + 1)
    ]


def test_speed_is_that_of_the_last_steps_and_gives_the_time_left():
    with TrainingProgress("training", 40, flops_per_token=3e6, peak=1e9) as bar:
        for row in rows(30):
            bar.show(row)
        assert bar.speed() == "50 tokens/s, 15% of peak FLOP/s"
        assert bar.seconds_left() == pytest.approx(20)


def test_a_first_step_has_a_speed_too_and_none_has_none():
    with TrainingProgress("training", 40) as bar:
        assert bar.speed() == "0 tokens/s"
        bar.show(rows(1)[0])
        assert bar.speed() == "2 tokens/s"


def test_without_a_terminal_a_line_is_logged_every_half_minute(monkeypatch):
    now, messages = [0.0], []
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with messages_to(messages.append), TrainingProgress("training", 40) as bar:
        for step in rows(10):
            now[0] = 4.0 * step["step"]
            bar.show(step)
        for now[0] in (63.0, 70.0):
            bar.show({"split": "heldout", "step": 10, "loss": 2.5})
    assert messages == [
        "training: step 8 of 40, loss 1.0000, learning rate 2.0e-04, 50 tokens/s, 64 s left",
        "training: step 10 of 40, held-out loss 2.5000, learning rate 2.0e-04, 50 tokens/s, 60 s left",
    ]


def test_a_line_that_the_heartbeat_has_written_is_not_logged_again(monkeypatch):
    """Steps of 20 s, between which the heartbeat writes what is done."""
    now, messages = [1000.0], []
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(progress, "heartbeat", heart := Heartbeat(lambda: now[0]))
    monkeypatch.setattr(progress, "working", lambda title: heart.working(title, thread=False))
    with messages_to(messages.append), TrainingProgress("training", 40) as bar:
        for step in rows(9):
            for _ in range(2):
                now[0] += 10.0
                heart.beat()
            bar.show(step)
    assert len(messages) == 6 and all("so far" in message for message in messages)  # in 180 s
    assert messages[-1] == (
        "training: step 8 of 40, loss 1.0000, learning rate 2.0e-04, 50 tokens/s, 64 s left, 3 min so far"
    )


@pytest.mark.parametrize(("seconds", "expected"), [(0, "0 s"), (89, "89 s"), (600, "10 min"), (12240, "3.4 h")])
def test_durations_are_printed_in_a_fitting_unit(seconds, expected):
    assert format_duration(seconds) == expected
