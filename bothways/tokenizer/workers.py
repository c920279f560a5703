"""Worker processes, which end with this one; ids of very many texts by several of them."""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import Any, Protocol

from bothways.errors import InputError

BLOCK = 2000  # texts a task


class TextEncoder(Protocol):
    replaced_surrogates: int

    def ids(self, text: str) -> list[int]: ...


@contextmanager
def worker_pool(number: int, what: str, start: Callable[..., object] | None = None, *given: Any) -> Iterator[Executor]:
    """So many processes, each begun with start(*given). InputError if one dies; what: they do, for its message."""
    # Spawned, not forked: forking a process that has run torch can hang.
    with ProcessPoolExecutor(number, get_context("spawn"), _begin, (start, given)) as pool:
        try:
            yield pool
        except BrokenProcessPool:
            raise InputError(
                f"one of {number} processes that {what} was killed, most often because memory ran out; end other "
                "programs or use fewer processes (--processes); a script of your own needs if __name__ == '__main__'"
            ) from None


def _begin(start: Callable[..., object] | None, given: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent to answer
    Thread(target=_end_with_parent, daemon=True).start()
    if start:
        start(*given)


def _end_with_parent() -> None:
    """A parent that is killed cannot end its processes, and they would wait for work for ever."""
    if parent := parent_process():
        parent.join()
        os._exit(1)


_worker: TextEncoder


def _start(tokenizer: TextEncoder) -> None:
    global _worker  # one tokenizer a process, sent once and not with every block
    _worker = tokenizer


def _encode(texts: Sequence[str]) -> tuple[list[list[int]], int]:
    before = _worker.replaced_surrogates
    return [_worker.ids(text) for text in texts], _worker.replaced_surrogates - before


def encode_ids_parallel(tokenizer: TextEncoder, texts: Sequence[str], processes: int) -> list[list[int]]:
    """What tokenizer gives for each text, in order."""
    blocks = [texts[start : start + BLOCK] for start in range(0, len(texts), BLOCK)]
    with worker_pool(processes, "encode text", _start, tokenizer) as pool:
        rows: list[list[int]] = []
        for block_rows, replaced in pool.map(_encode, blocks):
            rows += block_rows
            tokenizer.replaced_surrogates += replaced
        return rows
