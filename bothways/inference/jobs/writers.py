"""Writers of .npy, .jsonl, .parquet, .csv and .tsv files that are appended to block by block.

An unfinished file can be truncated to the end of any block. A .parquet file cannot, since it is unreadable without its
last bytes: its blocks are kept as an Arrow stream, which is converted to .parquet at the end.
"""

import io
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bothways.base.io import SURROGATES, to_json
from bothways.tasks.scores import probability_column

ResultRow = dict[str, Any]
Columns = Mapping[str, Any]  # the type of each column by its name: see `Task.columns` and `arrow_type`
Vectors = NDArray[np.float32]
FORMULA = re.compile("[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")  # characters that begin a formula in spreadsheets
ROW_GROUP = 1 << 26  # bytes of a row group of a .parquet, or a little more


class ResultFormat(ABC):
    """A file format. Rows of all formats but .npy begin with the number of their input row, "row"."""

    def head(self) -> bytes:
        """The bytes before the first block."""
        return b""

    @abstractmethod
    def block(self, numbers: Sequence[int], results: Vectors | Sequence[ResultRow]) -> Iterable[bytes]:
        """The bytes of a block's results, in pieces. numbers: the indices of the input rows."""

    def complete(self, partial: Path, num_rows: int) -> Path:
        """Finish the file from the head and blocks in `partial` (idempotent); returns its path, perhaps `partial`."""
        return partial


@dataclass(frozen=True)
class Npy(ResultFormat):
    """NumPy's format 1.0, byte for byte as np.save writes it. Its header has room for any number of rows."""

    width: int  # size of a vector

    def head(self) -> bytes:
        return self._header(0)

    def block(self, numbers: Sequence[int], results: Vectors | Sequence[ResultRow]) -> Iterable[bytes]:
        yield np.asarray(results, "<f4").tobytes()

    def complete(self, partial: Path, num_rows: int) -> Path:
        with partial.open("r+b") as file:
            file.write(self._header(num_rows))
        return partial

    def _header(self, num_rows: int) -> bytes:
        header = io.BytesIO()
        description = {"descr": "<f4", "fortran_order": False, "shape": (num_rows, self.width)}
        np.lib.format.write_array_header_1_0(header, description)
        return header.getvalue()


@dataclass(frozen=True)
class JsonLines(ResultFormat):
    """One object per line; vectors are named "vector"."""

    def block(self, numbers: Sequence[int], results: Vectors | Sequence[ResultRow]) -> Iterable[bytes]:
        if isinstance(results, np.ndarray):
            lines = _vector_lines(numbers, results)
        else:
            lines = (to_json({"row": number, **row}) for number, row in zip(numbers, results, strict=True))
        return (line.encode() + b"\n" for line in lines)


def _vector_lines(numbers: Sequence[int], vectors: Vectors) -> Iterator[str]:
    """Vectors with nine digits, which represent a float32 exactly: a third of the time and two thirds of the bytes of
    json.dumps."""
    form = ", ".join(["%.9g"] * vectors.shape[1])
    for number, vector in zip(numbers, vectors, strict=True):
        yield f'{{"row": {number}, "vector": [{form % tuple(vector.tolist())}]}}'


@dataclass(frozen=True)
class Parquet(ResultFormat):
    """A table of "row" and `columns`; for vectors its only column is "vector". file: the value of a column "file" after
    "row"; None: without one."""

    columns: Columns
    file: str | None = None

    def head(self) -> bytes:
        return bytes(self._schema().serialize())

    def block(self, numbers: Sequence[int], results: Vectors | Sequence[ResultRow]) -> Iterable[bytes]:
        import pyarrow

        schema = self._schema()
        if isinstance(results, np.ndarray):
            flat = pyarrow.array(results.ravel())
            vectors = pyarrow.FixedSizeListArray.from_arrays(flat, results.shape[1])
            files = [] if self.file is None else [pyarrow.array([self.file] * len(results), pyarrow.string())]
            arrays = [pyarrow.array(numbers, pyarrow.int64()), *files, vectors]
            batch = pyarrow.RecordBatch.from_arrays(arrays, schema=schema)
        else:
            texts = [field.name for field in schema if pyarrow.types.is_string(field.type)]
            first = {} if self.file is None else {"file": self.file}
            results = [{**first, **row} for row in results]
            rows = [{"row": number, **_without_surrogates(row)} for number, row in zip(numbers, results, strict=True)]
            rows = [row | {name: _text(row[name]) for name in texts} for row in rows]
            batch = pyarrow.RecordBatch.from_pylist(rows, schema=schema)
        yield bytes(batch.serialize())

    def complete(self, partial: Path, num_rows: int) -> Path:
        import pyarrow
        import pyarrow.parquet

        converted = partial.with_name(f"{partial.name}.parquet")
        # Numbers of vectors hardly repeat, so a dictionary would be useless.
        dictionary = "vector" not in self.columns
        try:
            with (
                partial.open("rb") as file,
                pyarrow.ipc.open_stream(file) as batches,
                pyarrow.parquet.ParquetWriter(converted, batches.schema, use_dictionary=dictionary) as writer,
            ):
                for group in _row_groups(batches):
                    writer.write_table(pyarrow.Table.from_batches(group))
        except BaseException:
            converted.unlink(missing_ok=True)
            raise
        return converted

    def _schema(self) -> Any:
        import pyarrow

        columns = {"row": int, **({} if self.file is None else {"file": str}), **self.columns}
        return pyarrow.schema({name: arrow_type(kind) for name, kind in columns.items()})


