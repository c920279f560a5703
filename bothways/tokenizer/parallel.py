"""Ids of very many texts by several processes, each with its own copy of the tokenizer."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bothways.tokenizer.workers import workers

if TYPE_CHECKING:
    from bothways.tokenizer.tokenizer import Tokenizer

BLOCK = 2000  # texts a task
_worker: "Tokenizer"


def _start(tokenizer: "Tokenizer") -> None:
    global _worker  # one tokenizer a process, sent once and not with every block
    _worker = tokenizer


def _encode(texts: Sequence[str]) -> tuple[list[list[int]], int]:
    before = _worker.replaced_surrogates
    return [_worker.ids(text) for text in texts], _worker.replaced_surrogates - before


def ids(tokenizer: "Tokenizer", texts: Sequence[str], processes: int) -> list[list[int]]:
    """What tokenizer gives for each text, in order."""
    blocks = [texts[start : start + BLOCK] for start in range(0, len(texts), BLOCK)]
    with workers(processes, "encode text", _start, tokenizer) as pool:
        rows: list[list[int]] = []
        for block_rows, replaced in pool.map(_encode, blocks):
            rows += block_rows
            tokenizer.replaced_surrogates += replaced
        return rows
