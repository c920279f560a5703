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

WEIGHTS, OLD_WEIGHTS = "model.safetensors", "pytorch_model.bin"
# Weights that only Bothways reads: under the usual name other libraries would load them wrongly.
INT8_WEIGHTS = "int8.safetensors"
OLD_SUFFIXES = {".gamma": ".weight", ".beta": ".bias"}  # names of layer norm parameters in files from 2018
BF16 = "BF16"  # numpy lacks it: the upper half of a float32
DTYPES = {
    **{f"F{bits}": f"<f{bits // 8}" for bits in (16, 32, 64)},
    **{f"{sign}{bits}": f"<{sign.lower()}{bits // 8}" for sign in "IU" for bits in (8, 16, 32, 64)},
    **{BF16: "<u2", "BOOL": "?"},
}
Array = np.ndarray[Any, Any]


class Location(NamedTuple):
    """Where a file has the numbers of a tensor. start: in bytes."""

    file: Path
    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int


class TensorFiles(Mapping[str, Array]):
    """Tensors in safetensors files as arrays, read on access and not cached; bfloat16 as float32. divisors: by which
    some are divided."""

    def __init__(self, locations: Mapping[str, Location], divisors: Mapping[str, float] | None = None) -> None:
        self.locations, self.divisors = dict(locations), divisors or {}

    def __getitem__(self, name: str) -> Array:
        file, stored_name, dtype, shape, start = self.locations[name]
        try:
            with file.open("rb") as opened:
                array = np.fromfile(opened, DTYPES[dtype], math.prod(shape), offset=start).reshape(shape)
        except KeyError:
            raise InputError(f"{file}: {stored_name} has the number format {dtype}, which is not supported") from None
        except (OSError, ValueError) as error:
            raise InputError(
                f"{file}: {stored_name} cannot be read ({_first_line(error)}); download it again"
            ) from None
        array = widen(array) if dtype == BF16 else array
        return array / array.dtype.type(self.divisors[name]) if name in self.divisors else array

    def mapped(self, name: str) -> Array:
        """The numbers of a tensor as the file has them (bfloat16 as uint16), read where they are used."""
        file, _, dtype, shape, start = self.locations[name]
        return np.memmap(file, DTYPES[dtype], "r", start, shape) if math.prod(shape) else self[name]

    def shape(self, name: str) -> tuple[int, ...]:
        return self.locations[name].shape

    def rows(self, name: str, rows_n: Array) -> Array:
        """Rows of a tensor; only these are read."""
        rows = self.mapped(name)[rows_n]
        rows = widen(rows) if self.locations[name].dtype == BF16 else rows
        return rows / rows.dtype.type(self.divisors[name]) if name in self.divisors else rows

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
    directory, index = files.path, f"{WEIGHTS}.index.json"
    if files.has(WEIGHTS):
        return open_safetensors(directory / WEIGHTS)
    if files.has(index):
        parts = [open_safetensors(part).locations for part in _parts(directory / index, files.json(index))]
        return TensorFiles({name: location for part in parts for name, location in part.items()})
    if files.has(OLD_WEIGHTS):
        return _pickled(directory / OLD_WEIGHTS)
    if files.has(index := f"{OLD_WEIGHTS}.index.json"):
        raise MissingFile(f"{directory / index}: pickles in several parts are not read; save the model as {WEIGHTS}")
    if files.has("model.onnx"):
        raise MissingFile(f"{directory}: an ONNX export, for ONNX Runtime; pass the checkpoint it was exported from")
    raise MissingFile(f"{directory}: {WEIGHTS} or {OLD_WEIGHTS} not found; download the checkpoint again")


def num_bytes(state: Mapping[str, Array]) -> int:
    """The size in bytes of the tensors or of their files, an upper bound of the number of elements."""
    if isinstance(number := getattr(state, "num_elements", None), int):
        return number
    if isinstance(state, TensorFiles):
        return sum(file.stat().st_size for file in {location.file for location in state.locations.values()})
    return sum(value.nbytes for value in state.values())


def is_finite(values: Array) -> bool:
    """Whether no value is NaN or infinite. Tries the sum first, in a twentieth of the time; it may overflow."""
    with np.errstate(all="ignore"):
        return math.isfinite(values.sum()) or bool(np.isfinite(values).all())


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
    return TensorFiles(
        {
            _modern(name): Location(
                file, name, entry["dtype"], tuple(entry["shape"]), 8 + size + entry["data_offsets"][0]
            )
            for name, entry in sorted(header.items())
        }
    )


def open_declared(file: Path, what: str, remedy: str) -> TensorFiles:
    """The tensors of a file that config.json declares. MissingFile names what it declares."""
    if not file.exists():
        raise MissingFile(f"{file}: not found, though config.json declares {what}; {remedy}")
    return open_safetensors(file)


def write_floats(state: "Mapping[str, Tensor]", file: Path) -> None:
    """Write tensors of any device and format in float32."""
    write_weights({name: value.detach().float().cpu().contiguous().clone() for name, value in state.items()}, file)


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


def _pickled(file: Path) -> dict[str, Array]:
    import torch

    check_regular_file(file)
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many types for a broken or unsafe pickle
        raise InputError(f"{file}: cannot be read safely ({_first_line(error)})") from None
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise InputError(f"{file}: not a dictionary of tensors; download the checkpoint again")
    widest = {name: value.float() if value.dtype is torch.bfloat16 else value for name, value in state.items()}
    return {_modern(name): value.detach().numpy() for name, value in widest.items()}


def _modern(name: str) -> str:
    for old, new in OLD_SUFFIXES.items():
        name = name.removesuffix(old) + new if name.endswith(old) else name
    return name


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
