"""Locks of open files between processes: flock, and msvcrt on Windows.

The system releases a lock when its file is closed, and however its process ends. docs/LOG.md says why no package is
used.
"""

import errno
import os
import time
from typing import IO, Any

POLL = 0.1  # seconds between two tries on Windows, which does not wait for a lock for ever


def acquire_lock(file: IO[Any] | int, *, is_shared: bool = False, is_waiting: bool = True) -> bool:
    """Lock an open file until it is closed.

    file: the file, or its descriptor. A process that is forked holds the same lock, until it closes the file too.
    is_shared: others may have a shared lock at the same time, but no exclusive one. Windows has no shared locks.
    is_waiting: wait while another process, or another opening of the file, has it.

    Returns whether the file is locked now: False if another has it, and this process does not wait.

    OSError if the file system has no such locks.
    """
    if locks_are_advisory():
        return _acquire_posix(file, is_shared=is_shared, is_waiting=is_waiting)
    if is_shared:
        raise OSError(errno.ENOTSUP, "no shared locks on Windows")

    while not _acquire_windows(file):
        if not is_waiting:
            return False
        time.sleep(POLL)
    return True


def locks_are_advisory() -> bool:
    """Whether a locked file can be read, renamed and deleted all the same: everywhere but on Windows."""
    try:
        import fcntl  # noqa: F401
    except ImportError:
        return False
    return True


def _acquire_posix(file: IO[Any] | int, *, is_shared: bool, is_waiting: bool) -> bool:
    import fcntl

    kind = fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX
    if not is_waiting:
        kind |= fcntl.LOCK_NB
    try:
        fcntl.flock(file, kind)
    except (BlockingIOError, PermissionError):  # PermissionError: on some network file systems
        return False
    return True


def _acquire_windows(file: IO[Any] | int) -> bool:
    """Lock the first byte of a file, which need not exist."""
    import msvcrt

    descriptor = file if isinstance(file, int) else file.fileno()
    os.lseek(descriptor, 0, os.SEEK_SET)
    try:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    except PermissionError:
        return False
    return True
