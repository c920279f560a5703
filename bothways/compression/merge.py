"""Merging: a model with an adapter as plain weights, which every library reads."""

from dataclasses import replace
from typing import Any

from bothways.checkpoint import checkpoint
from bothways.checkpoint.adapter import load_adapter
from bothways.checkpoint.checkpoint import check_target
from bothways.checkpoint.description import METADATA_FILE
from bothways.checkpoint.directory import Directory
from bothways.compression.pack import sizes
from bothways.errors import InputError
from bothways.settings.deploy import Merge


def merge(settings: Merge) -> dict[str, Any]:
    """Write the model that an adapter belongs to with the adapter merged into its weights. Returns its directory and
    size in bytes.

    InputError for adapters that add layers or rows, which weights cannot express.
    """
    check_target(settings.out, holds=METADATA_FILE)
    base = checkpoint.load(settings.base) if settings.base else None
    loaded = load_adapter(Directory(settings.adapter), base, checkpoint.load)
    if loaded.model.adapter is not None:
        kind = loaded.model.adapter.kind
        raise InputError(f"{settings.adapter}: an adapter of kind {kind} adds layers or rows and cannot be merged")
    metadata = {name: value for name, value in loaded.metadata.items() if name not in ("adapter", "status")}
    checkpoint.save(replace(loaded, metadata=metadata), settings.out)
    return sizes(settings.out)
