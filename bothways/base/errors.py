"""Exceptions for user mistakes, helpers that format values in error messages, and the locations of rows."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from functools import lru_cache
from importlib.util import find_spec
from itertools import islice
from typing import Any, Self

ID_NAMES = ("id", "_id", "idx", "guid", "uid", "uuid")  # usual names of the column that identifies a row
LONGEST_ID = 100  # characters

# Modules of packages that not every installation has, and the extra that installs them.
EXTRA_BY_MODULE = {
    "torch": "train",
    "pyarrow": "train",
    "scipy": "train",
    "sklearn": "train",
    "joblib": "train",
    "starlette": "serve",
    "uvicorn": "serve",
    "httptools": "serve",
    "orjson": "serve",
    "msgspec": "serve",
    "prometheus_client": "serve",
    "datasets": "hub",
    "huggingface_hub": "hub",
    "onnx": "onnx",
    "onnxscript": "onnx",
    "onnxruntime": "onnx",
    "obstore": "cloud",
    "ray": "ray",
    "pypdfium2": "pdf",
    "striprtf": "documents",
}
DISTRIBUTIONS = {"torch": "PyTorch", "sklearn": "scikit-learn"}  # with other names than modules

COMMAND_LINE = "BOTHWAYS_COMMAND_LINE"  # environment variable, so that worker processes write as their command does
FLAGS = {"texts": "with", "from_checkpoint": "from", "purpose": "for"}  # flags with another name than their setting
OFF_FLAGS = {"strip_accents": "--keep-accents"}  # flags for False that are not --no-NAME

_renamed: ContextVar[Mapping[str, str] | None] = ContextVar("renamed", default=None)


@contextmanager
def command_line(is_active: bool = True) -> Iterator[None]:
    """Inside the block messages name options as flags (`--epochs 3`), outside as arguments (`epochs=3`)."""
    before = os.environ.pop(COMMAND_LINE, None)
    if is_active:
        os.environ[COMMAND_LINE] = "1"
    try:
        yield
    finally:
        os.environ.pop(COMMAND_LINE, None)
        if before is not None:
            os.environ[COMMAND_LINE] = before


@contextmanager
def renamed_options(names: Mapping[str, str]) -> Iterator[None]:
    """Inside the block messages in Python name options by other names: the parameters of the function that was
    called."""
    token = _renamed.set(names)
    try:
        yield
    finally:
        _renamed.reset(token)


def argument(name: str) -> str:
    """The name of a setting as an argument in Python."""
    return (_renamed.get() or {}).get(name, name)


def flag(name: str, value: object = None) -> str:
    """An option in a message, as the caller writes it: `--on-error skip` on the command line, `on_error="skip"` in
    Python. value: True or False for a switch that is to be set; None: the option alone."""
    if COMMAND_LINE in os.environ:
        if value is False:
            return OFF_FLAGS.get(name, f"--no-{name.replace('_', '-')}")
        option = f"--{FLAGS.get(name, name).replace('_', '-')}"
        return option if value is None or value is True else f"{option} {value}"

    option = argument(name)
    if value is None:
        return option
    if isinstance(value, bool | int | float):
        return f"{option}={value}"
    return f'{option}="{value}"'


def flags(values: Mapping[str, object]) -> str:
    """Several options with their values, as the caller writes them."""
    separator = " " if COMMAND_LINE in os.environ else ", "
    return separator.join(flag(name, value) for name, value in values.items())


class InputError(ValueError):
    """Invalid input or settings. The command line prints only the message and exits with status 1.

    option, value: the setting that is wrong, by its name in the settings, and its value; None for other errors.
    """

    option: str | None = None
    value: object = None


class UsageError(InputError):
    """A setting that this machine or this number of processes cannot meet. The command line exits with status 2."""


class RowsError(InputError):
    """Some input rows are invalid. rows: the reason for each, by its index in the input."""

    def __init__(self, message: str, rows: Mapping[int, str]) -> None:
        super().__init__(message)
        self.rows = dict(rows)


class RowError(InputError):
    """A row, or a line, that cannot be used.

    where: its location; text that is no location belongs to the reason.
    reason: why, and the way out.
    """

    def __init__(self, where: str, reason: str) -> None:
        if isinstance(where, FileLocation) and where.inner:
            reason = f"{where.inner}: {reason}"
            where = where.inside("")
        super().__init__(f"{where}: {reason}")
        self.where = where
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return RowError, (self.where, self.reason)


class MissingFile(InputError, FileNotFoundError):
    """A named file or directory does not exist."""


class EmptyInput(InputError):
    """A file without a row, text or question."""


class StorageError(InputError):
    """Object storage does not answer, or refuses; nothing is known of the content of the object."""


def not_permitted(error: OSError) -> InputError:
    """The error for a file or folder that this user may not read."""
    return InputError(f"{error.filename}: cannot be read ({error.strerror}); fix its permissions or move it away")


def join_names(names: Sequence[str], limit: int = 20) -> str:
    """Comma-separated names; beyond `limit`, the number of names left out."""
    listed = ", ".join(islice(names, limit))
    if len(names) > limit:
        listed += f" and {len(names) - limit:,} more"
    return listed


def nearest_name(name: str, names: Iterable[str]) -> str | None:
    """The name that was probably meant: equal up to case and white space, the shortest that continues `name`, or
    similar to it; None if there is none."""
    from difflib import get_close_matches

    by_key = {" ".join(other.lower().split()): other for other in names}
    key = " ".join(name.lower().split())
    continued = sorted((other for other in by_key if key and other.startswith(key)), key=len)
    near = continued or get_close_matches(key, by_key, n=1)
    return by_key[near[0]] if near else None


def must_be(option: str, value: object, wanted: str, *, shown: str = "") -> InputError:
    """The error for a setting that has another value than `wanted`. shown: the value in the message."""
    error = InputError(f"{argument(option)} ({shown or f'{value!r:.60}'}) must be {wanted}")
    error.option = option
    error.value = value
    return error


def needs_package(what: object, package: str, extra: str) -> InputError:
    """The error for a package that is not installed. what: file, option or verb that needs it."""
    return InputError(f"{what}: needs the package {package}; pip install 'bothways[{extra}]'")


def missing_package(what: object, module: str) -> InputError | None:
    """The error for a module that is not installed; None if it is, or belongs to no extra."""
    root = module.partition(".")[0]
    extra = EXTRA_BY_MODULE.get(root)
    if extra is None or find_spec(root):
        return None
    return needs_package(what, DISTRIBUTIONS.get(root, root), extra)


def require(what: object, module: str) -> None:
    """InputError if a module of an extra is not installed. what: file or option that needs it."""
    error = missing_package(what, module)
    if error is not None:
        raise error


@contextmanager
def packages_named(what: object) -> Iterator[None]:
    """Inside the block it is an InputError that a package of an extra is not installed. what: verb that needs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        input_error = missing_package(what, error.name or "")
        if input_error is None:
            raise
        raise input_error from error


