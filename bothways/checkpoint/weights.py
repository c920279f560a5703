"""The tensors of a checkpoint on disk, by name: safetensors in one file or several, or an old pickle, read safely."""

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
from bothways.tokenizer.files import check_regular_file, get_object, read_json

WEIGHTS, OLD_WEIGHTS = "model.safetensors", "pytorch_model.bin"
AT_ONCE = 16_000_000  # bytes
OLD_ENDS = {".gamma": ".weight", ".beta": ".bias"}  # of a norm's parameters, in files of 2018


class Stored(Mapping[str, Tensor]):
    """Tensors in safetensors files, each read when it is asked for and held by nobody else.

    A file is opened again after every AT_ONCE bytes: all that was read of a mapped file is in memory until it is
    closed, which would be the whole file beside the model.
    """

    def __init__(self, places: Mapping[str, tuple[Path, str]]) -> None:
        self.places = dict(places)
        self._file, self._num_bytes = Path(), 0
        self._opened: Any = None

    def __getitem__(self, name: str) -> Tensor:
        file, own_name = self.places[name]
        try:
            if self._opened is None or self._file != file or self._num_bytes > AT_ONCE:
                self._file, self._opened, self._num_bytes = file, safe_open(file, framework="pt"), 0
            tensor: Tensor = self._opened.get_tensor(own_name)
        except (OSError, RuntimeError, SafetensorError) as error:  # torch, which opens it too, raises the second
            raise InputError(f"{file}: {own_name} cannot be read ({_first_line(error)}); fetch it again") from None
        self._num_bytes += tensor.nbytes
        return tensor

    def __contains__(self, name: object) -> bool:
        return name in self.places

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)


def stored_weights(directory: Path) -> Mapping[str, Tensor]:
    """Those of a directory in the Hugging Face layout, by modern names. InputError where they are broken or absent."""
    file, index = directory / WEIGHTS, directory / f"{WEIGHTS}.index.json"
    if index.exists() and not file.exists():
        return Stored({name: place for part in _parts(index) for name, place in stored(part).places.items()})
    if file.exists():
        return stored(file)
    if (directory / OLD_WEIGHTS).exists():
        return _pickled(directory / OLD_WEIGHTS)
    if (directory / "model.onnx").exists():
        raise MissingFile(
            f"{directory}: an ONNX export, for ONNX Runtime and the like; name the model it was made from"
        )
    raise MissingFile(f"{directory}: no {WEIGHTS} or {OLD_WEIGHTS} there; fetch the checkpoint again")


def num_bytes(state: Mapping[str, Tensor]) -> int:
    """The size of all tensors, or of the files they are in: no less than the number of their elements."""
    if isinstance(state, Stored):
        return sum(file.stat().st_size for file in {file for file, _ in state.places.values()})
    return sum(value.nbytes for value in state.values())


def is_finite(values: Tensor) -> bool:
    """Whether no number is NaN or infinite. A sum tells at a twentieth of the cost; a finite one may still overflow."""
    return math.isfinite(values.sum().item()) or bool(values.isfinite().all())


def _parts(index: Path) -> list[Path]:
    """The files that an index names."""
    names = get_object(read_json(index), "weight_map", index).values()
    for name in names:
        if not isinstance(name, str) or not re.fullmatch(r"\w[\w.+-]{,200}", name):
            raise InputError(f"{index}: weight_map names {name!r:.60}, not a file beside it; fetch the file again")
    return [index.with_name(name) for name in sorted(set(names))]


def stored(file: Path) -> Stored:
    """Those of one safetensors file."""
    try:
        check_regular_file(file)
        with safe_open(file, framework="pt") as opened:
            return Stored({_modern(name): (file, name) for name in opened.keys()})  # noqa: SIM118
    except FileNotFoundError:
        raise MissingFile(f"{file}: no such file, though the index names it; fetch the checkpoint again") from None
    except (RuntimeError, SafetensorError) as error:
        raise InputError(f"{file}: broken ({_first_line(error)}); fetch or save the checkpoint again") from None


def write_weights(state: dict[str, Tensor], file: Path) -> None:
    """As safetensors. OSError where the file cannot be written."""
    try:
        file.touch()  # with the permissions the umask leaves; safetensors' own are the owner's
        permissions = file.stat().st_mode
        save_file(state, file, metadata={"format": "pt"})
        file.chmod(permissions)
    except (SafetensorError, OSError) as error:
        raise OSError(f"{file.name} could not be written ({_first_line(error)})") from None


def _pickled(file: Path) -> dict[str, Tensor]:
    check_regular_file(file)
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds for a broken or unsafe pickle
        raise InputError(f"{file}: cannot be read safely ({_first_line(error)})") from None
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise InputError(f"{file}: not a table of tensors by name; fetch the checkpoint again")
    return {_modern(name): value for name, value in state.items()}


def _modern(name: str) -> str:
    for old, new in OLD_ENDS.items():
        name = name.removesuffix(old) + new if name.endswith(old) else name
    return name


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:200]
