"""Adapters of a loaded model: merged while it is read, or several beside it, which share its weights."""

from pathlib import Path

import torch

from bothways.inference.backends.encoder import EncoderBackend, Reader
from bothways.model.adapters.attach import attach, attach_merged
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.checkpoint.directory import Directory


def merging(adapter: Path) -> Reader:
    """A reader of a checkpoint that merges an adapter into its weights. adapter: its directory."""

    def read(directory: Directory, dtype: torch.dtype) -> Checkpoint:
        source = Directory(adapter)
        base = checkpoint.read(directory, torch.float32)
        return attach_merged(base, source, dtype)

    return read


def with_adapter(backend: EncoderBackend, adapter: Path) -> EncoderBackend:
    """A model with an adapter. Its weights are shared, not copied. adapter: its directory."""
    source = Directory(adapter)
    return EncoderBackend(
        attach(backend.checkpoint, source),
        dtype=backend.dtype,
        device=backend.device,
        source=source.path,
        batch_tokens=backend.runner.batch_tokens,
    )
