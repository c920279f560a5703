"""Ctrl-C and SIGTERM stop a run gracefully; a second Ctrl-C stops at once; handlers are restored."""

import signal
import threading

import pytest

from bothways.training import signals
from bothways.training.signals import catch_stop_signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_only_requests_a_stop_and_handlers_are_restored(number):
    before = signal.getsignal(number)
    with catch_stop_signals() as stop_requested:
        assert not stop_requested()
        signal.raise_signal(number)
        assert stop_requested()
        signal.raise_signal(number)  # at once: the same Ctrl-C, passed on by torchrun
        assert stop_requested()
    assert signal.getsignal(number) is before


def test_a_second_ctrl_c_a_while_later_stops_at_once_and_a_second_sigterm_does_not(monkeypatch):
    before = signal.getsignal(signal.SIGINT)
    now = [100.0]
    monkeypatch.setattr(signals.time, "monotonic", lambda: now[0])
    with pytest.raises(KeyboardInterrupt), catch_stop_signals() as stop_requested:
        signal.raise_signal(signal.SIGINT)
        now[0] += 2
        signal.raise_signal(signal.SIGTERM)
        assert stop_requested()
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_no_signal_is_caught_where_nothing_can_be_saved_or_in_another_thread():
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def look():
        with catch_stop_signals() as stop_requested:
            seen.append((stop_requested(), signal.getsignal(signal.SIGINT) is before))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    with catch_stop_signals(when=False) as stop_requested:
        seen.append((stop_requested(), signal.getsignal(signal.SIGINT) is before))
    assert seen == [(False, True), (False, True)]
