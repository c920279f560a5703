"""What to do about rows that cannot be read: stop at the first, or note them all in one message."""

import re
from collections import Counter
from collections.abc import Callable
from typing import Literal

from bothways.base.errors import FileLocation, InputError, RowError, flag, format_count

RowErrorHandler = Callable[[InputError], None]  # called for an invalid row: raises to stop, returns to skip the row
OnError = Literal["stop", "skip"]  # what to do about rows that cannot be read
LISTED = 5  # locations, and kinds of errors, in a message
# What differs between errors of one kind: quoted text and numbers, such as 1,024 and -1.5e+300.
VALUE = re.compile(r"'[^']*'|\"[^\"]*\"|-?\d+(?:[.,]\d+)*(?:e[-+]?\d+)?")
SIMILAR = " or similar"


def raise_error(error: InputError) -> None:
    raise error


class RowErrors:
    """A RowErrorHandler that collects the errors of a table, to report all of them at once in `notes`.

    on_error: stop (raise) or skip (note). None: like stop, for commands without --on-error.
    """

    def __init__(self, on_error: OnError | None = None) -> None:
        self.on_error = on_error
        self.count = 0
        self.first = ""
        # By kind of error (the message without values and advice): first message, first few (file, row), count.
        self.shown: dict[str, str] = {}
        self.places: dict[str, list[tuple[str, str]]] = {}
        self.counts = Counter[str]()
        self.remarks: list[str] = []  # notes on rows that were read, but changed

    def __call__(self, error: InputError) -> None:
        self.count += 1
        self.first = self.first or str(error)
        file, row, reason = "", "", str(error)
        if isinstance(error, RowError) and isinstance(error.where, FileLocation):
            file = error.where.file
            row = error.where.place
            reason = error.reason
        reason = reason.partition(";")[0]
        kind = VALUE.sub("...", reason)
        if kind in self.places or len(self.places) < LISTED:
            self.counts[kind] += 1
            first = self.shown.setdefault(kind, reason)
            if reason not in (first, first.removesuffix(SIMILAR)):  # the same error with another value
                self.shown[kind] = first.removesuffix(SIMILAR) + SIMILAR
            places = self.places.setdefault(kind, [])
            places += [(file, row)] if len(places) < LISTED else []

    def notes(self, num_left: int) -> tuple[str, ...]:
        """The remarks, and a note on the rows that were skipped, if any. InputError unless rows may be skipped and some
        are left."""
        if not self.count:
            return tuple(self.remarks)
        if self.on_error == "skip" and num_left:
            return (*self.remarks, f"left out {format_count(self.count, 'row')}: {self}")
        advice = f", or skip such rows with {flag('on_error', 'skip')}" if self.on_error == "stop" else ""
        all_rows = f"; {self.count:,} rows cannot be read: {self}" if self.count > 1 else ""
        raise InputError(f"{self.first}{all_rows}{advice}")

    def __str__(self) -> str:
        """'it is missing (a.csv: row 2 (line 4), row 5 (line 7)); ...'"""
        listed = [f"{self.shown[kind]} ({self._listed(kind)})" for kind in self.places]
        others = self.count - self.counts.total()
        return "; ".join([*listed, *([format_count(others, "other")] if others else [])])

    def _listed(self, kind: str) -> str:
        """'a.csv: row 2 (line 4), row 5 (line 7), ...: 1,024 rows', naming each file once."""
        files = dict.fromkeys(file for file, _ in self.places[kind])
        shown = (
            f"{name and name + ': '}{', '.join(row for file, row in self.places[kind] if file == name)}"
            for name in files
        )
        more = f", ...: {self.counts[kind]:,} rows" if self.counts[kind] > len(self.places[kind]) else ""
        return f"{'; '.join(shown)}{more}"
