"""Readers: reads text here, and files of other types in a process that may crash, hang or fill its memory."""

import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired
from threading import Event, Lock, Timer
from typing import Any, Self

from bothways.base.errors import InputError, MissingFile
from bothways.search.readers import DocumentPart, is_plain, read_parts
from bothways.text.rows.text_files import is_compressed

START_LIMIT = 60.0  # seconds
STOP_LIMIT = 5.0  # seconds
READER = "bothways.search.readers:read_parts"
# The parent's path is set before anything else is imported; -P keeps the current folder out until then.
CODE = """
import sys
sys.path[:] = sys.argv[3:]
from bothways.search.reader_worker import serve
serve(sys.argv[1], int(sys.argv[2]))
"""


class Readers:
    """Reads files one at a time. Close it, or use it in a `with` block, to end its process.

    Plain text and Markdown are read in this process. Other files are read in a process that starts with the first of
    them. It is a new interpreter and not one of multiprocessing: a fork is unsafe in a process with threads, and
    "spawn" and "forkserver" import the main module of the caller, which may take seconds (torch) or fail.

    encoding: of text without a byte-order mark.
    time_limit: seconds a file.
    memory_limit: bytes, where the system has such a limit (Linux).
    reader: 'module:function' that is called in the process instead of `read_parts`.
    """

    def __init__(
        self,
        *,
        encoding: str | None = None,
        time_limit: float = 30.0,
        memory_limit: int = 2 << 30,
        reader: str = READER,
    ) -> None:
        self.encoding = encoding
        self.time_limit = time_limit
        self.memory_limit = memory_limit
        self.reader = reader
        self._process: Popen[bytes] | None = None
        self._lock = Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, path: Path) -> list[DocumentPart]:
        """The parts of a file. InputError, in one line, if it cannot be read; that does not affect other files."""
        if is_plain(path) and not is_compressed(path):
            return [*read_parts(path, encoding=self.encoding)]
        with self._lock:
            return self._read_in_process(path)

    def close(self) -> None:
        """End the process; a later file starts a new one."""
        with self._lock:
            self._stop()

    def _read_in_process(self, path: Path) -> list[DocumentPart]:
        if self._process and self._process.poll() is not None:  # ended between two files
            self._stop()
        process = self._process or self._start()

        request = {"path": os.fspath(path), "folder": os.getcwd(), "encoding": self.encoding}
        parts: list[DocumentPart] = []
        with _TimeLimit(process, self.time_limit) as limit:
            message = _ask(process, request)
            while "part" in message:
                parts.append(DocumentPart(**message["part"]))
                message = _receive(process)

        if limit.is_over or not message or message.get("is_last"):
            self._stop()
        if not message:
            raise InputError(f"{path}: {_what_happened(process, limit)}; save it again, or as text")
        if "error" in message:
            reason = " ".join(message["error"].splitlines())
            raise MissingFile(reason) if message.get("is_missing") else InputError(reason)
        return parts

    def _start(self) -> Popen[bytes]:
        command = [
            sys.executable,
            "-P",
            "-c",
            CODE,
            self.reader,
            str(self.memory_limit),
            *filter(None, sys.path),
        ]
        # One thread: each one of a library for numbers takes address space.
        settings = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        process = Popen(command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=os.environ | settings)
        self._process = process

        with _TimeLimit(process, START_LIMIT):
            message = _receive(process)
        if not message:
            self._stop()
            raise InputError(f"the process that reads files did not start ({sys.executable}, {self.reader})")
        return process

    def _stop(self) -> None:
        process = self._process
        self._process = None
        if process is None:
            return

        assert process.stdin and process.stdout
        with suppress(OSError):  # it ended before
            process.stdin.close()  # upon which it exits
        try:
            process.wait(STOP_LIMIT)
        except TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


class _TimeLimit:
    """Kills a process that is still at work after a time, or if the block is left by an exception."""

    def __init__(self, process: Popen[bytes], seconds: float) -> None:
        self.process = process
        self.seconds = seconds
        self.over = Event()
        self.timer = Timer(seconds, self._end)
        self.timer.daemon = True

    @property
    def is_over(self) -> bool:
        return self.over.is_set()

    def __enter__(self) -> Self:
        self.timer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.timer.cancel()
        self.timer.join()
        if kind:  # interrupted between a request and its answer
            self.process.kill()
            self.process.wait()

    def _end(self) -> None:
        self.over.set()
        self.process.kill()


def _ask(process: Popen[bytes], request: dict[str, Any]) -> dict[str, Any]:
    assert process.stdin
    try:
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
    except OSError:
        return {}
    return _receive(process)


def _receive(process: Popen[bytes]) -> dict[str, Any]:
    """The next message; {} if the process has ended."""
    assert process.stdout
    line = process.stdout.readline()
    return dict(json.loads(line)) if line.endswith(b"\n") else {}


def _what_happened(process: Popen[bytes], limit: _TimeLimit) -> str:
    if limit.is_over:
        return f"not read after {limit.seconds:g} seconds"
    code = process.wait()
    try:
        reason = signal.Signals(-code).name
    except ValueError:
        reason = f"exit status {code}"
    return f"the process that read it ended ({reason})"
