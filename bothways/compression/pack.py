"""Packing: a checkpoint with its matrices in few bits, to ship or to keep, and back (checkpoint/formats/packed.py)."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from bothways.checkpoint import checkpoint, hub
from bothways.checkpoint.checkpoint import check_target
from bothways.checkpoint.contents import CONFIG, METADATA_FILE, Checkpoint, check_plain
from bothways.checkpoint.formats.packed import PackedFormat, write_packed
from bothways.checkpoint.weights import WEIGHTS, read_weights
from bothways.errors import InputError
from bothways.io import atomic_directory, read_json, write_json
from bothways.linear.static_vectors import is_static, read_static, write_static
from bothways.settings.deploy import Pack, Unpack

SMALL = 64  # matrices with fewer rows stay in float16
POSITION_BITS = 8


def pack(settings: Pack) -> dict[str, Any]:
    """Write a packed copy of a checkpoint. Returns its directory and size in bytes."""
    loaded = checkpoint.load(settings.model)
    save_packed(loaded, settings.out, settings.word_bits, settings.layer_bits)
    return sizes(settings.out)


def unpack(settings: Unpack) -> dict[str, Any]:
    """Write a checkpoint, packed or not, in the Hugging Face layout with float32 weights; static vectors in the layout
    of model2vec."""
    path = hub.locate(settings.model)
    if is_static(path):
        check_target(settings.out, holds=CONFIG)
        write_static(read_static(path), settings.out)
        return sizes(settings.out)
    loaded = checkpoint.load(settings.model)
    check_plain(loaded.model)
    checkpoint.save(loaded, settings.out)
    return sizes(settings.out)


def sizes(directory: Path) -> dict[str, Any]:
    return {"out": str(directory), "bytes": sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())}


def without_directories(value: Any) -> Any:
    """Settings in which every path is only the name of its file."""
    if isinstance(value, Mapping):
        return {name: without_directories(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [without_directories(part) for part in value]
    return value.replace("\\", "/").rpartition("/")[2] if isinstance(value, str) else value


def save_packed(source: Checkpoint, target: Path, word_bits: int = 4, layer_bits: int = 6) -> None:
    """Write a checkpoint with its word table in `word_bits` and its other matrices in `layer_bits`. Of paths in its
    settings, only the names of the files remain.

    InputError for models that are stored in several files, such as linear heads on mean vectors.
    """
    check_plain(source.model)
    check_target(target, holds=METADATA_FILE)
    vocab_size, positions = source.model.config.vocab_size, source.model.config.max_position_embeddings

    def choose_bits(name: str, value: Tensor) -> int | None:
        if value.ndim != 2 or len(value) < SMALL:
            return None
        if len(value) == vocab_size:
            return word_bits
        return POSITION_BITS if len(value) == positions and "position" in name else layer_bits

    metadata = {**source.metadata, "settings": without_directories(source.settings)}
    with atomic_directory(target) as directory:
        checkpoint.write(replace(source, metadata=metadata), directory)
        config = read_json(directory / CONFIG)
        if not (directory / WEIGHTS).exists() or "bothways_format" in config:
            kind = config.get("bothways_format", config.get("model_type"))
            raise InputError(f"a model of type {kind} cannot be packed; pass one in the Hugging Face layout")
        quantization = write_packed(read_weights(directory), directory, choose_bits)
        (directory / WEIGHTS).unlink()
        quantization["model_type"] = config["model_type"]
        write_json(
            directory / CONFIG, {**config, "model_type": PackedFormat.model_type, "quantization_config": quantization}
        )
