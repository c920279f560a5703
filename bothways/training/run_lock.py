"""Lock and state of a run directory. One process at a time has the lock, also on several hosts if their file system
locks for all of them.

The system releases the lock (base/file_lock.py) however its process ends. The file names the process, for messages.
"""

import json
import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from bothways.base.errors import InputError
from bothways.base.file_lock import acquire_lock
from bothways.base.log import logger

METRICS = "metrics.jsonl"
LOCK = ".lock"
# Of a run, written by run_checkpoints.py.
FOLDER = "checkpoints"
STATE = "state.json"
# Looks at a lock that processes of a killed run still hold, which end soon.
POLL = 0.1  # seconds between them
POLLS = 100
DEAD_STATES = ("Z", "X")  # zombie, dead


class Lock:
    """Lock of a directory, held until `release`, or until it is no longer referenced. InputError if another lock of
    this or of another process holds it. Taking over the lock of a process that has ended is logged."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / LOCK
        self.descriptor = -1

        # Again, if another process has just released its lock and deleted the file.
        while not self._is_held():
            self._close()
            self.descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            self._acquire()

        owner = self._owner()
        if owner and owner["id"] != os.getpid():
            logger.warning(f"{directory}: {_name(owner)} has ended; taking over its run")
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, json.dumps(current_process()).encode() + b"\n", 0)

    def release(self) -> None:
        if self.descriptor >= 0:
            self.path.unlink(missing_ok=True)
            self._close()

    def _close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self.descriptor = -1

    __del__ = _close

    def _is_held(self) -> bool:
        """Whether the locked file is still the file of the directory."""
        if self.descriptor < 0:
            return False
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(self.descriptor), self.path.stat())
        return False

    def _acquire(self) -> None:
        """Lock the file. InputError if a process that is alive holds it."""
        for _ in range(POLLS):
            if self._is_free():
                return
            owner = self._owner()
            if not owner or is_alive(owner) is not False:
                break
            # Processes that it has started hold the file until they see that it is dead.
            time.sleep(POLL)

        if owner and owner["id"] == os.getpid() and is_alive(owner):
            raise InputError(f"{self.path.parent}: the run is still active in this process; wait until it ends")
        raise InputError(f"{self.path.parent}: the run is still active, as {_name(owner)}; stop it first")

    def _is_free(self) -> bool:
        """Whether this process has the lock now. A file system without locks counts as free, with a warning."""
        try:
            return acquire_lock(self.descriptor, is_waiting=False)
        except OSError:
            logger.warning(f"{self.path.parent}: no locks on this file system; start no second process in it")
            return True

    def _owner(self) -> dict[str, Any]:
        """The process that the file names; empty if it names none, such as a file that is still being written."""
        try:
            owner = json.loads(os.pread(self.descriptor, 1 << 16, 0))
        except ValueError:
            return {}
        is_process = isinstance(owner, dict) and {"host", "machine", "id", "began"} <= owner.keys()
        return owner if is_process else {}


def _name(owner: Mapping[str, Any]) -> str:
    return f"process {owner['id']} on {owner['host']}" if owner else "another process"


def is_alive(process: Mapping[str, Any]) -> bool | None:
    """Whether a process described by `current_process` is still running; None if it is on another machine."""
    if process["host"] != socket.gethostname() or process.get("machine", machine()) != machine():
        return None
    running = find_process(process["id"])
    return running is not None and process.items() <= running.items()


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
        # The fields from the third on (man 5 proc); the second is a name, which may contain brackets and blanks.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if fields[0] in DEAD_STATES:
            return None
        began = fields[19]
    return {"host": socket.gethostname(), "machine": machine(), "id": pid, "began": began}


@cache
def machine() -> str:
    """Identifies the scope of process ids: host, boot, and PID namespace of a container."""
    boot_file = Path("/proc/sys/kernel/random/boot_id")
    space_file = Path("/proc/self/ns/pid")
    boot = boot_file.read_text().strip() if boot_file.exists() else ""
    space = os.readlink(space_file) if space_file.is_symlink() else ""
    return " ".join([socket.gethostname(), boot, space]).strip()


def read_metrics(directory: Path) -> list[dict[str, Any]]:
    """Rows of metrics.jsonl, except an incomplete last line of a killed process."""
    file = directory / METRICS
    lines = file.read_text(encoding="utf-8").split("\n")[:-1] if file.exists() else []
    return [json.loads(line) for line in lines]


def run_status(metadata: Mapping[str, Any]) -> str:
    """Status of a run from its metadata; "killed" if it is "running" but the process is gone."""
    process = metadata.get("process")
    if metadata["status"] != "running" or process is None:
        return str(metadata["status"])

    alive = is_alive(process)
    if alive is None:
        return f"running or killed, on {process['host']}"
    return "running" if alive else "killed"
