"""Readers that fail, run in the process of `Readers` by tests."""

import os
import signal
import sys
from threading import Event

from bothways.base.errors import InputError
from bothways.search.readers import DocumentPart, read_parts


def by_name(path, *, encoding):
    """What the name of the file asks for."""
    yield DocumentPart(str(os.getpid()))
    if path.stem == "hang":
        Event().wait()
    elif path.stem == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif path.stem == "exit":
        os._exit(7)
    elif path.stem == "memory":
        yield DocumentPart(str(len(bytearray(1 << 30))))
    elif path.stem == "bug":
        raise KeyError("two\nlines")
    elif path.stem == "refused":
        raise InputError(f"{path}: refused; give its --encoding")
    elif path.stem == "chatter":
        os.write(1, b"noise\n")
    elif path.stem == "modules":
        [*read_parts(path.with_suffix(".jsonl"))]
        yield DocumentPart(" ".join(sys.modules))
    elif path.stem == "hold":
        with path.open("wb", buffering=0):
            Event().wait()
