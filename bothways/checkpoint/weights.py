"""Weight files: tensors in one or several safetensors files, or in an old pickle, read safely."""

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from bothways.errors import InputError, MissingFile
from bothways.io import check_regular_file, get_object, read_json

WEIGHTS, OLD_WEIGHTS = "model.safetensors", "pytorch_model.bin"
MAX_MAPPED_BYTES = 16_000_000
OLD_SUFFIXES = {".gamma": ".weight", ".beta": ".bias"}  # names of layer norm parameters in files from 2018


class TensorFiles(Mapping[str, Tensor]):
    """Tensors in safetensors files, read on access and not cached.

    A file is reopened after every MAX_MAPPED_BYTES: the parts of a memory-mapped file that were read stay in memory
    until it is closed, in the end the whole file in addition to the model.
    """

    def __init__(self, locations: Mapping[str, tuple[Path, str]]) -> None:
        self.locations = dict(locations)
        self._file, self._num_bytes = Path(), 0
        self._opened: Any = None

    def __getitem__(self, name: str) -> Tensor:
        file, stored_name = self.locations[name]
        try:
            if self._opened is None or self._file != file or self._num_bytes > MAX_MAPPED_BYTES:
                self._file, self._opened, self._num_bytes = file, safe_open(file, framework="pt"), 0
            tensor: Tensor = self._opened.get_tensor(stored_name)
        except (OSError, RuntimeError, SafetensorError) as error:  # torch raises RuntimeError
            raise InputError(
                f"{file}: {stored_name} cannot be read ({_first_line(error)}); download it again"
            ) from None
        self._num_bytes += tensor.nbytes
        return tensor

    def __contains__(self, name: object) -> bool:
        return name in self.locations

    def __iter__(self) -> Iterator[str]:
        return iter(self.locations)

    def __len__(self) -> int:
        return len(self.locations)


def read_weights(directory: Path) -> Mapping[str, Tensor]:
    """The tensors of a checkpoint directory, with old names replaced. InputError if they are broken or missing."""
    file, index = directory / WEIGHTS, directory / f"{WEIGHTS}.index.json"
    if index.exists() and not file.exists():
        return TensorFiles(
            {name: location for part in _parts(index) for name, location in open_safetensors(part).locations.items()}
        )
    if file.exists():
        return open_safetensors(file)
    if (directory / OLD_WEIGHTS).exists():
        return _pickled(directory / OLD_WEIGHTS)
    if (index := directory / f"{OLD_WEIGHTS}.index.json").exists():
        raise MissingFile(f"{index}: pickles in several parts are not read; save the model as {WEIGHTS}")
    if (directory / "model.onnx").exists():
        raise MissingFile(f"{directory}: an ONNX export, for ONNX Runtime; pass the checkpoint it was exported from")
    raise MissingFile(f"{directory}: {WEIGHTS} or {OLD_WEIGHTS} not found; download the checkpoint again")


def num_bytes(state: Mapping[str, Tensor]) -> int:
    """The size in bytes of the tensors or of their files, an upper bound of the number of elements."""
    if isinstance(number := getattr(state, "num_elements", None), int):
        return number
    if isinstance(state, TensorFiles):
        return sum(file.stat().st_size for file in {file for file, _ in state.locations.values()})
    return sum(value.nbytes for value in state.values())


def is_finite(values: Tensor) -> bool:
    """Whether no value is NaN or infinite. Tries the sum first, in a twentieth of the time; it may overflow."""
    return math.isfinite(values.sum().item()) or bool(values.isfinite().all())


def _parts(index: Path) -> list[Path]:
    """The weight files of an index."""
    names = get_object(read_json(index), "weight_map", index).values()
    for name in names:
        if not isinstance(name, str) or not re.fullmatch(r"\w[\w.+-]{,200}", name):
            raise InputError(f"{index}: weight_map has {name!r:.60}, which is not a file name; download the file again")
    return [index.with_name(name) for name in sorted(set(names))]


def open_safetensors(file: Path) -> TensorFiles:
    """The tensors of one safetensors file."""
    try:
        check_regular_file(file)
        with safe_open(file, framework="pt") as opened:
            return TensorFiles({_modern(name): (file, name) for name in opened.keys()})  # noqa: SIM118
    except FileNotFoundError:
        raise MissingFile(f"{file}: not found, though the index lists it; download the checkpoint again") from None
    except (RuntimeError, SafetensorError) as error:
        raise InputError(f"{file}: broken ({_first_line(error)}); download or save the checkpoint again") from None


def write_weights(state: dict[str, Tensor], file: Path) -> None:
    """Write a safetensors file. OSError if it cannot be written."""
    try:
        file.touch()  # with the umask's permissions; safetensors would restrict them to the owner
        permissions = file.stat().st_mode
        save_file(state, file, metadata={"format": "pt"})
        file.chmod(permissions)
    except (SafetensorError, OSError) as error:
        raise OSError(f"{file.name} could not be written ({_first_line(error)})") from None


def _pickled(file: Path) -> dict[str, Tensor]:
    check_regular_file(file)
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many types for a broken or unsafe pickle
        raise InputError(f"{file}: cannot be read safely ({_first_line(error)})") from None
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise InputError(f"{file}: not a dictionary of tensors; download the checkpoint again")
    return {_modern(name): value for name, value in state.items()}


def _modern(name: str) -> str:
    for old, new in OLD_SUFFIXES.items():
        name = name.removesuffix(old) + new if name.endswith(old) else name
    return name


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:200]
