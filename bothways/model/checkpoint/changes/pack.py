"""The same model with its weights written otherwise: matrices in few bits, to ship or to keep, and back
(checkpoint/formats/packed.py); linear layers in int8.

Letters: R rows, C columns, N numbers of a matrix, G groups, K candidates for a scale.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from bothways.base.errors import InputError
from bothways.base.io import Files, atomic_directory, check_target, read_json, write_json
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint, check_plain
from bothways.model.checkpoint.description import CONFIG, METADATA_FILE
from bothways.model.checkpoint.formats import format_of
from bothways.model.checkpoint.formats.packed import CODES, GROUP, HIGH_BITS, PACKED_WEIGHTS, SCALES, PackedFormat
from bothways.model.checkpoint.weights import WEIGHTS, Array, read_weights, write_weights
from bothways.model.int8 import Int8Linear, replace_linears

SMALL = 64  # matrices with fewer rows stay in float16
WORD_BITS = 4
POSITION_BITS = 8
SHRINKS = (0.8, 0.84, 0.88, 0.91, 0.94, 0.96, 0.98, 1.0, 1.02, 1.05)  # candidates for a scale, times the largest one
GROUPS_AT_A_TIME = 1 << 14  # which bounds the memory for all candidates


def save_packed(source: Checkpoint, target: Path, layer_bits: int = 6) -> None:
    """Write a checkpoint with its word table in 4 bits.

    source: stays as it is.
    target: a directory, which is created or replaced.
    layer_bits: the bits of its other matrices.

    Of paths in its settings, only the names of the files remain. InputError for models that are stored in several
    files, such as linear heads on mean vectors.
    """
    check_plain(source.model)
    check_target(target, holds=METADATA_FILE)
    encoder = source.model.config

    def choose_bits(name: str, value: Tensor) -> int | None:
        if value.ndim != 2 or len(value) < SMALL:
            return None
        if len(value) == encoder.vocab_size:
            return WORD_BITS
        if len(value) == encoder.max_position_embeddings and "position" in name:
            return POSITION_BITS
        return layer_bits

    metadata = {**source.metadata, "settings": without_directories(source.settings)}
    changed = replace(source, metadata=metadata)
    with atomic_directory(target) as directory:
        format_of(changed).save(changed, directory)
        config = read_json(directory / CONFIG)
        if not (directory / WEIGHTS).exists() or "bothways_format" in config:
            kind = config.get("bothways_format", config.get("model_type"))
            raise InputError(f"a model of type {kind} cannot be packed; pass one in the Hugging Face layout")

        quantization = write_packed(read_weights(Files(directory)), directory, choose_bits)
        (directory / WEIGHTS).unlink()
        packed_config = {
            **config,
            "model_type": PackedFormat.model_type,
            "quantization_config": {**quantization, "model_type": config["model_type"]},
        }
        write_json(directory / CONFIG, packed_config)


def without_directories(value: Any) -> Any:
    """Settings in which every path is only the name of its file."""
    if isinstance(value, Mapping):
        return {name: without_directories(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [without_directories(part) for part in value]
    if isinstance(value, str):
        return value.replace("\\", "/").rpartition("/")[2]
    return value


def write_packed(
    tensors: Mapping[str, Array], directory: Path, choose_bits: Callable[[str, Tensor], int | None]
) -> dict[str, Any]:
    """Write packed.safetensors.

    tensors: by name.
    directory: of the file.
    choose_bits: 4, 5, 6 or 8 bits of a tensor, or None to store it in float16.

    Returns the quantization_config for config.json.
    """
    stored: dict[str, Tensor] = {}
    bits: dict[str, int] = {}
    for name in tensors:
        value = torch.from_numpy(tensors[name])
        number = choose_bits(name, value)
        if number is None or value.ndim != 2 or value.shape[1] % GROUP:
            stored[name] = value.to(torch.float16)
            continue
        codes_N, scales_RG = pack_matrix(value, number)
        bits[name] = number
        stored[name + CODES] = codes_N
        stored[name + SCALES] = scales_RG

    file = directory / PACKED_WEIGHTS
    write_weights(stored, file)
    return {
        "quant_method": PackedFormat.model_type,
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "bits": bits,
    }


def pack_matrix(matrix_RC: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Codes (uint8) and scales (float16 [R, C / 32]) of a matrix."""
    groups_G32 = matrix_RC.detach().float().reshape(-1, GROUP)
    parts = [quantize_groups(part, bits) for part in torch.split(groups_G32, GROUPS_AT_A_TIME)]
    codes_N = torch.cat([codes_G32 for codes_G32, _ in parts]).flatten()
    scales_RG = torch.cat([scales_G for _, scales_G in parts]).reshape(len(matrix_RC), -1)
    return pack_codes(codes_N, bits), scales_RG


def quantize_groups(x_G32: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Codes (uint8 [G, 32]) and scales (float16 [G]) with the least squared error among some scales.

    The largest number has the lowest code, whose magnitude is one larger than the magnitude of the highest code; so
    scales may be negative.
    """
    low = 2 ** (bits - 1)

    # Candidates are rounded as they are stored, so that the errors are the errors of the file.
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
    low = pack_plane(codes_N & 15, 4)
    if not HIGH_BITS[bits]:
        return low
    high = pack_plane(codes_N >> 4, HIGH_BITS[bits])
    return torch.cat([low, high])


def pack_plane(values_N: Tensor, bits: int) -> Tensor:
    """Numbers of 1, 2 or 4 bits as bytes, the first of a byte in its low bits."""
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8)
    return (values_N.reshape(-1, len(shifts)) << shifts).sum(1).to(torch.uint8)


def with_packed(source: Checkpoint, *, layer_bits: int = 6) -> Checkpoint:
    """The checkpoint as it is read again after `save_packed`, its weights rounded."""
    with TemporaryDirectory() as directory:
        target = Path(directory) / "packed"
        save_packed(source, target, layer_bits)
        return checkpoint.load(target)


def with_int8(source: Checkpoint, linears: Mapping[str, Int8Linear]) -> Checkpoint:
    """A checkpoint with int8 layers in place of those with the same names, and the token table as it is stored."""
    check_plain(source.model)
    return replace(source, model=replace_linears(source.model, linears))
