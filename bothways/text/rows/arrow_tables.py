"""Parquet and Arrow files, and the names of classes that `datasets` stores in them."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import Any, BinaryIO, cast

from bothways.base.errors import InputError, RowError, format_count, require
from bothways.base.paths import RemotePath
from bothways.settings.tables_in_memory import RowOrError, TableSource, rows_from_batches
from bothways.text.rows import text_files
from bothways.text.rows.column_names import match_columns, missing_column
from bothways.text.rows.delimited import check_names

ARROW_FILE_HEAD = b"ARROW1"  # first bytes of an Arrow file, which a stream lacks
ClassNames = Mapping[str, Sequence[str]]  # class names by column, for columns of class indices or lists of them


def read_parquet(path: Path, column: str | None, encoding: str | None) -> Iterator[RowOrError]:
    """The rows of a Parquet file, or their errors. column: a required one, or several; only these are read."""
    require(path, "pyarrow")
    import pyarrow
    import pyarrow.parquet

    with _seekable(path) as source:
        try:
            # Read pages as needed instead of whole row groups.
            with pyarrow.parquet.ParquetFile(source, buffer_size=text_files.BLOCK, pre_buffer=False) as file:
                needed = needed_columns(path, column, file.schema_arrow.names)
                batches = file.iter_batches(batch_size=256, columns=needed)
                yield from with_class_names(rows_from_batches(path, batches), stored_classes(file.schema_arrow, needed))
        except (pyarrow.ArrowException, OSError) as error:
            raise InputError(
                f"{path}: not a valid Parquet file ({str(error).splitlines()[0]}); write it again"
            ) from None


def read_schema(path: Path) -> Any:
    """The pyarrow.Schema of a Parquet or Arrow file."""
    require(path, "pyarrow")
    import pyarrow.parquet

    if text_files.file_type(path) == text_files.ARROW:
        with _arrow_batches(path) as (schema, _):
            return schema
    with _seekable(path) as source:
        return pyarrow.parquet.read_schema(source)


@contextmanager
def _seekable(path: Path) -> Iterator[Path | BinaryIO]:
    """The file, or a decompressed temporary copy: Parquet is read from its end."""
    with text_files.open_file(path) as file:
        if not text_files.is_compressed(path):
            yield cast(BinaryIO, file) if isinstance(path, RemotePath) else path
            return
        with TemporaryFile() as temporary:
            try:
                copyfileobj(file, temporary, text_files.BLOCK)
            except text_files.DECOMPRESSION_ERRORS as error:
                raise text_files.decompression_error(str(path), error) from None
            yield cast(BinaryIO, temporary)


def read_arrow(
    path: Path, column: str | None, encoding: str | None = None, part_of: tuple[Path, Iterator[int]] | None = None
) -> Iterator[RowOrError]:
    """The rows of an Arrow file, or their errors.

    column: see `read_parquet`.
    part_of: the dataset that the file is a part of, and its row numbers.
    """
    require(path, "pyarrow")
    import pyarrow

    dataset, numbers = part_of or (path, None)
    try:
        with _arrow_batches(path) as (schema, batches):
            needed = needed_columns(path, column, schema.names)
            selected = (batch.select(needed) for batch in batches)
            rows = rows_from_batches(dataset, selected, numbers)
            yield from with_class_names(rows, stored_classes(schema, needed))
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"{path}: not a valid Arrow file ({str(error).splitlines()[0]}); save it again") from None


@contextmanager
def _arrow_batches(path: Path) -> Iterator[tuple[Any, Iterator[Any]]]:
    """The schema and the batches of an Arrow file, or of a stream as `datasets` saves it under the same ending."""
    import pyarrow.ipc

    with text_files.open_file(path) as file:
        if not file.peek(len(ARROW_FILE_HEAD)).startswith(ARROW_FILE_HEAD):
            with pyarrow.ipc.open_stream(file) as batches:
                yield batches.schema, iter(batches)
            return

    # Unlike a stream, a file is read from its end.
    with _seekable(path) as source, pyarrow.ipc.open_file(source) as batches:
        yield batches.schema, map(batches.get_batch, range(batches.num_record_batches))


def needed_columns(path: TableSource, column: str | None, columns: list[str]) -> list[str]:
    """The columns to read: all, or the required ones. InputError if one of those is missing."""
    check_names(str(path), columns)
    if column is None:
        return columns
    if not (needed := match_columns(column, columns)):
        raise missing_column(str(path), column, columns)
    return [*needed]


# --- the names of classes ---------------------------------------------------------------------------------------------


def class_names(features: Mapping[str, Any]) -> ClassNames:
    """The class names in `features`, which are in the form `datasets` writes into files (5.2, and before 4)."""
    names_by_column = {}
    for column, feature in features.items():
        # A list of values is [feature] before datasets 4, an object with the key `feature` since.
        if isinstance(feature, list) and feature:
            feature = feature[0]
        value_type = feature.get("feature", feature) if isinstance(feature, Mapping) else None
        if isinstance(value_type, Mapping) and value_type.get("_type") == "ClassLabel":
            names_by_column[column] = [*map(str, value_type["names"])]
    return names_by_column


def _schema_features(schema: Any) -> Mapping[str, Any]:
    """The features that `datasets` stored in a pyarrow.Schema; {} without a schema (None) or features."""
    metadata = (schema.metadata or {}).get(b"huggingface") if schema else None
    try:
        features = json.loads(metadata)["info"]["features"] if metadata else {}
    except (ValueError, KeyError, TypeError):
        features = {}
    return features if isinstance(features, dict) else {}


def stored_classes(schema: Any, columns: Collection[str] | None = None) -> ClassNames:
    """The class names in a pyarrow.Schema, of these columns; {} without a schema (None)."""
    names_by_column = class_names(_schema_features(schema))
    return {name: names for name, names in names_by_column.items() if columns is None or name in columns}


def with_class_names(rows: Iterable[RowOrError], names_by_column: ClassNames) -> Iterator[RowOrError]:
    """The rows with class names instead of class indices, and None for -1 (no class); an error for an unknown index."""
    if not names_by_column:
        yield from rows
        return

    for row in rows:
        if isinstance(row, InputError):
            yield row
            continue

        where, values = row
        try:
            classes = {
                column: _class_name(where, values.get(column), column, names)
                for column, names in names_by_column.items()
            }
            yield where, {**values, **classes}
        except InputError as error:
            yield error.with_traceback(None)  # a traceback would keep all rows in memory


def _class_name(where: str, value: Any, column: str, names: Sequence[str]) -> Any:
    """The class name of an index, or of each index in a list; None for -1; values that are not integers are kept.

    where, column: the location and the column of the value, for the message.
    value: a value of the column.
    names: the class names of the column, by index.
    """
    if isinstance(value, list):
        return [_class_name(where, item, column, names) for item in value]
    if value == -1:
        return None
    if not isinstance(value, int):
        return value

    if 0 <= value < len(names):
        return names[value]
    raise RowError(
        where, f"{column!r} is {value}, but the dataset has {format_count(len(names), 'class', 'classes')}; fix the row"
    )
