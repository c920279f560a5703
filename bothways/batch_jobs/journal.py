"""A file of results that grows block by block. Killed at any moment, it is gone on with behind its last block; once
whole it gets its name, and is the same bytes as that of a command left in peace.

Until then there stand beside OUT: .OUT.partial, what is written of it; .OUT.skipped.partial, the rows set aside;
.OUT.partial.json, the journal: how much of both counts, written anew whenever a block's bytes are on the disk.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from glob import escape
from pathlib import Path
from typing import Any

from bothways.batch_jobs.blocks import Block
from bothways.batch_jobs.writers import Format, ResultRow, Vectors
from bothways.errors import InputError
from bothways.io import fsync, write_atomic
from bothways.log import logger
from bothways.training.run_checkpoints import differences


@dataclass(frozen=True)
class Journal:
    """How far a file has come: blocks, rows and digest of what was read; results and bytes written; rows set aside and
    the bytes that list them. made_with: what else decides its bytes, by name."""

    made_with: Mapping[str, Any]
    blocks: int = 0
    rows: int = 0
    read: str = ""
    results: int = 0
    size: int = 0
    set_aside: int = 0
    set_aside_size: int = 0


def side_file(out: Path) -> Path:
    """Where the rows that could not be read are listed: their numbers from 0, and why."""
    return out.with_name(f"{out.name}.skipped.jsonl")


def refuse(out: Path, endings: Sequence[str], what: str, *, resume: bool) -> None:
    """InputError where a file cannot be written as it is asked for: known before a model is loaded."""
    if out.suffix not in endings:
        named = f"{', '.join(endings[:-1])} or {endings[-1]}"
        raise InputError(f"{out}: {what} are written as {named}; name a file that ends so")
    journal = _journal(out)
    for file in (out,) if resume and journal.exists() else (out, side_file(out)):
        if file.exists():
            raise InputError(f"{file}: exists already; name a new file, or delete that one")
    if not out.parent.is_dir():
        raise InputError(f"{out.parent}: no such directory; make it, or name a file elsewhere")
    if journal.exists() and not resume:
        done = f"a command was stopped when {_read(journal).rows:,} rows were done"
        raise InputError(f"{out}: {done}; go on with --resume, or delete {journal} to begin anew")


@contextmanager
def unfinished(out: Path, form: Format, made_with: Mapping[str, Any]) -> Iterator["Growing"]:
    """A new file, or the unfinished one cut back to its last block. What is done stays where an error ends it, and is
    told; where no block is done nothing stays. InputError where it was begun otherwise, or is being written by another.
    """
    with ExitStack() as stack:
        results = stack.enter_context(closing(Appended(out.with_name(f".{out.name}.partial"))))
        results.lock(out)
        journal = Journal(made_with)
        if _journal(out).exists():
            journal = _read(_journal(out))
            if changed := differences(journal.made_with, made_with):
                raise InputError(f"{out}: begun otherwise ({changed}); do as then, or delete {_journal(out)}")
        place = out.with_name(f".{out.name}.skipped.partial")
        if side_file(out).exists():  # a kill fell between the names that are given at the end
            os.replace(side_file(out), place)
        aside = stack.enter_context(closing(Appended(place)))
        growing = Growing(out, form, journal, results, aside)
        try:
            results.cut(journal.size)
            aside.cut(journal.set_aside_size)
            if not journal.blocks:
                results.append([form.head()])
            yield growing
        except BaseException:
            if growing.journal.blocks > journal.blocks:
                logger.info(f"{out}: {growing.journal.rows:,} rows are done and kept; --resume goes on behind them")
            if not growing.journal.blocks:
                growing.remove()
            raise


class Growing:
    """An unfinished file, open: what its journal counts is on the disk."""

    def __init__(self, out: Path, form: Format, journal: Journal, results: "Appended", aside: "Appended") -> None:
        self.out, self.form, self.journal, self.results, self.aside = out, form, journal, results, aside

    def catch_up(self, blocks: Iterator[Block]) -> None:
        """Take the blocks that are done. InputError where they are not what they were."""
        read = ""
        for _ in range(self.journal.blocks):
            read = next(blocks, Block()).digest(read)
        if read != self.journal.read:
            rows = f"the first {self.journal.rows:,} rows are not those that were read before"
            raise InputError(f"{self.out}: {rows}; give the same, or delete {_journal(self.out)} to begin anew")

    def add(self, read: Block, block: Block, results: Vectors | Sequence[ResultRow]) -> None:
        """Append a block's results, and list the rows that were set aside. read: the block as it was read, with rows of
        which the model can say nothing."""
        aside = (json.dumps({"row": number, "reason": why}) for number, why in block.wrong.items())
        now = self.journal
        done = replace(
            now,
            blocks=now.blocks + 1,
            rows=now.rows + len(block),
            read=read.digest(now.read),
            results=now.results + len(block.given),
            size=self.results.append(self.form.block(block.numbers, results)),
            set_aside=now.set_aside + len(block.wrong),
            set_aside_size=self.aside.append(f"{line}\n".encode() for line in aside),
        )
        with _writing(self.out):
            write_atomic(_journal(self.out), json.dumps(asdict(done), indent=1))
        self.journal = done

    def finish(self) -> Journal:
        """Give the file its name, and the list of what was set aside its own, if there is any."""
        with _writing(self.out):
            whole = self.form.complete(self.results.place, self.journal.results)
            fsync(whole)
            if self.journal.set_aside:
                os.replace(self.aside.place, side_file(self.out))
            os.replace(whole, self.out)
            self.remove()
            fsync(self.out.parent)
        return self.journal

    def remove(self) -> None:
        """What stands beside the file until it is whole."""
        journal = _journal(self.out)
        cut_off = journal.parent.glob(f".{escape(journal.name)}.*")  # journals that were being written at a kill
        for place in (self.results.place, self.aside.place, journal, *cut_off):
            place.unlink(missing_ok=True)


class Appended:
    """A file that is appended to, and cut back to where it was good; made where there is none."""

    def __init__(self, place: Path) -> None:
        self.place = place
        with _writing(place):
            self.file = place.open("ab")

    def lock(self, out: Path) -> None:
        """Keep other commands from it as long as it is open; the system does so, however this one ends."""
        try:
            from fcntl import LOCK_EX, LOCK_NB, flock
        except ImportError:  # on Windows
            return
        try:
            flock(self.file, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{out}: another command is writing it; wait for that one, or stop it") from None

    def cut(self, size: int) -> None:
        if self.place.stat().st_size < size:
            raise InputError(f"{self.place}: shorter than its journal says; delete both to begin anew")
        self.file.truncate(size)
        self.file.seek(size)  # an append of nothing tells this place

    def append(self, pieces: Iterable[bytes]) -> int:
        """How many bytes it has when these are on the disk too."""
        with _writing(self.place):
            self.file.writelines(pieces)
            self.file.flush()
            os.fsync(self.file.fileno())
            return self.file.tell()

    def close(self) -> None:
        with suppress(OSError):  # what could not be written is told already
            self.file.close()


def _journal(out: Path) -> Path:
    return out.with_name(f".{out.name}.partial.json")


def _read(journal: Path) -> Journal:
    try:
        return Journal(**json.loads(journal.read_text(encoding="utf-8")))
    except (ValueError, TypeError):
        raise InputError(f"{journal}: not a journal of this version; delete it to begin anew") from None


@contextmanager
def _writing(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = error.strerror or error
        raise OSError(f"{file} could not be written ({why}); make room, or write elsewhere") from None
