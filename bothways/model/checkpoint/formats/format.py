"""Interface of a checkpoint format: reads a model from a directory, and writes one.

A format has one file in this folder and one entry in FORMATS. What all formats share (labels, tokenizer, metadata,
pooling) is in model_files.py and hugging_face.py. Reading a model's files needs no torch.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from bothways.base.io import get_object
from bothways.model.checkpoint.description import CONFIG
from bothways.model.checkpoint.directory import Directory
from bothways.model.checkpoint.weights import Array
from bothways.model.config import EncoderConfig
from bothways.model.families import FamilySpec
from bothways.text.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    import torch

    from bothways.model.checkpoint.contents import Checkpoint

HEAD_KEYS = {  # config keys of heads
    "architectures",
    "id2label",
    "label2id",
    "problem_type",
    "num_labels",
}
ONLY_BOTHWAYS = "only Bothways reads this model ({})"
Naming = Literal["hugging_face", "int8"]


@dataclass(frozen=True)
class ReadPlan:
    """A directory to read, with its family and its parsed config."""

    directory: Directory
    family: FamilySpec
    config: EncoderConfig


@dataclass(frozen=True)
class StoredModel:
    """A model in a directory, before its weights are read.

    hf_config: the content of config.json, as the family writes it.
    read: opens the weights, arrays by name; InputError if the file is missing or broken.
    naming: of the arrays: by the family's names in the Hugging Face layout, or by the names of our parameters (of int8
    models: with integers and scales).
    pooler_act: input of a classification head, if the family's config has no key for it.
    normalized: whether text vectors are scaled to length 1; None: as in modules.json.
    changes: config fields for which the family's config has no key.
    pooling: how text vectors are pooled; None: as in modules.json.
    tokenizer: the tokenizer, if the format reads it; None: it is in the directory.
    """

    hf_config: Mapping[str, Any]
    read: Callable[[ReadPlan], Mapping[str, Array]]
    naming: Naming = "hugging_face"
    pooler_act: str | None = None
    normalized: bool | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    pooling: str | None = None
    tokenizer: Tokenizer | None = None


@dataclass(frozen=True)
class StoredAdapter:
    """An adapter in a directory, before its weights are read.

    read: the checkpoint of the model that it belongs to with the adapter, in a number format.
    """

    read: "Callable[[torch.dtype], Checkpoint]"


def split_config(directory: Directory, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The content of config.json as the family writes it, and the object `name`, which has the family's model_type."""
    entry = get_object(directory.config, name, directory.path / CONFIG)
    config = {**directory.config, "model_type": entry.get("model_type")}
    config.pop(name, None)
    return config, entry


class Format(ABC):
    """A way to store a model.

    model_type: its name in config.json, so that no other library loads the files as something else; "" for a format
    that keeps the model_type of the family.
    is_read_by_others: whether transformers reads the whole model.
    """

    model_type: ClassVar[str] = ""
    is_read_by_others: ClassVar[bool] = False

    @abstractmethod
    def open(self, directory: Directory) -> StoredModel | StoredAdapter:
        """Open the model in a directory, without its weights. InputError if it holds no encoder."""

    def holds(self, checkpoint: "Checkpoint") -> bool:
        """Whether models like this one are saved in the format."""
        return False

    def save(self, checkpoint: "Checkpoint", directory: Path) -> None:
        """Write all files of a checkpoint into a directory."""
        raise NotImplementedError(f"{type(self).__name__} cannot be written from a model alone")

    def unread(self, checkpoint: "Checkpoint") -> str | None:
        """A line about a model that transformers reads in part or not at all; None for others."""
        if self.is_read_by_others:
            return None
        return ONLY_BOTHWAYS.format(self.model_type)
