"""Resumable output files with a journal, written block by block.

A command that is killed at any moment can be resumed after the last complete block; the finished file has the same
bytes as the file of an uninterrupted command. Until then there are three files next to OUT:

- .OUT.partial: the results so far,
- .OUT.skipped.partial: the skipped rows,
- .OUT.partial.json: the journal with the number of valid bytes in both.

The journal is rewritten after each block has been synced to disk.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from glob import escape
from pathlib import Path
from typing import Any

from bothways.base.errors import InputError, differences, flag, format_count
from bothways.base.file_lock import acquire_lock, locks_are_advisory
from bothways.base.io import fsync, write_atomic
from bothways.base.log import logger
from bothways.inference.jobs.blocks import Block
from bothways.inference.jobs.writers import ResultFormat, ResultRow, Vectors


@dataclass(frozen=True)
class Journal:
    """The progress of an output file.

    blocks, rows, digest: the input read so far. results, size: rows and bytes written. set_aside, set_aside_size: rows
    skipped, and bytes of their list. made_with: everything else that the output depends on, by name.
    """

    made_with: Mapping[str, Any]
    blocks: int = 0
    rows: int = 0
    digest: str = ""
    results: int = 0
    size: int = 0
    set_aside: int = 0
    set_aside_size: int = 0


@dataclass(frozen=True)
class WrittenFile:
    """The result of a job: its output, with the number of results and of skipped rows.

    out: the file, or the directory of parts.
    text: number and kind of the results.
    facts: the same, for JSON.
    skipped: number of skipped rows.
    skipped_file: lists them, if there are any.
    """

    out: Path
    text: str
    facts: Mapping[str, int]
    skipped: int
    skipped_file: Path

    def to_json(self) -> dict[str, Any]:
        facts: dict[str, Any] = {**self.facts, "file": str(self.out)}
        if self.skipped:
            facts |= {"skipped": self.skipped, "skipped_file": str(self.skipped_file)}
        return facts

    def lines(self) -> Iterator[str]:
        skipped = ""
        if self.skipped:
            skipped = f"; {format_count(self.skipped, 'row')} skipped, listed in {self.skipped_file}"
        yield f"{self.text} in {self.out}{skipped}"


def side_file(out: Path) -> Path:
    """The file that lists the skipped rows: their indices from 0, and the reasons."""
    return out.with_name(f"{out.name}.skipped.jsonl")


def check_output(out: Path, suffixes: Sequence[str], content: str, *, resume: bool) -> None:
    """InputError if the output cannot be written. Call it before the model is loaded."""
    if out.suffix not in suffixes:
        formats = f"{', '.join(suffixes[:-1])} or {suffixes[-1]}"
        raise InputError(f"{out}: {content} are written as {formats}; name a file with one of these suffixes")
    journal = _journal(out)
    for file in (out,) if resume and journal.exists() else (out, side_file(out)):
        if file.exists():
            raise InputError(f"{file}: already exists; name a new file, or delete that one")
    if not out.parent.is_dir():
        raise InputError(f"{out.parent}: no such directory; make it, or name a file elsewhere")
    if journal.exists() and not resume:
        done = f"a command was interrupted after {format_count(_read(journal).rows, 'row')}"
        raise InputError(f"{out}: {done}; continue with {flag('resume', True)}, or delete {journal} to start again")


@contextmanager
def open_output(out: Path, form: ResultFormat, made_with: Mapping[str, Any]) -> Iterator["PartialOutput"]:
    """A new output, or the unfinished one truncated to its last complete block.

    After an error, complete blocks are kept and reported; if there are none, no file is left behind. InputError if the
    unfinished output was made with other settings, or if another command is writing it.
    """
    with ExitStack() as stack:
        results = stack.enter_context(closing(AppendOnlyFile(out.with_name(f".{out.name}.partial"))))
        results.lock(out)
        journal = Journal(made_with)
        if _journal(out).exists():
            journal = _read(_journal(out))
            if changed := differences(journal.made_with, made_with):
                raise InputError(
                    f"{out}: was begun with other settings ({changed}); use those, or delete {_journal(out)}"
                )
        skipped_file = out.with_name(f".{out.name}.skipped.partial")
        if side_file(out).exists():  # killed between the two renames of `finish`
            os.replace(side_file(out), skipped_file)
        skipped = stack.enter_context(closing(AppendOnlyFile(skipped_file)))
        output = PartialOutput(out, form, journal, results, skipped)
        try:
            results.truncate(journal.size)
            skipped.truncate(journal.set_aside_size)
            if not journal.blocks:
                results.append([form.head()])
            yield output
        except BaseException:
            if output.journal.blocks > journal.blocks:
                logger.info(
                    f"{out}: {output.journal.rows:,} rows are done and kept; continue with {flag('resume', True)}"
                )
            if not output.journal.blocks:
                output.remove()
            raise


class PartialOutput:
    """An open unfinished output. Everything that its journal counts is on disk."""

    def __init__(
        self, out: Path, form: ResultFormat, journal: Journal, results: "AppendOnlyFile", skipped: "AppendOnlyFile"
    ) -> None:
        self.out = out
        self.form = form
        self.journal = journal
        self.results = results
        self.skipped = skipped

    def skip_done(self, blocks: Iterator[Block]) -> None:
        """Skip the blocks that are done. InputError if they have changed."""
        digest = ""
        for _ in range(self.journal.blocks):
            digest = next(blocks, Block()).digest(digest)
        if digest != self.journal.digest:
            rows = f"the first {self.journal.rows:,} rows have changed since they were read"
            raise InputError(f"{self.out}: {rows}; give the same input, or delete {_journal(self.out)} to start again")

    def add(self, block_read: Block, block: Block, results: Vectors | Sequence[ResultRow]) -> None:
        """Append a block's results and list its skipped rows. block_read: the block with the rows that the model
        refused."""
        reasons = (json.dumps({"row": number, "reason": reason}) for number, reason in block.errors.items())
        journal = self.journal
        done = replace(
            journal,
            blocks=journal.blocks + 1,
            rows=journal.rows + len(block),
            digest=block_read.digest(journal.digest),
            results=journal.results + len(block.inputs),
            size=self.results.append(self.form.block(block.row_numbers, results)),
            set_aside=journal.set_aside + len(block.errors),
            set_aside_size=self.skipped.append(f"{line}\n".encode() for line in reasons),
        )
        with _writing(self.out):
            write_atomic(_journal(self.out), json.dumps(asdict(done), indent=1))
        self.journal = done

    def finish(self) -> Journal:
        """Rename the results to `out`, and the list of skipped rows, if any, to its final name."""
        with _writing(self.out):
            complete_file = self.form.complete(self.results.path, self.journal.results)
            fsync(complete_file)
            self._release()
            if self.journal.set_aside:
                os.replace(self.skipped.path, side_file(self.out))
            os.replace(complete_file, self.out)
            self.remove()
            fsync(self.out.parent)
        return self.journal

    def remove(self) -> None:
        """Delete the temporary files next to the output."""
        self._release()
        journal = _journal(self.out)
        incomplete = journal.parent.glob(f".{escape(journal.name)}.*")  # journals that a kill left half-written
        for path in (self.results.path, self.skipped.path, journal, *incomplete):
            path.unlink(missing_ok=True)

    def _release(self) -> None:
        """Close the files that no lock holds: Windows, which has no such locks, renames and deletes no open file."""
        for file in (self.results, self.skipped):
            if not file.is_locked:
                file.close()


class BusyError(InputError):
    """Another process is writing the output."""


class AppendOnlyFile:
    """A file that is appended to and can be truncated to its last valid size; created if it does not exist."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_locked = False
        with _writing(path):
            self.file = path.open("ab")

    def lock(self, out: Path) -> None:
        """Lock the file against other commands; the system releases the lock however this process ends."""
        if not locks_are_advisory():  # the file must be renamed while it is locked
            return
        if not acquire_lock(self.file, is_waiting=False):
            raise BusyError(f"{out}: another command is writing it; wait for it, or stop it")
        self.is_locked = True

    def truncate(self, size: int) -> None:
        if self.path.stat().st_size < size:
            raise InputError(f"{self.path}: shorter than its journal says; delete both to start again")
        self.file.truncate(size)
        self.file.seek(size)  # so that appending nothing returns this size

    def append(self, pieces: Iterable[bytes]) -> int:
        """Append, sync to disk, and return the new size."""
        with _writing(self.path):
            self.file.writelines(pieces)
            self.file.flush()
            os.fsync(self.file.fileno())
            return self.file.tell()

    def close(self) -> None:
        with suppress(OSError):  # a failed write has raised already
            self.file.close()


def _journal(out: Path) -> Path:
    return out.with_name(f".{out.name}.partial.json")


def _read(journal: Path) -> Journal:
    try:
        return Journal(**json.loads(journal.read_text(encoding="utf-8")))
    except (ValueError, TypeError):
        raise InputError(f"{journal}: not a journal of this version; delete it to start again") from None


@contextmanager
def _writing(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise OSError(f"{file} could not be written ({reason}); make room, or write elsewhere") from None
