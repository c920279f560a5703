"""Weight files: tensors in one or several safetensors files, or in an old pickle, read safely."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open

from bothways.base.errors import InputError, MissingFile
from bothways.base.io import Files, check_regular_file, get_object

if TYPE_CHECKING:
    from torch import Tensor

WEIGHTS = "model.safetensors"
OLD_WEIGHTS = "pytorch_model.bin"
# Weights that only Bothways reads: under the usual name other libraries would load them wrongly.
INT8_WEIGHTS = "int8.safetensors"
OLD_SUFFIXES = {".gamma": ".weight", ".beta": ".bias"}  # names of layer norm parameters in files from 2018
BF16 = "BF16"  # numpy lacks it: the upper half of a float32
DTYPES = {  # safetensors' number formats -> numpy's
    "F16": "<f2",
    "F32": "<f4",
    "F64": "<f8",
    BF16: "<u2",
    "I8": "<i1",
    "I16": "<i2",
    "I32": "<i4",
    "I64": "<i8",
    "U8": "<u1",
    "U16": "<u2",
    "U32": "<u4",
    "U64": "<u8",
    "BOOL": "?",
}
Array = np.ndarray[Any, Any]


class Location(NamedTuple):
    """Where a file has the numbers of a tensor.

    name: of the tensor in the file.
    start: in bytes.
    """

    file: Path
    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int


class TensorFiles(Mapping[str, Array]):
    """Tensors in safetensors files as arrays, read on access and not cached; bfloat16 as float32.

    locations: the tensors, by the names that they have here.
    divisors: numbers by which some tensors are divided, by name.
    """

    def __init__(self, locations: Mapping[str, Location], divisors: Mapping[str, float] | None = None) -> None:
        self.locations = dict(locations)
        self.divisors = divisors or {}

    def __getitem__(self, name: str) -> Array:
        file, stored_name, dtype, shape, start = self.locations[name]
        try:
            with file.open("rb") as opened:
                numbers = np.fromfile(opened, DTYPES[dtype], math.prod(shape), offset=start)
            stored = numbers.reshape(shape)
        except KeyError:
            raise InputError(f"{file}: {stored_name} has the number format {dtype}, which is not supported") from None
        except (OSError, ValueError) as error:
            raise InputError(
                f"{file}: {stored_name} cannot be read ({_first_line(error)}); download it again"
            ) from None
        return self._as_floats(name, stored)

    def rows(self, name: str, rows_n: Array) -> Array:
        """Rows of a tensor; only these are read."""
        return self._as_floats(name, self.mapped(name)[rows_n])

    def mapped(self, name: str) -> Array:
        """The numbers of a tensor as the file has them (bfloat16 as uint16), read where they are used."""
        location = self.locations[name]
        if not math.prod(location.shape):
            return self[name]  # a file cannot be mapped at no bytes
        return np.memmap(
            location.file,
            DTYPES[location.dtype],
            "r",
            offset=location.start,
            shape=location.shape,
        )

    def _as_floats(self, name: str, stored: Array) -> Array:
        """Numbers of a tensor as they are given out: bfloat16 widened, and divided if the tensor has a divisor."""
        array = widen(stored) if self.locations[name].dtype == BF16 else stored
        if name not in self.divisors:
            return array
        divided: Array = array / array.dtype.type(self.divisors[name])
        return divided

    def shape(self, name: str) -> tuple[int, ...]:
        return self.locations[name].shape

    def __contains__(self, name: object) -> bool:
        return name in self.locations

    def __iter__(self) -> Iterator[str]:
        return iter(self.locations)

    def __len__(self) -> int:
        return len(self.locations)


def widen(bits: Array) -> Array:
    """float32 of the bits of bfloat16 (uint16), exactly."""
    wide: Array = bits.astype(np.uint32)
    wide <<= 16
    return wide.view(np.float32)


def read_weights(files: Files) -> Mapping[str, Array]:
    """The tensors of a checkpoint directory, with old names replaced. InputError if they are broken or missing."""
    directory = files.path
    index = f"{WEIGHTS}.index.json"
    old_index = f"{OLD_WEIGHTS}.index.json"

    if files.has(WEIGHTS):
        return open_safetensors(directory / WEIGHTS)
    if files.has(index):
        locations: dict[str, Location] = {}
        for part in _parts(directory / index, files.json(index)):
            locations |= open_safetensors(part).locations
        return TensorFiles(locations)
    if files.has(OLD_WEIGHTS):
        return _pickled(directory / OLD_WEIGHTS)

    if files.has(old_index):
        raise MissingFile(
            f"{directory / old_index}: pickles in several parts are not read; save the model as {WEIGHTS}"
        )
    if files.has("model.onnx"):
        raise MissingFile(f"{directory}: an ONNX export, for ONNX Runtime; pass the checkpoint it was exported from")
    raise MissingFile(f"{directory}: {WEIGHTS} or {OLD_WEIGHTS} not found; download the checkpoint again")


def _parts(index: Path, content: Mapping[str, Any]) -> list[Path]:
    """The weight files of an index."""
    names = get_object(content, "weight_map", index).values()
    for name in names:
        if not isinstance(name, str) or not re.fullmatch(r"\w[\w.+-]{,200}", name):
            raise InputError(f"{index}: weight_map has {name!r:.60}, which is not a file name; download the file again")
    return [index.with_name(name) for name in sorted(set(names))]


def open_safetensors(file: Path) -> TensorFiles:
    """The tensors of one safetensors file."""
    try:
        check_regular_file(file)
        with safe_open(file, framework="numpy"), file.open("rb") as opened:  # safe_open checks the whole header
            size = int.from_bytes(opened.read(8), "little")
            header = json.loads(opened.read(size))
    except FileNotFoundError:
        raise MissingFile(f"{file}: not found, though the index lists it; download the checkpoint again") from None
    except (ValueError, SafetensorError) as error:
        raise InputError(f"{file}: broken ({_first_line(error)}); download or save the checkpoint again") from None

    header.pop("__metadata__", None)
    start = 8 + size  # of the numbers, behind the header and its size
    locations: dict[str, Location] = {}
    for name, entry in sorted(header.items()):
        locations[_modern(name)] = Location(
            file=file,
            name=name,
            dtype=entry["dtype"],
            shape=tuple(entry["shape"]),
            start=start + entry["data_offsets"][0],
        )
    return TensorFiles(locations)


def open_declared(file: Path, what: str, remedy: str) -> TensorFiles:
    """The tensors of a file that config.json declares.

    file: a safetensors file.
    what: the thing that config.json declares, for the message.
    remedy: a way out, for the message.

    MissingFile if there is no such file.
    """
    if not file.exists():
        raise MissingFile(f"{file}: not found, though config.json declares {what}; {remedy}")
    return open_safetensors(file)


def _pickled(file: Path) -> dict[str, Array]:
    import torch

    check_regular_file(file)
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many types for a broken or unsafe pickle
        raise InputError(f"{file}: cannot be read safely ({_first_line(error)})") from None
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise InputError(f"{file}: not a dictionary of tensors; download the checkpoint again")

    arrays: dict[str, Array] = {}
    for name, value in state.items():
        tensor = value.float() if value.dtype is torch.bfloat16 else value  # numpy lacks bfloat16
        arrays[_modern(name)] = tensor.detach().numpy()
    return arrays


def _modern(name: str) -> str:
    for old, new in OLD_SUFFIXES.items():
        if name.endswith(old):
            name = name.removesuffix(old) + new
    return name


def num_bytes(state: Mapping[str, Array]) -> int:
    """The size in bytes of the tensors or of their files, an upper bound of the number of elements."""
    num_elements = getattr(state, "num_elements", None)
    if isinstance(num_elements, int):
        return num_elements
    if isinstance(state, TensorFiles):
        files = {location.file for location in state.locations.values()}
        return sum(file.stat().st_size for file in files)
    return sum(value.nbytes for value in state.values())


def is_finite(values: Array) -> bool:
    """Whether no value is NaN or infinite."""
    with np.errstate(all="ignore"):
        # The sum takes a twentieth of the time of a test of each value. It may overflow, which proves nothing.
        if math.isfinite(values.sum()):
            return True
        return bool(np.isfinite(values).all())


def write_floats(state: "Mapping[str, Tensor]", file: Path) -> None:
    """Write tensors of any device and format in float32."""
    # Copies: safetensors refuses tensors that share memory.
    copies = {name: value.detach().float().cpu().contiguous().clone() for name, value in state.items()}
    write_weights(copies, file)


def write_weights(state: "dict[str, Tensor]", file: Path) -> None:
    """Write a safetensors file. OSError if it cannot be written."""
    from safetensors.torch import save_file

    try:
        file.touch()  # with the umask's permissions; safetensors would restrict them to the owner
        permissions = file.stat().st_mode
        save_file(state, file, metadata={"format": "pt"})
        file.chmod(permissions)
    except (SafetensorError, OSError) as error:
        raise OSError(f"{file.name} could not be written ({_first_line(error)})") from None


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:200]


def not_finite_error(file: Path, names: list[str]) -> InputError:
    """The error of weights that are not numbers."""
    return InputError(
        f"{file}: NaN or infinite values in {shorten(names)}; download the checkpoint again, or train it again"
    )


def shorten(names: list[str], limit: int = 5) -> str:
    """The first names of a list, and how many more there are."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
