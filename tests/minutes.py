"""A plugin of pytest for `make test`: a line at the start, one a minute, one for each failure, and how to repeat them.

Dots of thousands of tests fill a log and show little. The seed of the order is in the first line, since the order of
the tests is random.
"""

import shlex
import time
from collections.abc import Callable
from typing import Any

import pytest

MINUTE = 60
MOST_NAMED = 10  # failed tests that the command names one by one; of more, it names the files


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # a process that runs tests for another prints nothing
        config.pluginmanager.register(Minutes(config), "bothways-minutes")


class Minutes:
    """Counts reports, and prints through the terminal reporter. clock: seconds, as time.monotonic."""

    def __init__(self, config: pytest.Config, clock: Callable[[], float] = time.monotonic) -> None:
        self.config = config
        self.clock = clock
        self.start = clock()
        self.minutes = 0
        self.total = 0
        self.ended: set[str] = set()
        self.failed: dict[str, None] = {}

    @property
    def seed(self) -> object:
        return self.config.getoption("randomly_seed", None)

    def write_line(self, line: str) -> None:
        reporter = self.config.pluginmanager.getplugin("terminalreporter")
        reporter.write_line(line)

    # --- counting ---

    def pytest_sessionstart(self) -> None:
        self.write_line(f"tests in random order, seed {self.seed}")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.total = len(session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self.total = len(ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            self.ended.add(report.nodeid)
        if report.failed and report.nodeid not in self.failed:
            self.failed[report.nodeid] = None
            self.write_line(f"FAILED {report.nodeid}")

        minutes = int((self.clock() - self.start) // MINUTE)
        if minutes > self.minutes:
            self.minutes = minutes
            self.write_line(f"{minutes} min: {len(self.ended):,} of {self.total:,} tests, {len(self.failed)} failed")

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: Any) -> tuple[str, str, str] | None:
        """No dot for a test. The categories are counted in the last line, as ever."""
        if report.when == "call" or report.outcome != "passed":
            is_error = report.failed and report.when != "call"
            return "error" if is_error else report.outcome, "", ""
        return None

    # --- the end ---

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self) -> None:
        if self.failed:
            self.write_line("")
            self.write_line(f"to repeat: {repeating(list(self.failed), self.seed)}")
            self.write_line(f"in the order of this run: make test SEED={self.seed}")


def repeating(failed: list[str], seed: object) -> str:
    """The command that runs the failed tests again, with their random numbers."""
    if len(failed) > MOST_NAMED:
        failed = sorted({name.partition("::")[0] for name in failed})
    tests = shlex.join(failed).replace("$", "$$")  # as make reads it
    return shlex.join(["make", "test", f"SEED={seed}", f"TESTS={tests}"])
