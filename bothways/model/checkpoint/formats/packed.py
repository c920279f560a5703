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
CODES = ".codes"
SCALES = ".scales"
HIGH_BITS = {4: 0, 5: 1, 6: 2, 8: 4}  # by number of bits
AGAIN = "install the package, or download the model, again"


class PackedFormat(Format):
    """Written by model/checkpoint/changes/pack.py from the files of a checkpoint."""

    model_type = "bothways-packed"

    def open(self, directory: Directory) -> StoredModel:
        config, quantization = split_config(directory, "quantization_config")
        return StoredModel(config, lambda _: read_packed(directory.path, quantization))


class PackedTensors(Mapping[str, Array]):
    """The tensors of a packed file, unpacked to float32 on access and not cached.

    stored: the tensors as the file has them.
    bits: of each matrix, by name.
    digest: the SHA-256 of the file.
    """

    def __init__(self, stored: TensorFiles, bits: Mapping[str, int], digest: str) -> None:
        self.stored = stored
        self.bits = bits
        self.digest = digest
        self.names = [*bits, *(name for name in stored if not name.endswith((CODES, SCALES)))]

    @property
    def num_elements(self) -> int:
        """An upper bound: a byte of codes holds two numbers or less."""
        total = 0
        for name, location in self.stored.locations.items():
            per_entry = 2 if name.endswith(CODES) else 1
            total += per_entry * math.prod(location.shape)
        return total

    def __getitem__(self, name: str) -> Array:
        if name not in self.bits:
            return self.stored[name].astype(np.float32)
        return unpack_matrix(self.stored[name + CODES], self.stored[name + SCALES], self.bits[name])

    def shape(self, name: str) -> tuple[int, ...]:
        if name not in self.bits:
            return self.stored.shape(name)
        *rows, groups = self.stored.shape(name + SCALES)
        return (*rows, groups * GROUP)

    def rows(self, name: str, rows_n: Array) -> Array:
        """Rows of a tensor, float32 [n, C]. Of a matrix, only these are unpacked."""
        if name not in self.bits:
            return self[name][rows_n]

        codes_N = self.stored.mapped(name + CODES)
        scales_RG = self.stored.mapped(name + SCALES)
        num_rows = len(scales_RG)
        num_low = scales_RG.size * GROUP // 2  # bytes of the low bits; the high bits follow, if there are any
        planes: list[Array] = []
        for plane in (codes_N[:num_low], codes_N[num_low:]):
            if len(plane):
                rows = plane.reshape(num_rows, -1)[rows_n]
                planes.append(rows.ravel())
        return unpack_matrix(np.concatenate(planes), scales_RG[rows_n], self.bits[name])

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def read_packed(directory: Path, quantization: Mapping[str, Any]) -> PackedTensors:
    """The tensors of a packed directory. InputError if the file is missing, damaged or does not fit its config."""
    file = directory / PACKED_WEIGHTS
    config = directory / CONFIG
    if not file.exists():
        raise MissingFile(f"{file}: not found, though config.json declares packed weights; {AGAIN}")

    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    if digest != quantization.get("sha256"):
        raise InputError(f"{file}: damaged (its SHA-256 is not that of config.json); {AGAIN}")

    stored = open_safetensors(file)
    bits = get_object(quantization, "bits", config)
    for name, number in bits.items():
        is_stored = name + CODES in stored and name + SCALES in stored
        if number not in HIGH_BITS or not is_stored:
            raise InputError(f"{config}: bits of {name!r:.80} ({number!r:.20}) do not fit {file.name}; {AGAIN}")
    return PackedTensors(stored, bits, digest)


def unpack_matrix(packed_N: Array, scales_RG: Array, bits: int) -> Array:
    """The matrix of codes and scales, float32 [R, C]."""
    num_low = scales_RG.size * GROUP // 2
    codes_N = unpack_plane(packed_N[:num_low], 4)
    if HIGH_BITS[bits]:
        codes_N |= unpack_plane(packed_N[num_low:], HIGH_BITS[bits]) << 4

    values_G32 = codes_N.reshape(-1, GROUP).astype(np.float32)
    values_G32 -= 2 ** (bits - 1)
    values_G32 *= scales_RG.reshape(-1, 1).astype(np.float32)
    return values_G32.reshape(len(scales_RG), -1)


def unpack_plane(packed_N: Array, bits: int) -> Array:
    """Numbers of 1, 2 or 4 bits, uint8, from bytes."""
    values = np.empty((len(packed_N), 8 // bits), np.uint8)
    for index in range(8 // bits):
        np.right_shift(packed_N, bits * index, out=values[:, index])
    values &= 2**bits - 1
    return values.reshape(-1)
