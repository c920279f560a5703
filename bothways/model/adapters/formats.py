"""Adapters as formats of checkpoints: a directory with an adapter is read with the model that it belongs to.

They are imported without torch, as every format.
"""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bothways.model.adapters.files import AdapterFiles
from bothways.model.checkpoint.directory import Directory
from bothways.model.checkpoint.formats.format import Format, StoredAdapter

if TYPE_CHECKING:
    import torch

    from bothways.model.checkpoint.contents import Checkpoint


class AdapterFormat(Format):
    """Adapters that Bothways has written."""

    model_type = "bothways-adapter"

    def open(self, directory: Directory) -> StoredAdapter:
        return StoredAdapter(partial(_read, AdapterFiles.open(directory)))

    def holds(self, checkpoint: "Checkpoint") -> bool:
        return checkpoint.model.adapter is not None

    def save(self, checkpoint: "Checkpoint", directory: Path) -> None:
        """Only the adapter and the head are written."""
        from bothways.model.adapters.write import write_adapter

        write_adapter(checkpoint, directory)

    def unread(self, checkpoint: "Checkpoint") -> str | None:
        from bothways.model.adapters.write import unread

        return unread(checkpoint)


class PeftFormat(AdapterFormat):
    """LoRA that peft has written, and parameters that it has trained as a whole. It is read only."""

    model_type = "peft"


def _read(files: AdapterFiles, dtype: "torch.dtype") -> "Checkpoint":
    from bothways.model.adapters.attach import read_with_base

    return read_with_base(files, dtype)
