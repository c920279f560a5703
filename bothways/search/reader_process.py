"""Reading files safely: parsers of foreign formats run in a process with limits of time and memory.

The process is a fresh interpreter, started on first need: a fork could inherit locks of threads, and multiprocessing
would run the caller's main module again. It ends when its input is closed, so also when the caller is killed.
"""

import pickle
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import IO, Any

from bothways.errors import InputError
from bothways.search.readers import DocumentPart, is_plain, read_parts

TIME_LIMIT = 30.0  # seconds for a file
MEMORY_LIMIT = 1 << 31  # bytes of address space, beyond those at the start
HEADER = struct.Struct(">Q")
START = "import sys; sys.path[:] = {path!r}; from bothways.search.reader_process import serve; serve({memory})"


class Readers:
    """Reads files: plain text here, other formats in the process."""

    def __init__(self, *, time_limit: float = TIME_LIMIT, memory_limit: int = MEMORY_LIMIT, start: str = START) -> None:
        """start: Python code of the process; {path} and {memory} are filled in."""
        self.time_limit, self.start = time_limit, start.format(path=sys.path, memory=memory_limit)
        self.process: subprocess.Popen[bytes] | None = None
        self.answers: SimpleQueue[Any] = SimpleQueue()

    def __enter__(self) -> "Readers":
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()

    def read(self, path: Path) -> list[DocumentPart]:
        """The parts of a file. InputError for a file that cannot be read, or that the process did not survive."""
        if is_plain(path):
            return [*read_parts(path)]
        process = self.process or self._begin()
        assert process.stdin is not None
        try:
            _write(process.stdin, path)
            answer = self.answers.get(timeout=self.time_limit)
        except Empty:
            self._stop()
            raise InputError(f"{path}: not read within {self.time_limit:g} s; leave it out with --glob") from None
        except OSError:
            answer = None
        if answer is None:
            self._stop()
            raise InputError(f"{path}: its reader crashed; the file may be damaged, save it anew")
        parts, error = answer
        if error is not None:
            raise InputError(error)
        return list(parts)

    def _begin(self) -> subprocess.Popen[bytes]:
        self.process = subprocess.Popen(
            [sys.executable, "-c", self.start], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.answers = SimpleQueue()
        assert self.process.stdout is not None
        Thread(target=_collect, args=(self.process.stdout, self.answers), daemon=True).start()
        return self.process

    def _stop(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                assert stream is not None
                with suppress(OSError):  # of a request that it no longer reads
                    stream.close()


def _collect(stream: IO[bytes], answers: "SimpleQueue[Any]") -> None:
    """Put every answer into the queue, and None when the process has ended."""
    try:
        while (answer := _read(stream)) is not None:
            answers.put(answer)
    except (OSError, ValueError, EOFError, pickle.UnpicklingError):
        pass
    answers.put(None)


def _write(stream: IO[bytes], value: Any) -> None:
    content = pickle.dumps(value)
    stream.write(HEADER.pack(len(content)) + content)
    stream.flush()


def _read(stream: IO[bytes]) -> Any:
    """The next value; None at the end. Both ends are this program, so unpickling is safe: a parser that is taken over
    has the rights of this user anyway."""
    header = stream.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    content = stream.read(HEADER.unpack(header)[0])
    return pickle.loads(content)


def serve(memory_limit: int) -> None:
    """The process: answer paths with (parts, error) until the input ends."""
    _limit_memory(memory_limit)
    answers, sys.stdout = sys.stdout.buffer, sys.stderr
    while (path := _read(sys.stdin.buffer)) is not None:
        try:
            answer: tuple[list[DocumentPart], str | None] = [*read_parts(path)], None
        except InputError as error:
            answer = [], str(error)
        except MemoryError:
            answer = [], f"{path}: needs more than {memory_limit >> 20} MiB of memory to read; divide it"
        except OSError as error:
            answer = [], f"{path}: {error.strerror or error}"
        except Exception as error:
            answer = [], f"{path}: cannot be read ({type(error).__name__}: {error}); save it anew"
        _write(answers, answer)


def _limit_memory(size: int) -> None:
    try:
        import resource
    except ImportError:  # Windows
        return
    try:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + size, used + size))
    except (OSError, ValueError):  # not Linux, or a lower limit
        pass
