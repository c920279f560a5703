"""The time of a run: how much of `minutes` is left, and what is left out to keep to it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from bothways.base.errors import flag
from bothways.base.log import logger

LABEL_CHECK = "label errors of the training rows"
WORDS = "TF-IDF"
PART_OF_WORDS = "a part of TF-IDF"  # its time estimates the time of all rows
OTHERS_SHARE = 0.4  # of the minutes: for baselines and label errors together; more of them are left out
MARGIN = 0.03  # of the minutes, for what was not measured


@dataclass
class Budget:
    """The limit of a run in seconds, from its start; None: there is none. seconds: of the parts so far, or as
    estimated, by name. left_out: parts for which there is no time. trainings: that are still to come, with the current
    one. clock: seconds since any moment."""

    limit: float | None = None
    started: float = field(default_factory=time.monotonic)
    seconds: dict[str, float] = field(default_factory=dict)
    left_out: dict[str, float] = field(default_factory=dict)
    trainings: int = 1
    clock: Callable[[], float] = time.monotonic

    @staticmethod
    def of(minutes: float | None) -> "Budget":
        return Budget(None if minutes is None else 60 * minutes)

    @property
    def spent(self) -> float:
        return self.clock() - self.started

    @property
    def left(self) -> float:
        """Seconds that are left, less a margin."""
        return float("inf") if self.limit is None else (1 - MARGIN) * self.limit - self.spent

    def share(self, reserved: float, parts: int) -> float:
        """Seconds for each of some equal parts, if others need `reserved`."""
        return max(0.0, self.left - reserved) / max(1, parts)

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        start = self.clock()
        yield
        self.seconds[part] = self.seconds.get(part, 0.0) + self.clock() - start

    def estimate(self, part: str) -> float:
        """Seconds of a part; 0 if nothing is known."""
        return self.seconds.get(part, 0.0)

    def has_time(self, part: str, seconds: float) -> bool:
        """Whether there is time for a part of the comparison; notes it as left out if there is none. A part that
        is left out stays so."""
        if self.limit is None:
            return True
        if part not in self.left_out and seconds > min(OTHERS_SHARE * self.limit, self.left):
            self.left_out[part] = seconds
        return part not in self.left_out

    def allows(self, part: str, seconds: float) -> bool:
        """The same, for a part that was not left out when the minutes were divided: it is named when it is."""
        if part in self.left_out or self.has_time(part, seconds):
            return part not in self.left_out
        assert self.limit is not None
        logger.info(
            f"left out to keep to {self.limit / 60:g} minutes: {part}, about {seconds:.0f} s ({flag('minutes')})"
        )
        return False
