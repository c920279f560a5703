"""The process that reads files for `Readers`: requests and parts are lines of JSON on its standard streams."""

import json
import os
import signal
import sys
from contextlib import suppress
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, TextIO

from bothways.base.errors import InputError, MissingFile, shorten
from bothways.search.readers import DocumentPart

LARGEST_TEXT = 1 << 28  # characters of a file, all parts together


def serve(reader: str, memory_limit: int) -> None:
    """Read the files that are named on the standard input, until it ends.

    reader: 'module:function'.
    memory_limit: bytes.
    """
    # Texts that a library prints go to standard error, so that they do not get among the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    _limit_memory(memory_limit)

    module, _, name = reader.partition(":")
    read = getattr(import_module(module), name)

    # Requests are received in a thread, since a reader may be at work for long when the parent ends.
    requests = SimpleQueue[dict[str, Any]]()
    Thread(target=_receive, args=(requests,), daemon=True).start()
    _send(answers, {"ready": True})
    while True:
        _answer(answers, read, memory_limit, **requests.get())


def _receive(requests: "SimpleQueue[dict[str, Any]]") -> None:
    """Queue the requests. The input ends when the parent does, even if it is killed: exit then, in whatever state."""
    for line in sys.stdin.buffer:
        requests.put(json.loads(line))
    os._exit(0)


def _answer(
    answers: TextIO,
    read: Any,
    memory_limit: int,
    *,
    path: str,
    folder: str,
    encoding: str | None,
) -> None:
    """Send the parts of a file, one a line, and then its end or an error."""
    try:
        os.chdir(folder)
        names = [each.name for each in fields(DocumentPart)]
        size = 0
        for part in read(Path(path), encoding=encoding):
            size += len(part.text)
            if size > LARGEST_TEXT:
                raise InputError(f"{path}: more than {LARGEST_TEXT >> 20} million characters of text; split it")
            values = {name: getattr(part, name) for name in names}
            answers.write(json.dumps({"part": values}) + "\n")  # flushed with the last message
    except InputError as error:
        _send(answers, {"error": str(error.args[0]), "is_missing": isinstance(error, MissingFile)})
    except MemoryError:
        reason = f"needs more than {memory_limit >> 20:,} MiB of memory to read; split it or save it as text"
        _send(answers, {"error": f"{path}: {reason}", "is_last": True})
        os._exit(1)  # a new process has all of its memory
    except Exception as error:
        reason = shorten(f"{type(error).__name__}: {error}", 200)
        _send(answers, {"error": f"{path}: cannot be read ({reason}); save it again, or as text"})
    else:
        _send(answers, {"end": True})


def _send(answers: TextIO, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def _limit_memory(memory_limit: int) -> None:
    """Limit the address space to what is in use now and `memory_limit` bytes, where /proc and RLIMIT_AS exist."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        limit = pages * resource.getpagesize() + memory_limit
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        if hard != resource.RLIM_INFINITY:
            limit = min(limit, hard)
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash writes no file
