"""Give a checkpoint an adapter after loading: beside its weights, or merged into them.

`attach` is for several adapters over one model, whose weights they share; `attach_merged` gives plain weights, which
every part of the package computes with and every library reads.
"""

from dataclasses import replace
from pathlib import Path

import torch

from bothways.base.errors import MissingFile
from bothways.model.adapters.files import AdapterFiles
from bothways.model.adapters.install import merge
from bothways.model.adapters.own_format import attach_own
from bothways.model.adapters.peft_format import attach_peft
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.checkpoint.directory import Directory
from bothways.model.parameters import move_model


def attach(base: Checkpoint, directory: Directory) -> Checkpoint:
    """The checkpoint with the adapter in a directory, not merged. It shares its encoder's weights with `base`, which
    does not change.

    InputError if the adapter belongs to another model.
    """
    return _attach(base, AdapterFiles.open(directory))


def attach_merged(base: Checkpoint, directory: Directory, dtype: torch.dtype = torch.float32) -> Checkpoint:
    """The checkpoint with the adapter in a directory as plain weights.

    base: in float32, so that the sum of its weights and the adapter's is rounded once. It does not change.
    directory: of the adapter.
    dtype: the number format of the result.
    """
    return _rounded(_merge(base, AdapterFiles.open(directory)), dtype)


def read_with_base(files: AdapterFiles, dtype: torch.dtype) -> Checkpoint:
    """The model that an adapter belongs to, with the adapter merged."""
    return _rounded(_merge(_read_base(files), files), dtype)


def with_merged(base: Checkpoint | None, adapter: Path) -> Checkpoint:
    """The model with an adapter, a directory, merged into its weights. base: None reads the model that it names."""
    files = AdapterFiles.open(Directory(adapter))
    merged = _merge(base or _read_base(files), files)
    metadata = {name: value for name, value in merged.metadata.items() if name not in ("adapter", "status")}
    return replace(merged, metadata=metadata)


def _read_base(files: AdapterFiles) -> Checkpoint:
    try:
        return checkpoint.load(files.base)
    except MissingFile as error:
        raise MissingFile(
            f"{files.directory}: the model that the adapter belongs to is missing ({error}); if it has moved: "
            "bothways merge ADAPTER --base MODEL, or bothways.load(MODEL, adapter=...)"
        ) from None


def _attach(base: Checkpoint, files: AdapterFiles) -> Checkpoint:
    return attach_own(base, files) if files.described else attach_peft(base, files)


def _merge(base: Checkpoint, files: AdapterFiles) -> Checkpoint:
    adapted = _attach(base, files)
    if adapted.model.adapter is not None:  # peft's is part of the weights already
        merge(adapted.model)
    return adapted


def _rounded(merged: Checkpoint, dtype: torch.dtype) -> Checkpoint:
    move_model(merged.model, torch.device("cpu"), dtype)
    return merged