@dataclass(frozen=True)
class Separated(ResultFormat):
    """.csv: comma-separated, quoted as in RFC 4180, lines end in a line feed. .tsv: tab-separated without quoting; tabs
    and line ends inside a value become spaces.

    Lists and objects are written as JSON, but "scores" has a column for each of the labels, if they are given.
    escape_formulas: put ' before texts that spreadsheets would evaluate.
    """

    columns: Sequence[str]  # without "row"
    tabs: bool
    escape_formulas: bool = False
    labels: Sequence[str] = ()

    def head(self) -> bytes:
        columns = [name for name in self.columns if not self._is_split(name)]
        return self._line(["row", *columns, *map(probability_column, self.labels)])

    def block(self, numbers: Sequence[int], results: Vectors | Sequence[ResultRow]) -> Iterable[bytes]:
        for number, row in zip(numbers, results, strict=True):
            values = [row[name] for name in self.columns if not self._is_split(name)]
            yield self._line([number, *values, *(row["scores"][label] for label in self.labels)])

    def _is_split(self, column: str) -> bool:
        return column == "scores" and bool(self.labels)

    def _line(self, values: Sequence[Any]) -> bytes:
        return (("\t" if self.tabs else ",").join(map(self._cell, values)) + "\n").encode()

    def _cell(self, value: Any) -> str:
        text = _without_surrogates(_text(value) or "")
        if self.escape_formulas and isinstance(value, str) and FORMULA.match(text):
            text = f"'{text}"
        if self.tabs:
            return re.sub("[\t\r\n]", " ", text)
        return '"' + text.replace('"', '""') + '"' if re.search('[,"\r\n]', text) else text


def _text(value: Any) -> str | None:
    """A string or None unchanged, anything else as JSON."""
    return value if value is None or isinstance(value, str) else to_json(value)


def vector_column(width: int) -> Columns:
    """The columns of a table of vectors."""
    return {"vector": width}


def arrow_type(kind: Any) -> Any:
    """The pyarrow.DataType of a type as `Task.columns` has it; of a number, a vector of that size; of itself."""
    import pyarrow

    if isinstance(kind, type):
        types = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64(), bool: pyarrow.bool_()}
        return types[kind]
    if isinstance(kind, list):
        return pyarrow.list_(arrow_type(kind[0]))
    if isinstance(kind, dict):
        return pyarrow.struct({name: arrow_type(inner) for name, inner in kind.items()})
    if isinstance(kind, tuple):
        return pyarrow.map_(*map(arrow_type, kind))
    return pyarrow.list_(pyarrow.float32(), kind) if isinstance(kind, int) else kind


def _without_surrogates(value: Any) -> Any:
    """The value with U+FFFD in place of lone surrogates, which UTF-8 cannot encode."""
    if isinstance(value, str):
        return SURROGATES.sub("\ufffd", value)
    if isinstance(value, dict):
        return {name: _without_surrogates(inner) for name, inner in value.items()}
    return [_without_surrogates(inner) for inner in value] if isinstance(value, list) else value


def _row_groups(batches: Iterable[Any]) -> Iterator[list[Any]]:
    group: list[Any] = []
    size = 0
    for batch in batches:
        group.append(batch)
        size += batch.nbytes
        if size >= ROW_GROUP:
            yield group
            group = []
            size = 0
    if group:
        yield group
