"""Packed weights: matrices in 4 to 8 bits with a scale for each group of 32 numbers, all else in float16.

A packed directory holds `packed.safetensors` beside the usual config, tokenizer and pooling files. config.json has
model_type "bothways-packed", so that no other library loads it as float weights, and the SHA-256 of the weights.

A matrix [R, C] of b bits is stored as uint8 codes `NAME.codes` and float16 scales `NAME.scales` [R, C / 32]. Each value
is (code - 2^(b-1)) * scale. A product of so few bits is exact in float32, so unpacking gives the same bits on every
machine. The low 4 bits of two codes share a byte, then follow the high bits, of 8 / (b - 4) codes in a byte.

Letters: R rows, C columns, N numbers of a matrix, G groups, K candidates for a scale.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bothways.checkpoint.contents import CONFIG
from bothways.checkpoint.formats.format import Format, ModelPlan, StoredModel
from bothways.checkpoint.weights import open_safetensors, write_weights
from bothways.errors import InputError, MissingFile
from bothways.io import get_object
from bothways.model.model import Model

PACKED_WEIGHTS = "packed.safetensors"
GROUP = 32  # numbers that share a scale
CODES, SCALES = ".codes", ".scales"
SHRINKS = (0.8, 0.84, 0.88, 0.91, 0.94, 0.96, 0.98, 1.0, 1.02, 1.05)  # candidates for a scale, times the largest one
HIGH_BITS = {4: 0, 5: 1, 6: 2, 8: 4}  # by number of bits
GROUPS_AT_A_TIME = 1 << 14
AGAIN = "install the package, or download the model, again"


class PackedFormat(Format):
    """Written by compression/pack.py from the files of a checkpoint."""

    model_type = "bothways-packed"

    def open(self, directory: Path, hf_config: Mapping[str, Any]) -> StoredModel:
        quantization = get_object(hf_config, "quantization_config", directory / CONFIG)

        def read(plan: ModelPlan) -> Model:
            return plan.read(read_packed(directory, quantization))

        config = {name: value for name, value in hf_config.items() if name != "quantization_config"}
        return StoredModel({**config, "model_type": quantization.get("model_type")}, read)


class PackedTensors(Mapping[str, Tensor]):
    """The tensors of a packed file, unpacked to float32 on access and not cached. bits: of each matrix, by name."""

    def __init__(self, stored: Mapping[str, Tensor], bits: Mapping[str, int]) -> None:
        self.stored, self.bits = stored, bits
        self.names = [*bits, *(name for name in stored if not name.endswith((CODES, SCALES)))]

    @property
    def num_elements(self) -> int:
        return sum(value.numel() * (2 if name.endswith(CODES) else 1) for name, value in self.stored.items())

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.bits:
            return self.stored[name].float()
        return unpack(self.stored[name + CODES], self.stored[name + SCALES], self.bits[name])

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
    if hashlib.sha256(file.read_bytes()).hexdigest() != quantization.get("sha256"):
        raise InputError(f"{file}: damaged (its SHA-256 is not that of config.json); {AGAIN}")
    stored, bits = dict(open_safetensors(file)), get_object(quantization, "bits", config)
    for name, number in bits.items():
        if number not in HIGH_BITS or {name + CODES, name + SCALES} - stored.keys():
            raise InputError(f"{config}: bits of {name!r:.80} ({number!r:.20}) do not fit {file.name}; {AGAIN}")
    return PackedTensors(stored, bits)


def write_packed(
    tensors: Mapping[str, Tensor], directory: Path, choose_bits: Callable[[str, Tensor], int | None]
) -> dict[str, Any]:
    """Write packed.safetensors; returns the quantization_config for config.json. choose_bits: 4, 5, 6 or 8 bits of a
    tensor, or None to store it in float16."""
    stored, bits = dict[str, Tensor](), dict[str, int]()
    for name, value in tensors.items():
        number = choose_bits(name, value)
        if number is None or value.ndim != 2 or value.shape[1] % GROUP:
            stored[name] = value.to(torch.float16)
            continue
        bits[name] = number
        stored[name + CODES], stored[name + SCALES] = pack(value, number)
    write_weights(stored, directory / PACKED_WEIGHTS)
    digest = hashlib.sha256((directory / PACKED_WEIGHTS).read_bytes()).hexdigest()
    return {"quant_method": PackedFormat.model_type, "sha256": digest, "bits": bits}


def pack(matrix_RC: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Codes (uint8) and scales (float16 [R, C / 32]) of a matrix."""
    groups_G32 = matrix_RC.detach().float().reshape(-1, GROUP)
    parts = [quantize_groups(part, bits) for part in torch.split(groups_G32, GROUPS_AT_A_TIME)]
    codes_N = torch.cat([codes for codes, _ in parts]).flatten()
    return pack_codes(codes_N, bits), torch.cat([scales for _, scales in parts]).reshape(len(matrix_RC), -1)


def round_matrix(matrix_RC: Tensor, bits: int) -> Tensor:
    """The matrix after packing and unpacking."""
    codes, scales_RG = pack(matrix_RC, bits)
    return unpack(codes, scales_RG, bits)


def quantize_groups(x_G32: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Codes (uint8 [G, 32]) and scales (float16 [G]) with the least squared error among some scales.

    The largest number has the lowest code, whose magnitude is one larger than that of the highest; so scales may be
    negative.
    """
    low = 2 ** (bits - 1)
    largest_G = x_G32.gather(1, x_G32.abs().argmax(1, keepdim=True))[:, 0]
    scales_KG = (torch.tensor(SHRINKS)[:, None] * (largest_G / -low)).to(torch.float16).float()
    safe_KG = torch.where(scales_KG == 0, 1.0, scales_KG)
    steps_KG32 = (x_G32 / safe_KG[..., None]).round_().clamp_(-low, low - 1)
    errors_KG = (steps_KG32 * scales_KG[..., None] - x_G32).square_().sum(-1)
    best_G = errors_KG.argmin(0)
    rows_G = torch.arange(len(x_G32))
    codes_G32 = (steps_KG32[best_G, rows_G] + low).to(torch.uint8)
    return codes_G32, scales_KG[best_G, rows_G].to(torch.float16)


def pack_codes(codes_N: Tensor, bits: int) -> Tensor:
    """Codes of 4 to 8 bits as bytes."""
    planes = [pack_plane(codes_N & 15, 4)]
    if high := HIGH_BITS[bits]:
        planes.append(pack_plane(codes_N >> 4, high))
    return torch.cat(planes)


def pack_plane(values_N: Tensor, bits: int) -> Tensor:
    """Numbers of 1, 2 or 4 bits as bytes, the first of a byte in its low bits."""
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8)
    return (values_N.reshape(-1, len(shifts)) << shifts).sum(1).to(torch.uint8)


def unpack_plane(packed: Tensor, bits: int) -> Tensor:
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8)
    values: Tensor = (packed[:, None] >> shifts) & (2**bits - 1)
    return values.flatten()


def unpack(packed: Tensor, scales_RG: Tensor, bits: int) -> Tensor:
    """The matrix of codes and scales, float32 [R, C]."""
    number, high = scales_RG.numel() * GROUP, HIGH_BITS[bits]
    codes_N = unpack_plane(packed[: number // 2], 4)
    if high:
        codes_N |= unpack_plane(packed[number // 2 :], high) << 4
    values_G32 = codes_N.reshape(-1, GROUP).float().sub_(2 ** (bits - 1))
    return values_G32.mul_(scales_RG.reshape(-1, 1).float()).reshape(len(scales_RG), -1)
