"""Progress bars: on a terminal, in a notebook, and nowhere else."""

import io
import logging
import os
import signal
import sys
import threading
from contextlib import ExitStack
from types import ModuleType, SimpleNamespace

import pytest

from bothways.base import progress, terminal
from bothways.base.errors import InputError
from bothways.base.log import logger, messages_to, muted
from bothways.base.progress import Heartbeat, ProgressBar, draws_bars, show_progress, working
from bothways.cli.verbs import VERBS


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
    monkeypatch.setattr(progress, "NOTEBOOK_SECONDS", 0)
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
    monkeypatch.setattr(progress, "NOTEBOOK_SECONDS", 3600)
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


# --- a line every half minute -----------------------------------------------------------------------------------------


@pytest.fixture
def heart(monkeypatch):
    """A heartbeat whose clock, `heart.times.now`, stands still."""
    times = SimpleNamespace(now=1000.0)
    heart = Heartbeat(lambda: times.now)
    heart.times = times
    monkeypatch.setattr(progress, "heartbeat", heart)
    return heart


def replace_script_stderr(monkeypatch, **options):
    """As `replace_stderr`, in a script that has not configured logging: pytest adds its handlers for each test."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    return replace_stderr(monkeypatch, **options)


def test_long_work_is_not_silent_where_logging_is_not_configured(heart, monkeypatch):
    stderr = replace_script_stderr(monkeypatch)
    with working("finetune", thread=False):
        for phase in ("baselines", "scores"):
            with working(phase, thread=False) as work:
                for seconds in (29, 2, 29, 40):
                    heart.times.now += seconds
                    heart.beat()
                    work.detail = "3 of 4"
    assert stderr.getvalue().splitlines() == [
        "finetune: baselines, 3 of 4, 31 s so far (31 s in all)",
        "finetune: baselines, 3 of 4, 2 min so far (2 min in all)",
        "finetune: scores, 3 of 4, 31 s so far (2 min in all)",
        "finetune: scores, 3 of 4, 2 min so far (3 min in all)",
    ]


def test_short_work_and_work_that_shows_something_write_no_line(heart, monkeypatch):
    stderr = replace_script_stderr(monkeypatch, is_terminal=True)
    for _ in range(100):  # a server always has some work
        with working("texts", thread=False):
            heart.times.now += 1
            heart.beat()
    with working("embed", thread=False), ProgressBar("embed", 9) as bar:
        for done in range(9):
            heart.times.now += 29
            bar.update(done, "")
            heart.beat()
    assert "so far" not in stderr.getvalue()
    with working("embed", thread=False):
        heart.times.now += 29
        show_progress("embed: 3 of 4")
        heart.times.now += 29
        heart.beat()
    assert stderr.getvalue().endswith("embed: 3 of 4\n")


@pytest.mark.parametrize("configured", ["level", "handler", "root", "command line"])
def test_a_configured_logger_decides_about_the_line(configured, heart, monkeypatch):
    stderr, records, messages = replace_script_stderr(monkeypatch), [], []
    handler = logging.Handler()
    handler.emit = records.append
    with ExitStack() as stack:
        if configured == "level":
            monkeypatch.setattr(logger, "level", logging.WARNING)
        elif configured == "command line":
            stack.enter_context(messages_to(messages.append))
            stack.enter_context(muted())
        else:
            (logging.getLogger() if configured == "root" else logger).addHandler(handler)
            stack.callback(logger.removeHandler, handler)
        with working("prune", thread=False):
            heart.times.now += 31
            heart.beat()
    assert stderr.getvalue() == "" and not records  # below the level of these handlers
    assert messages == (["prune: 31 s so far"] if configured == "command line" else [])


def test_a_thread_writes_the_line_of_a_phase_without_a_loop(heart, monkeypatch):
    stream, written = replace_script_stderr(monkeypatch), threading.Event()
    stream.flush = written.set
    monkeypatch.setattr(progress, "LINE_EVERY", 0)
    monkeypatch.setattr(progress, "GRACE", 0)
    with working("finetune"), working("linear start"):
        assert written.wait(60)
    assert stream.getvalue().startswith("finetune: ")


def test_every_verb_but_those_that_wait_is_announced(heart, monkeypatch):
    stderr = replace_script_stderr(monkeypatch)

    def long_work(settings):
        heart.times.now += 31
        heart.beat()

    for place in ("bothways.cli.commands.info", "bothways.serving.server.run"):
        monkeypatch.setattr(place, long_work)
    VERBS["info"].load("info")(None)
    VERBS["serve"].load("serve")(None)
    assert stderr.getvalue() == "info: 31 s so far\n"


@pytest.fixture
def predictor(make_model, tokenizer):
    from bothways.inference.predictor import Predictor
    from bothways.model.checkpoint.contents import Checkpoint

    return Predictor(Checkpoint(make_model(), tokenizer), dtype="float32")


def test_one_argument_shows_the_progress_of_a_predictor(predictor, displayed, monkeypatch):
    replace_stderr(monkeypatch)
    vectors = predictor.embed(["the cat", "a dog", "the mat"], progress=True, batch_tokens=5)
    assert displayed[-1][1]["text/plain"] == "texts  3/3" and len(vectors) == 3
    count = len(displayed)
    predictor.embed(["the cat"], progress=False)
    assert len(displayed) == count
    with pytest.raises(InputError, match="progress"):
        predictor.embed(["the cat"], progress="yes")


def test_a_predictor_is_not_silent_either(predictor, heart, monkeypatch):
    monkeypatch.setattr("bothways.inference.reading.heartbeat", heart)
    stderr = replace_script_stderr(monkeypatch)

    def wait(done, total):
        heart.times.now += 31

    predictor.embed(["the cat", "a dog"], progress=wait, batch_tokens=4)
    assert stderr.getvalue().splitlines() == [
        "texts: 1 of 2 windows, 31 s so far",
        "texts: 2 of 2 windows, 62 s so far",
    ]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_process_does_not_wait_for_a_thread_of_its_parent():
    """A thread of the parent holds the lock while it writes a line."""
    with progress.working("parent", thread=False), progress.heartbeat.lock:
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(30)  # ends it if it waits
            with progress.working("texts", thread=False):
                os._exit(len(progress.heartbeat.work))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1  # its own work alone


# --- a line of a terminal ---------------------------------------------------------------------------------------------


def test_on_a_terminal_a_bar_is_drawn_over_and_gone_at_the_end(monkeypatch):
    stderr = replace_stderr(monkeypatch, is_terminal=True)
    monkeypatch.setattr(progress, "NOTEBOOK_SECONDS", 0)
    monkeypatch.setenv("COLUMNS", "200")
    with ProgressBar("read\x1b[2J", 60, done=10) as bar:
        bar.update(30, "日本.txt")
        terminal.print_message("a message")
        bar.update(60, "")
    start, *drawings = stderr.getvalue().split("\r")
    shown = [drawing.removesuffix("\x1b[K") for drawing in drawings]
    assert start == "" and shown[0] == f"read\\u001b[2J  {'#' * 5}{'-' * 25}  10/60"
    assert shown[1].startswith(f"read\\u001b[2J  {'#' * 15}{'-' * 15}  30/60, ") and shown[1].endswith("  日本.txt")
    assert drawings[2] == "\x1b[Ka message\n"
    assert shown[3] == f"read\\u001b[2J  {'#' * 30}  60/60" and drawings[-1] == "\x1b[K"


def test_a_bar_is_never_wider_than_the_terminal():
    assert terminal.first_columns("ab日本語c", 6) == "ab日本" and terminal.first_columns("ab日本語c", 7) == "ab日本"
    assert terminal.first_columns("abc", 3) == "abc"
