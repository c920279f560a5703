"""A Python without what Windows lacks: written as sitecustomize.py, it changes every process that is started with it.

Modules and functions of POSIX are missing, folders cannot be opened, and a file that is open or mapped is neither
renamed nor deleted. Backslashes, drive letters and the console are not simulated.
"""

import errno
import multiprocessing
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import types

# Packages that ask for the system at import have their own builds for Windows.
import numpy
import safetensors
import sentencex
import Stemmer
import threadpoolctl

READY = (multiprocessing, numpy, safetensors, sentencex, shutil, sqlite3, Stemmer, subprocess, tempfile, threadpoolctl)
MODULES = ("fcntl", "grp", "pwd", "pty", "readline", "resource", "syslog", "termios", "tty")
MISSING = {
    os: (
        *("fork", "forkpty", "getuid", "geteuid", "getgid", "getpgid", "killpg", "setsid", "sysconf", "statvfs"),
        *("pread", "pwrite", "fchmod", "chown", "mkfifo", "nice", "sendfile", "wait4", "register_at_fork"),
        *("posix_fadvise", "sched_getaffinity", "O_NOFOLLOW", "O_DIRECTORY", "O_CLOEXEC", "O_NONBLOCK"),
    ),
    signal: ("SIGHUP", "SIGKILL", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGCHLD", "alarm"),
    socket: ("AF_UNIX",),
}


def simulate() -> None:
    flock, exclusive = _posix_lock()
    for name in MODULES:
        sys.modules[name] = None
    for module, names in MISSING.items():
        for name in names:
            delattr(module, name)

    def locking(descriptor, mode, size):
        """PermissionError if another holds the lock."""
        try:
            flock(descriptor, exclusive)
        except BlockingIOError as error:
            raise PermissionError(errno.EACCES, "Permission denied") from error

    sys.modules["msvcrt"] = types.SimpleNamespace(LK_NBLCK=2, locking=locking)

    os.open = _open(os.open)
    os.fsync = _fsync(os.fsync)
    os.replace = _unless_in_use(os.replace, number=2)
    os.rename = _unless_in_use(os.rename, number=2)
    os.unlink = _unless_in_use(os.unlink, number=1)
    os.remove = _unless_in_use(os.remove, number=1)


def _posix_lock():
    import fcntl

    return fcntl.flock, fcntl.LOCK_EX | fcntl.LOCK_NB


def _open(function):
    def changed(path, *arguments, **options):
        if not isinstance(path, int) and os.path.isdir(path):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return function(path, *arguments, **options)

    return changed


def _fsync(function):
    """Of files that are open for writing alone."""

    def changed(file):
        number = file if isinstance(file, int) else file.fileno()
        with open(f"/proc/self/fdinfo/{number}", encoding="utf-8") as lines:
            flags = next(int(line.split()[1], 8) for line in lines if line.startswith("flags:"))
        if flags & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "Bad file descriptor")
        function(file)

    return changed


def _unless_in_use(function, number):
    """number: of the arguments that are paths."""

    def changed(*arguments, **options):
        for path in arguments[:number]:
            if os.path.isfile(path) and _is_in_use(os.path.realpath(path)):
                raise PermissionError(errno.EACCES, "The process cannot access the file: it is in use", str(path))
        return function(*arguments, **options)

    return changed


def _is_in_use(path) -> bool:
    """Whether this process has opened or mapped the file."""
    for number in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{number}") == path:
                return True
        except FileNotFoundError:  # of the listing itself
            continue
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as lines:
        return any(line.rstrip("\n").endswith(f" {path}") for line in lines)


if __name__ == "sitecustomize":
    simulate()
