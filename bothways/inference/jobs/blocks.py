"""Blocks of input rows that are processed together; estimate of the number of rows."""

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal

from bothways.base.errors import EmptyInput, InputError, StorageError, flag, not_permitted, require
from bothways.base.paths import as_path
from bothways.text.data.model_inputs import LiveInput, ModelInput
from bothways.text.rows.delimited import rows_per_line
from bothways.text.rows.rows import FORMS, form_of
from bothways.text.rows.text_files import EXPLICIT_TYPES, file_type, is_compressed

# Limits of a block; a longer text is a block of its own. Bytes in UTF-8 stand for tokens: these are some 50,000 to
# 90,000 tokens, a minute or two of a large model on a CPU.
ROWS = 8192
BYTES = 1 << 18
SCORES = 1 << 20  # label scores per block, of some 60 bytes each
NUM_SAMPLES = 64  # parts of a file in which lines are counted
SAMPLE_SIZE = 1 << 18  # bytes of such a part


@dataclass(frozen=True)
class Block:
    """Input rows that are processed together.

    row_numbers: the index of each input among all rows of the file, from 0. errors: the reasons why other rows cannot
    be used, by index.
    """

    row_numbers: list[int] = field(default_factory=list)
    inputs: list[ModelInput] = field(default_factory=list)
    errors: dict[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.row_numbers) + len(self.errors)

    def without(self, errors: Mapping[int, str]) -> "Block":
        """A copy without some of the inputs. errors: the reasons, by index in `inputs`."""
        indices = [index for index in range(len(self.inputs)) if index not in errors]
        merged = self.errors | {self.row_numbers[index]: reason for index, reason in errors.items()}
        return Block(
            [self.row_numbers[index] for index in indices],
            [self.inputs[index] for index in indices],
            dict(sorted(merged.items())),
        )

    def digest(self, previous: str) -> str:
        """A hash of all rows so far. previous: the digest of the previous block; "" for the first block."""
        return hashlib.sha256(repr((previous, self)).encode()).hexdigest()


class RowsOfFile(Iterator[LiveInput]):
    """The rows of a file. An error of the file (damaged compression, a column that is missing) is an error of the row
    that would be next, and ends the rows: those before it are kept.

    inputs: the rows, read once; an InputError that they raise is one of the file. is_part: of many files; then the
    error may be in place of the first row, and a file without rows has none. False: such errors are raised. An error
    of the storage is always raised.
    error: what ended the rows early; None if nothing did.
    num_rows: rows so far, the error included.
    """

    def __init__(self, inputs: Iterable[LiveInput], *, is_part: bool) -> None:
        self.inputs = iter(inputs)
        self.is_part = is_part
        self.error: InputError | None = None
        self.num_rows = 0
        self.ahead = deque[LiveInput]()

    def has_rows(self) -> bool:
        """Whether the file has a first row; it is read for this, and still the next. Call it before any is taken."""
        if not self.num_rows:
            self.ahead.extend(islice(self, 1))
        return bool(self.num_rows) and self.error is None

    def __next__(self) -> LiveInput:
        if self.ahead:
            return self.ahead.popleft()
        if self.error is not None:
            raise StopIteration
        try:
            row = next(self.inputs)
        except StorageError:
            raise
        except InputError as error:
            row = self._last(error)
        except PermissionError as error:
            row = self._last(not_permitted(error))
        self.num_rows += row is not None
        return row

    def _last(self, error: InputError) -> InputError:
        """The error in place of a row."""
        if not self.is_part and not self.num_rows:
            raise error
        if isinstance(error, EmptyInput):
            raise StopIteration
        # The traceback would keep the open file in memory.
        self.error = error.with_traceback(None)
        return self.error


def split_into_blocks(
    inputs: Iterable[LiveInput], on_error: Literal["stop", "skip"], scores: int = 1, first: int = 0
) -> Iterator[Block]:
    """Divide all rows into blocks, which depend only on the rows.

    A block ends early at None, which live input yields when the next row has not arrived yet. on_error: raise an
    InputError that takes the place of a row, or record it in `errors`. scores: number of scores per row; with very
    many, blocks have fewer rows. first: the index of the first row.
    """
    max_rows = max(1, min(ROWS, SCORES // scores))
    block = Block()
    size = 0
    number = first - 1

    for row in inputs:
        if row is None:
            if len(block):
                yield block
            block = Block()
            size = 0
            continue

        number += 1
        length = num_bytes(row)
        if len(block) == max_rows or (len(block) and size + length > BYTES):
            yield block
            block = Block()
            size = 0
        size += length
        if not isinstance(row, InputError):
            block.row_numbers.append(number)
            block.inputs.append(row)
        elif on_error == "skip":
            block.errors[number] = str(row)
        else:
            raise InputError(f"{row}, or skip such rows with {flag('on_error', 'skip')}")
    if len(block):
        yield block


def block_limits() -> dict[str, int]:
    """The limits, by name, on which the borders of blocks depend."""
    return {"rows": ROWS, "bytes": BYTES, "scores": SCORES}


def num_bytes(row: LiveInput) -> int:
    """Of the texts of a row, in UTF-8."""
    texts = (row.text, row.pair or "") if isinstance(row, ModelInput) else ()
    return sum(len(text) if text.isascii() else len(text.encode(errors="surrogatepass")) for text in texts)


def estimate_num_rows(file: str, encoding: str | None = None) -> int | None:
    """The approximate number of rows in a file, from its size, the lines in some parts, and in a CSV the lines of its
    first rows; None if unknown."""
    path = as_path(file)
    if not path.is_file() or is_compressed(path) or file_type(path) in (*EXPLICIT_TYPES, ".json"):
        return None
    if file_type(path) == ".parquet":
        require(path, "pyarrow")
        import pyarrow.parquet

        try:
            return int(pyarrow.parquet.read_metadata(path).num_rows)
        except (pyarrow.ArrowException, OSError):
            return None  # reading the rows raises an error that explains it
    share = 1.0
    size = path.stat().st_size
    if form_of(path, encoding) is FORMS[".csv"]:
        try:
            share = rows_per_line(path, ROWS, encoding)
        except InputError:
            return None  # as above
    num_lines = num_bytes = 0
    sample = b"\n"
    with path.open("rb") as opened:
        for offset in range(0, size, max(SAMPLE_SIZE, size // NUM_SAMPLES)):
            opened.seek(offset)
            sample = opened.read(SAMPLE_SIZE)
            num_lines += sample.count(b"\n")
            num_bytes += len(sample)
    if num_bytes == size and not sample.endswith(b"\n"):
        num_lines += 1  # the last line may have no end
    return round(share * num_lines / num_bytes * size) if num_bytes else None