def no_such_column(where: object, name: str, columns: Iterable[str], remedy: str) -> InputError:
    """The error for a column that does not exist: lists the columns, and asks for a similar one instead of `remedy`."""
    columns = [*columns]
    near = nearest_name(name, columns)
    remedy = remedy if near is None else f"did you mean {near!r}?"
    return InputError(f"{where}: no column {name!r} (there are: {', '.join(columns) or 'none'}); {remedy}")


def format_count(count: int, singular: str, plural: str = "") -> str:
    """A count with its noun: "1 row", "1,024 rows". plural: if it is not the singular with an s."""
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"


def differences(old: Mapping[str, object], new: Mapping[str, object]) -> str:
    """The differences of two sets of facts as "name: old -> new"."""
    names = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    return ", ".join(f"{name}: {old.get(name)!r} -> {new.get(name)!r}" for name in names)


def shorten(value: object, size: int = 60) -> str:
    """The value on one line, truncated to `size` characters."""
    line = " ".join(str(value).split())
    return line if len(line) <= size else f"{line[: size - 3]}..."


# --- where a row is: its number from 0, as pandas counts, its line in the file from 1, and the id of the user ---


class FileLocation(str):
    """A place in a file as text, with which a message begins: 'train.csv: row 3 (line 5), id 17'.

    file: the file or table, as it is named.
    place: the place in the file, as a list of errors names it: 'row 3 (line 5)'.
    inner: a part of the row, of which a message speaks: 'answers[2]'; "" for the whole row.
    """

    file: str
    place: str
    inner = ""

    def inside(self, part: str) -> Self:
        """The location of a part of the row."""
        location = copy(self)
        location.inner = part
        return location


