"""The rows of an input in blocks, each read, worked on and written before the next; and about how many a file has."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bothways.data.files import EXPLICIT_TYPES, file_type, is_compressed
from bothways.data.stream import LiveInput, ModelInput
from bothways.errors import InputError

ROWS, CHARACTERS = 8192, 1 << 22  # of a block at most; a longer text is a block of its own
SCORES = 1 << 20  # of labels in a block, which take some 60 bytes each
SAMPLES, SAMPLE = 64, 1 << 18  # parts of a file whose lines are counted, and bytes of each


@dataclass(frozen=True)
class Block:
    """Rows of the input that are worked on together. numbers: which of the input's rows, from 0, are `given`; wrong:
    why the others could not be read, by their numbers."""

    numbers: list[int] = field(default_factory=list)
    given: list[ModelInput] = field(default_factory=list)
    wrong: dict[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.numbers) + len(self.wrong)

    def without(self, wrong: Mapping[int, str]) -> "Block":
        """The same with some of those given among the wrong ones, by their places."""
        left = [place for place in range(len(self.given)) if place not in wrong]
        told = self.wrong | {self.numbers[place]: why for place, why in wrong.items()}
        return Block(
            [self.numbers[place] for place in left], [self.given[place] for place in left], dict(sorted(told.items()))
        )

    def digest(self, before: str) -> str:
        """Names all that was read so far; before: that of the block before, "" of none."""
        return hashlib.sha256(repr((before, self)).encode()).hexdigest()


def in_blocks(found: Iterable[LiveInput], on_error: Literal["stop", "skip"], scores: int = 1) -> Iterator[Block]:
    """All rows in blocks, a function of what is read alone. on_error: whether an InputError among them is raised, or
    stands in `wrong`. A block ends early where None says that the next row is not there yet. scores: how many each row
    is to get; if they are very many, blocks have fewer rows."""
    rows = max(1, min(ROWS, SCORES // scores))
    block, size, number = Block(), 0, -1
    for one in found:
        if one is None:
            if len(block):
                yield block
            block, size = Block(), 0
            continue
        number += 1
        room = 0 if isinstance(one, InputError) else len(one.text) + len(one.pair or "")
        if len(block) == rows or (len(block) and size + room > CHARACTERS):
            yield block
            block, size = Block(), 0
        size += room
        if not isinstance(one, InputError):
            block.numbers.append(number)
            block.given.append(one)
        elif on_error == "skip":
            block.wrong[number] = str(one)
        else:
            raise InputError(f"{one}, or set such rows aside with --on-error skip")
    if len(block):
        yield block


def about_how_many(file: str) -> int | None:
    """About how many rows a file has, by its size and the lines of some of its parts; None where that tells nothing."""
    path = Path(file)
    if not path.is_file() or is_compressed(path) or file_type(path) in (*EXPLICIT_TYPES, ".json"):
        return None
    if file_type(path) == ".parquet":
        import pyarrow.parquet

        try:
            return int(pyarrow.parquet.read_metadata(path).num_rows)
        except (pyarrow.ArrowException, OSError):
            return None  # whoever reads its rows will say what is wrong with it
    size = path.stat().st_size
    num_lines = num_bytes = 0
    with path.open("rb") as opened:
        for place in range(0, size, max(SAMPLE, size // SAMPLES)):
            opened.seek(place)
            part = opened.read(SAMPLE)
            num_lines, num_bytes = num_lines + part.count(b"\n"), num_bytes + len(part)
    return round(num_lines / num_bytes * size) if num_bytes else None
