"""Packed weights: matrices in 4 to 8 bits with a scale for each group of 32 numbers, all else in float16.

A packed directory holds `packed.safetensors` beside the usual config, tokenizer and pooling files. config.json has
model_type "bothways-packed", so that no other library loads it as float weights, and the SHA-256 of the weights.

A matrix [R, C] of b bits is stored as uint8 codes `NAME.codes` and float16 scales `NAME.scales` [R, C / 32]. Each value
is (code - 2^(b-1)) * scale. A product of so few bits is exact in float32, so unpacking gives the same bits on every
machine. The low 4 bits of two codes share a byte, then follow the high bits, of 8 / (b - 4) codes in a byte.

Letters: R rows, C columns, N numbers of a matrix, G groups.
"""

import hashlib
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bothways.base.errors import InputError, MissingFile
from bothways.base.io import get_object
from bothways.model.checkpoint.description import CONFIG
from bothways.model.checkpoint.directory import Directory
from bothways.model.checkpoint.formats.format import Format, StoredModel, split_config
from bothways.model.checkpoint.weights import Array, TensorFiles, open_safetensors

PACKED_WEIGHTS = "packed.safetensors"
GROUP = 32  # numbers that share a scale
CODES, SCALES = ".codes", ".scales"
HIGH_BITS = {4: 0, 5: 1, 6: 2, 8: 4}  # by number of bits
AGAIN = "install the package, or download the model, again"


class PackedFormat(Format):
    """Written by model/checkpoint/changes/pack.py from the files of a checkpoint."""

    model_type = "bothways-packed"

    def open(self, directory: Directory) -> StoredModel:
        config, quantization = split_config(directory, "quantization_config")
        return StoredModel(config, lambda _: read_packed(directory.path, quantization))


class PackedTensors(Mapping[str, Array]):
    """The tensors of a packed file, unpacked to float32 on access and not cached. bits: of each matrix, by name.
    digest: the SHA-256 of the file."""

    def __init__(self, stored: TensorFiles, bits: Mapping[str, int], digest: str) -> None:
        self.stored, self.bits, self.digest = stored, bits, digest
        self.names = [*bits, *(name for name in stored if not name.endswith((CODES, SCALES)))]

    @property
    def num_elements(self) -> int:
        sizes = {name: math.prod(location.shape) for name, location in self.stored.locations.items()}
        return sum(size * (2 if name.endswith(CODES) else 1) for name, size in sizes.items())

    def __getitem__(self, name: str) -> Array:
        if name not in self.bits:
            return self.stored[name].astype(np.float32)
        return unpack_matrix(self.stored[name + CODES], self.stored[name + SCALES], self.bits[name])

    def shape(self, name: str) -> tuple[int, ...]:
        *rows, groups = self.stored.shape(name + SCALES if name in self.bits else name)
        return (*rows, groups * GROUP if name in self.bits else groups)

    def rows(self, name: str, rows_n: Array) -> Array:
        """Rows of a tensor, float32 [n, C]. Of a matrix, only these are unpacked."""
        if name not in self.bits:
            return self[name][rows_n]
        codes_N, scales_RG = self.stored.mapped(name + CODES), self.stored.mapped(name + SCALES)
        num_rows, low = len(scales_RG), scales_RG.size * GROUP // 2
        planes = [part.reshape(num_rows, -1)[rows_n] for part in (codes_N[:low], codes_N[low:]) if len(part)]
        return unpack_matrix(np.concatenate([*map(np.ravel, planes)]), scales_RG[rows_n], self.bits[name])

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def read_packed(directory: Path, quantization: Mapping[str, Any]) -> PackedTensors:
    """The tensors of a packed directory. InputError if the file is missing, damaged or does not fit its config."""
    file, config = directory / PACKED_WEIGHTS, directory / CONFIG
    if not file.exists():
        raise MissingFile(f"{file}: not found, though config.json declares packed weights; {AGAIN}")
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    if digest != quantization.get("sha256"):
        raise InputError(f"{file}: damaged (its SHA-256 is not that of config.json); {AGAIN}")
    stored, bits = open_safetensors(file), get_object(quantization, "bits", config)
    for name, number in bits.items():
        if number not in HIGH_BITS or {name + CODES, name + SCALES} - stored.keys():
            raise InputError(f"{config}: bits of {name!r:.80} ({number!r:.20}) do not fit {file.name}; {AGAIN}")
    return PackedTensors(stored, bits, digest)


def unpack_plane(packed_N: Array, bits: int) -> Array:
    """Numbers of 1, 2 or 4 bits, uint8, from bytes."""
    values = np.empty((len(packed_N), 8 // bits), np.uint8)
    for place in range(8 // bits):
        np.right_shift(packed_N, bits * place, out=values[:, place])
    values &= 2**bits - 1
    return values.reshape(-1)


def unpack_matrix(packed_N: Array, scales_RG: Array, bits: int) -> Array:
    """The matrix of codes and scales, float32 [R, C]."""
    number, high = scales_RG.size * GROUP, HIGH_BITS[bits]
    codes_N = unpack_plane(packed_N[: number // 2], 4)
    if high:
        codes_N |= unpack_plane(packed_N[number // 2 :], high) << 4
    values_G32 = codes_N.reshape(-1, GROUP).astype(np.float32)
    values_G32 -= 2 ** (bits - 1)
    values_G32 *= scales_RG.reshape(-1, 1).astype(np.float32)
    return values_G32.reshape(len(scales_RG), -1)
