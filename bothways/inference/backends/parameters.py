"""Read the parameters of a model for numpy, of packed weights from a file in which they are unpacked once.

That file is in the cache directory, and is mapped into memory.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import get_ident
from time import time
from zlib import crc32

import numpy as np
from safetensors import SafetensorError, safe_open

from bothways.base.errors import InputError
from bothways.base.io import unpacked_directory
from bothways.core.layout import is_linear
from bothways.inference.backends.forward import Array
from bothways.model.checkpoint.formats.hugging_face import TABLE
from bothways.model.checkpoint.formats.packed import PackedTensors
from bothways.model.checkpoint.model_files import ModelFiles
from bothways.model.checkpoint.weights import is_finite, open_safetensors

# Keys in the metadata of a file of unpacked weights.
CHECKSUM = "crc32"
SOURCE = "source"
LEFT_SECONDS = 3600  # after which a temporary file belongs to no process that still writes it


def read_parameters(files: ModelFiles, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
    """The parameters in float32 but for the word table, matrices [in, out]. Packed weights are read from a file in the
    cache directory, which is written if it is missing; without such a directory they are unpacked in memory."""
    if not isinstance(files.arrays, PackedTensors):
        return unpack(files, shapes)
    try:
        file = unpacked_directory() / f"{files.arrays.digest[:16]}.safetensors"
    except RuntimeError:  # a user without a home
        return unpack(files, shapes)
    with suppress(InputError, OSError, ValueError):
        return map_parameters(file, shapes)

    parameters = unpack(files, shapes)
    try:
        write_parameters(file, parameters, files.directory.path)
        return map_parameters(file, shapes)
    except (InputError, OSError, SafetensorError):  # a full disk, or a directory that cannot be written
        return parameters


def write_parameters(file: Path, parameters: dict[str, Array], source: Path) -> None:
    """Write the file that `map_parameters` reads, as a whole. source: the directory of the packed weights."""
    from safetensors.numpy import save_file

    file.parent.mkdir(parents=True, exist_ok=True)
    for leftover in file.parent.glob(".*.tmp"):  # by a process that was killed
        with suppress(OSError):
            if time() - leftover.stat().st_mtime > LEFT_SECONDS:
                leftover.unlink()

    temporary = file.with_name(f".{file.stem}-{os.getpid()}-{get_ident()}.tmp")
    try:
        save_file(parameters, temporary, {CHECKSUM: checksum(parameters), SOURCE: str(source)})
        os.replace(temporary, file)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def map_parameters(file: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
    """The parameters in a file that `read_parameters` has written. InputError if it is missing, or if names, shapes,
    number formats or any number differ from what was written."""
    stored = open_safetensors(file)
    expected: dict[str, tuple[int, ...]] = {}
    for name, shape in shapes.items():
        if name != TABLE:
            expected[name] = shape[::-1] if is_linear(name, shape) else shape

    if {name: location.shape for name, location in stored.locations.items()} != expected:
        raise InputError(f"{file}: made by another version")
    if {location.dtype for location in stored.locations.values()} != {"F32"}:
        raise InputError(f"{file}: not float32")

    parameters = {name: stored.mapped(name) for name in stored}
    with safe_open(file, framework="numpy") as opened:
        metadata = opened.metadata() or {}
    if metadata.get(CHECKSUM) != checksum(parameters):
        raise InputError(f"{file}: damaged")
    return parameters


def checksum(parameters: Mapping[str, Array]) -> str:
    """Of all numbers, in the order of the names."""
    value = 0
    for name in sorted(parameters):
        value = crc32(np.ascontiguousarray(parameters[name]).data, value)
    return f"{value:08x}"


def unpack(files: ModelFiles, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
    """All parameters but the word table, in memory."""
    parameters: dict[str, Array] = {}

    def write(name: str, start: int, value: Array) -> bool:
        shape = shapes[name]
        is_transposed = is_linear(name, shape)
        if name not in parameters:
            parameters[name] = np.empty(shape[::-1] if is_transposed else shape, np.float32)
        parameter = parameters[name]
        rows = (parameter.T if is_transposed else parameter)[start : start + len(value)]
        with np.errstate(over="ignore"):
            rows[:] = value
        return is_finite(rows)  # numbers of float64 may be too large for float32

    files.read_parameters(shapes, write, skip=(TABLE,))
    return parameters
