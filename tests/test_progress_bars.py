"""Progress bars: on a terminal, in a notebook, and nowhere else."""

import io
import logging
import sys
from contextlib import ExitStack
from types import ModuleType, SimpleNamespace

import pytest

from bothways import log
from bothways.log import ProgressBar, draws_bars, logger, messages_to, muted


class Stream(io.StringIO):
    def __init__(self, is_terminal):
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self):
        return self.is_terminal


def replace_stderr(monkeypatch, *, is_terminal=False):
    """In the test itself: a fixture's would be replaced by pytest's own."""
    stream = Stream(is_terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


@pytest.fixture
def displayed(monkeypatch):
    """A notebook: what its kernel was asked to display, as ("new" or "update", data)."""
    calls = []

    def display(data, *, raw, display_id):
        assert raw and display_id is True
        calls.append(("new", data))
        return SimpleNamespace(update=lambda data, *, raw: calls.append(("update", data)))

    ipython, module = ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython = lambda: SimpleNamespace(kernel=object())
    ipython.display, module.display = module, display
    for name, value in {"IPython": ipython, "IPython.display": module, "ipykernel": ModuleType("ipykernel")}.items():
        monkeypatch.setitem(sys.modules, name, value)
    monkeypatch.setattr(log, "NOTEBOOK_SECONDS", 0)
    return calls


def test_a_notebook_shows_one_bar_that_is_updated_in_place(displayed, monkeypatch):
    stderr = replace_stderr(monkeypatch)
    with ProgressBar("fine-tuning <b>", 1200) as bar:
        bar.update(300, "loss 0.5")
        bar.update(1200, "loss 0.1")
    kinds, shown = zip(*displayed, strict=True)
    assert kinds == ("new", "update", "update", "update")
    assert shown[1]["text/plain"].startswith("fine-tuning <b>  loss 0.5  300/1,200, 0:0")
    assert shown[-1]["text/plain"] == "fine-tuning <b>  loss 0.1  1,200/1,200"
    assert '<progress value="300" max="1200"></progress> fine-tuning &lt;b&gt;' in shown[1]["text/html"]
    assert stderr.getvalue() == "" and "\x1b" not in str(shown)


def test_a_notebook_is_not_flooded(displayed, monkeypatch):
    replace_stderr(monkeypatch)
    monkeypatch.setattr(log, "NOTEBOOK_SECONDS", 3600)
    with ProgressBar("reading", None) as bar:
        for row in range(1000):
            bar.update(row, "")
    assert [data["text/plain"] for _, data in displayed] == ["reading  0", "reading  999"]
    assert displayed[0][1]["text/html"].startswith("<progress></progress>")


def test_a_kernel_without_ipython_starts_its_line_over(displayed, monkeypatch):
    stderr = replace_stderr(monkeypatch)
    monkeypatch.setitem(sys.modules, "IPython.display", None)
    monkeypatch.delitem(sys.modules, "IPython")
    with ProgressBar("t", 9) as bar:
        bar.update(3, "a long detail")
        bar.update(9, "")
    first, *lines = stderr.getvalue().split("\r")
    assert first == "" and lines[0] == "t  0/9" and lines[-1].rstrip() == "t  9/9"
    assert len(lines[-1].rstrip("\n")) == len(lines[1]) and lines[-1].endswith("\n")  # covers the longer line
    assert "\x1b" not in stderr.getvalue()


@pytest.mark.parametrize("is_terminal", [False, True])
def test_bars_are_drawn_on_terminals_unless_log_lines_show_the_progress(monkeypatch, is_terminal):
    replace_stderr(monkeypatch, is_terminal=is_terminal)
    assert draws_bars() == is_terminal
    with messages_to(lambda text: None):
        assert draws_bars() == is_terminal
        with muted():
            assert not draws_bars()
    with muted():
        assert not draws_bars()
    logger.setLevel(logging.INFO)
    try:
        assert not draws_bars()
    finally:
        logger.setLevel(logging.NOTSET)


def test_blocks_of_two_threads_end_in_any_order_and_leave_the_logger_as_it_was():
    before = logger.level, list(logger.handlers)
    with messages_to(pytest.fail), ExitStack() as first, ExitStack() as second:
        messages, others = [], []
        first.enter_context(messages_to(others.append))
        second.enter_context(messages_to(messages.append))
        first.close()
        logger.info("a message")
        third = second.pop_all()
        second.enter_context(muted())
        third.close()
        logger.info("muted")
    assert messages == ["a message"] and not others
    assert (logger.level, list(logger.handlers)) == before


def test_ipython_on_a_terminal_is_no_notebook(displayed, monkeypatch):
    stderr = replace_stderr(monkeypatch)
    sys.modules["IPython"].get_ipython = lambda: SimpleNamespace()
    assert not draws_bars()
    with ProgressBar("t", 9) as bar:
        bar.update(9, "")
    assert not displayed and stderr.getvalue() == ""


def test_a_muted_notebook_shows_nothing(displayed, monkeypatch):
    stderr = replace_stderr(monkeypatch)
    with muted(), ProgressBar("t", 9) as bar:
        bar.update(9, "")
    assert not displayed and stderr.getvalue() == ""
