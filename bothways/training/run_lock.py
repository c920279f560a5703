"""Lock of a run directory: one process at a time, across hosts that share the directory.

The lock file identifies the process and contains a heartbeat count, incremented every few seconds. On the same machine
the operating system reports whether the process is alive. Other machines watch the count: if it does not change for
`PATIENCE`, the process is considered dead and the lock is taken over. The clocks of hosts need not agree, and no file
system lock is needed.
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
from typing import Any, ClassVar
from weakref import WeakValueDictionary

from bothways.errors import InputError
from bothways.log import logger

LOCK = ".lock"
BEAT, PATIENCE, POLL = 5.0, 30.0, 0.5  # seconds
DEAD_STATES = ("Z", "X")  # zombie, dead


@cache
def machine() -> str:
    """Identifies the scope of process ids: host, boot, and PID namespace of a container."""
    boot, space = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")
    booted = boot.read_text().strip() if boot.exists() else ""
    return " ".join([socket.gethostname(), booted, os.readlink(space) if space.is_symlink() else ""]).strip()


def current_process() -> dict[str, Any]:
    """This process with its start time, which distinguishes it from later ones of the same id."""
    process = find_process(os.getpid())
    assert process is not None
    return process


def find_process(pid: int) -> dict[str, Any] | None:
    """A running process of this machine, or None. began: start time in clock ticks since boot, if known.

    A zombie (exited, but not reaped by its parent) keeps its id and accepts signals; it counts as not running.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass  # alive, owned by another user
    began = None
    with suppress(OSError):  # no /proc on this system
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()  # from field 3 on: man 5 proc
        if fields[0] in DEAD_STATES:
            return None
        began = fields[19]
    return {"host": socket.gethostname(), "machine": machine(), "id": pid, "began": began}


def is_alive(process: Mapping[str, Any]) -> bool | None:
    """Whether a process described by `current_process` is still running; None if it is on another machine."""
    if process["host"] != socket.gethostname() or process.get("machine", machine()) != machine():
        return None
    running = find_process(process["id"])
    return running is not None and process.items() <= running.items()


class Lock:
    """Lock of a directory, held until `release`. InputError if a running process holds it, or another lock of this
    process. Taking over the lock of a dead process is logged."""

    # The unreleased locks of this process by token. Weak: a lock that is no longer referenced can be taken over.
    held: ClassVar[WeakValueDictionary[str, "Lock"]] = WeakValueDictionary()

    def __init__(self, directory: Path) -> None:
        self.file, self.owner = directory / LOCK, {**current_process(), "token": secrets.token_hex(8)}
        self.count, self.lost_to = 0, ""
        self.stopped = threading.Event()
        self.thread: threading.Thread | None = None
        self.held[self.owner["token"]] = self  # before the file exists, since other threads may read it at once
        while not self._create():
            if (seen := self._read()) is not None:
                self._wait_until_dead(seen)
                self._remove(seen)
        self.beaten = time.monotonic()

    def start(self) -> None:
        """Start the heartbeat thread."""
        self.thread = threading.Thread(target=self._keep, name="heartbeat", daemon=True)
        self.thread.start()

    def check(self) -> None:
        """InputError if another process has taken over, for example after this one was suspended."""
        if time.monotonic() - self.beaten > 2 * BEAT:
            with suppress(OSError):
                self._beat()
        if self.lost_to:
            raise InputError(
                f"{self.file.parent}: {self.lost_to} took this run over while this process was suspended; "
                "the run continues there"
            )

    def stop(self) -> None:
        self.stopped.set()
        if self.thread:
            self.thread.join()

    def release(self) -> None:
        self.stop()
        self.held.pop(self.owner["token"], None)
        if _owner(self._read()).get("token") == self.owner["token"]:
            self.file.unlink(missing_ok=True)

    def _keep(self) -> None:
        while not self.stopped.wait(BEAT):
            with suppress(OSError):  # a temporary file system error; the next beat retries
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
            self._write(os.O_WRONLY)  # in place: visible to other hosts sooner than a new file
        self.beaten = time.monotonic()

    def _create(self) -> bool:
        try:
            self._write(os.O_WRONLY | os.O_CREAT | os.O_EXCL)  # atomic across hosts
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
        """Return if the process that wrote this is dead. InputError if it is alive."""
        owner, directory = _owner(seen), self.file.parent
        alive = is_alive({name: owner[name] for name in ("host", "machine", "id", "began")}) if owner else None
        if alive and owner["id"] == os.getpid():
            if owner["token"] in self.held:
                raise InputError(f"{directory}: the run is still active in this process; wait until it ends")
            return  # an abandoned lock of an earlier run of this process
        if alive and owner["began"] is not None:
            raise InputError(f"{directory}: the run is still active, as {_name(owner)}; stop it first")
        if alive is False:
            logger.warning(f"{directory}: {_name(owner)} is dead; taking over its run")
            return
        logger.info(f"{directory}: {_name(owner)} holds the lock; watching it for {PATIENCE:.0f} s")
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            time.sleep(POLL)
            if (now := self._read()) is None:
                return
            if now != seen:
                raise InputError(f"{directory}: the run is still active, as {_name(_owner(now))}; stop it first")
        logger.warning(f"{directory}: {_name(owner)} shows no heartbeat; taking over its run")

    def _remove(self, seen: bytes) -> None:
        """Remove a dead lock, unless it was refreshed or another process was faster."""
        aside = self.file.with_name(f"{LOCK}.{self.owner['token']}")
        with suppress(FileNotFoundError):
            os.rename(self.file, aside)
            if aside.read_bytes() != seen:
                _put_back(aside, self.file)
            aside.unlink(missing_ok=True)


def _put_back(aside: Path, file: Path) -> None:
    """Rename a file back, unless a new one has taken the name."""
    try:
        os.link(aside, file)
    except FileExistsError:
        pass
    except OSError:  # no hard links on this file system
        os.rename(aside, file)


def _owner(content: bytes | None) -> dict[str, Any]:
    """Content of a lock file; empty if it was truncated."""
    try:
        owner = json.loads(content or b"{}")
    except ValueError:
        return {}
    return owner if {"host", "machine", "id", "began", "token"} <= owner.keys() else {}


def _name(owner: Mapping[str, Any]) -> str:
    return f"process {owner['id']} on {owner['host']}" if owner else "another process"
