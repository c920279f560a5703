"""One process at a time in a run's directory, whichever of the hosts that share the directory it runs on.

A lock file names the process and carries a count that the process raises every few seconds. On the same machine the
operating system says at once whether that process lives. From another machine the count is watched: if it changes, the
run is alive; if it stands still for `PATIENCE`, its process is gone and the lock is taken over. Only changes count, so
the clocks of the hosts need not agree, and no lock of the file system is needed.
"""

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from bothways.errors import InputError
from bothways.log import logger

LOCK = ".lock"
BEAT, PATIENCE, POLL = 5.0, 30.0, 0.5  # seconds


@cache
def machine() -> str:
    """Where a process number means the same process: host, boot and, in containers, the space of process numbers."""
    boot, space = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")
    booted = boot.read_text().strip() if boot.exists() else ""
    return " ".join([socket.gethostname(), booted, os.readlink(space) if space.is_symlink() else ""]).strip()


def this_process() -> dict[str, Any]:
    """This process, so that no later one can be taken for it."""
    process = living(os.getpid())
    assert process is not None
    return process


def living(number: int) -> dict[str, Any] | None:
    """A living process of this machine. began: in clock ticks since the machine started, where the system tells."""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass  # it lives, and is somebody else's
    file = Path(f"/proc/{number}/stat")
    began = file.read_text().rpartition(")")[2].split()[19] if file.exists() else None  # field 22: man 5 proc
    return {"host": socket.gethostname(), "machine": machine(), "id": number, "began": began}


def lives(process: Mapping[str, Any]) -> bool | None:
    """Whether a process that `this_process` described is still there; None if it is on another machine."""
    if process["host"] != socket.gethostname() or process.get("machine", machine()) != machine():
        return None
    found = living(process["id"])
    return found is not None and process.items() <= found.items()


class Lock:
    """The lock of a directory, held until `release`. InputError if another process holds it and lives. It is
    logged if the lock of a process that is gone is taken over, or if that has to be found out first."""

    def __init__(self, directory: Path) -> None:
        self.file, self.owner = directory / LOCK, {**this_process(), "token": secrets.token_hex(8)}
        self.count, self.lost_to = 0, ""
        self.stopped = threading.Event()
        self.thread: threading.Thread | None = None
        while not self._create():
            if (seen := self._read()) is not None:
                self._wait_until_dead(seen)
                self._remove(seen)
        self.beaten = time.monotonic()

    def start(self) -> None:
        """Raise the count from now on, in a thread of its own."""
        self.thread = threading.Thread(target=self._keep, name="heartbeat", daemon=True)
        self.thread.start()

    def check(self) -> None:
        """InputError if another process has taken over, as it may if this one was suspended for long."""
        if time.monotonic() - self.beaten > 2 * BEAT:
            with suppress(OSError):
                self._beat()
        if self.lost_to:
            raise InputError(
                f"{self.file.parent}: {self.lost_to} took this run over while this process was suspended; "
                "it goes on there, and nothing more is written here"
            )

    def stop(self) -> None:
        """Raise the count no more."""
        self.stopped.set()
        if self.thread:
            self.thread.join()

    def release(self) -> None:
        self.stop()
        if _owner(self._read()).get("token") == self.owner["token"]:
            self.file.unlink(missing_ok=True)

    def _keep(self) -> None:
        while not self.stopped.wait(BEAT):
            with suppress(OSError):  # a file system that does not answer for a while; the next beat tries again
                self._beat()

    def _beat(self) -> None:
        seen = self._read()
        if seen is not None and (owner := _owner(seen)).get("token") != self.owner["token"]:
            self.lost_to = _name(owner)
            return
        self.count += 1
        if seen is None:
            self._create()
        else:
            self._write(os.O_WRONLY)  # in place: other hosts see a change sooner than another file of that name
        self.beaten = time.monotonic()

    def _create(self) -> bool:
        try:
            self._write(os.O_WRONLY | os.O_CREAT | os.O_EXCL)  # one creates it, whichever hosts try
        except FileExistsError:
            return False
        return True

    def _write(self, flags: int) -> None:
        descriptor = os.open(self.file, flags, 0o666)
        try:
            os.write(descriptor, json.dumps({**self.owner, "count": self.count}).encode() + b"\n")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _read(self) -> bytes | None:
        try:
            return self.file.read_bytes()
        except FileNotFoundError:
            return None

    def _wait_until_dead(self, seen: bytes) -> None:
        """Return if the process that wrote this is gone. InputError if it lives."""
        owner, directory = _owner(seen), self.file.parent
        alive = lives({name: owner[name] for name in ("host", "machine", "id", "began")}) if owner else None
        if alive and owner["id"] == os.getpid():
            return  # an earlier run of this very process
        if alive and owner["began"] is not None:
            raise InputError(f"{directory}: its run is still at work, as {_name(owner)}; stop that one first")
        if alive is False:
            logger.info(f"{directory}: {_name(owner)} is gone; taking its run over")
            return
        logger.info(
            f"{directory}: {_name(owner)} worked on this run; watching for {PATIENCE:.0f} s whether it still does"
        )
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            time.sleep(POLL)
            if (now := self._read()) is None:
                return
            if now != seen:
                raise InputError(f"{directory}: its run is still at work, as {_name(_owner(now))}; stop that one first")
        logger.info(f"{directory}: {_name(owner)} gave no sign of life; taking its run over")

    def _remove(self, seen: bytes) -> None:
        """Remove a dead lock, unless it has come to life, or another process was faster."""
        aside = self.file.with_name(f"{LOCK}.{self.owner['token']}")
        with suppress(FileNotFoundError):
            os.rename(self.file, aside)
            if aside.read_bytes() != seen:
                _put_back(aside, self.file)
            aside.unlink(missing_ok=True)


def _put_back(aside: Path, file: Path) -> None:
    """Give a file its name again, unless a new one has that name by now."""
    try:
        os.link(aside, file)
    except FileExistsError:
        pass
    except OSError:  # a file system without links
        os.rename(aside, file)


def _owner(content: bytes | None) -> dict[str, Any]:
    """What a lock file says; nothing if it was cut off."""
    try:
        owner = json.loads(content or b"{}")
    except ValueError:
        return {}
    return owner if {"host", "machine", "id", "began", "token"} <= owner.keys() else {}


def _name(owner: Mapping[str, Any]) -> str:
    return f"process {owner['id']} on {owner['host']}" if owner else "another process"