class LineLocation(FileLocation):
    """The location of a line, from 1: 'train.csv:5'."""

    line: int

    def __new__(cls, file: object, line: int) -> Self:
        created = super().__new__(cls, f"{file}:{line}")
        created.file = str(file)
        created.place = f"line {line}"
        created.line = line
        return created

    def __getnewargs__(self) -> tuple[Any, ...]:
        return self.file, self.line  # for pickle and copy


class RowLocation(FileLocation):
    """The location of a row: 'train.csv: row 3 (line 5), id 17'.

    row: from 0, so that df.loc[row] is the row in pandas; blank lines are no rows.
    line: of the file, from 1, where the row begins; None for tables without lines.
    id: the value of the column that identifies a row; None without one.
    part: the place in a file of nested objects.
    """

    row: int
    line: int | None
    id: str | None
    part: str | None

    def __new__(
        cls, file: object, row: int, line: int | None = None, id: str | None = None, part: str | None = None
    ) -> Self:
        place = f"row {row}"
        detail = part if line is None else f"line {line}"
        if detail:
            place += f" ({detail})"

        text = f"{file}: {place}"
        if id is not None:
            text += f", id {id}"

        created = super().__new__(cls, text)
        created.file = str(file)
        created.place = place
        created.row = row
        created.line = line
        created.id = id
        created.part = part
        return created

    def to_json(self) -> list[Any]:
        """The arguments that make the same location."""
        return [self.file, self.row, self.line, self.id, self.part]

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self.to_json())  # for pickle and copy

    def with_id(self, values: Mapping[str, Any]) -> "RowLocation":
        """The location with the id in the row's values by column, if there is one."""
        name = id_column((*values,))
        id = None if name is None else readable_id(values[name])
        if id is None:
            return self
        return RowLocation(self.file, self.row, self.line, id=id, part=self.part)


@lru_cache(maxsize=256)
def id_column(names: tuple[str, ...]) -> str | None:
    """The column that identifies a row, by its usual names; None without one."""
    by_name = {name.strip().lower(): name for name in names}
    return next((by_name[name] for name in ID_NAMES if name in by_name), None)


def readable_id(value: object) -> str | None:
    """An id as text; None if it is missing, or nothing that a message can show."""
    text = str(value) if isinstance(value, str | int) else ""
    if not text or len(text) > LONGEST_ID or not text.isprintable():
        return None
    return None if ": " in text else text  # which would end the location in a message


def location_fields(where: str) -> dict[str, Any]:
    """The location of a row as JSON: file and row, and line and id if it has them; `where` for other texts."""
    if not isinstance(where, RowLocation):
        return {"where": where}
    values = {name: getattr(where, name) for name in ("file", "row", "line", "id")}
    return {name: value for name, value in values.items() if value is not None}


def location_columns(where: Sequence[str], among: Sequence[str] = ()) -> dict[str, list[Any]]:
    """The locations of rows as columns: file and row, and line and id if any row has them.

    among: all rows of which these are some, so that any number of them, even none, has the same columns.
    """
    rows = [*map(location_fields, where)]
    names: set[str] = set()
    for row in (*rows, *map(location_fields, among)):
        names |= row.keys()
    if not names:
        names = {"file", "row"}

    columns: dict[str, list[Any]] = {}
    for name in ("where", "file", "row", "line", "id"):
        if name in names:
            columns[name] = [row.get(name) for row in rows]
    return columns


def short_locations(where: Sequence[str]) -> list[str]:
    """Locations without the directory of their file, if all share one."""
    folders = {location.file.rpartition("/")[0] for location in where if isinstance(location, FileLocation)}
    prefix = f"{folders.pop()}/" if len(folders) == 1 else ""
    return [text.removeprefix(prefix) for text in where]
