"""What a format of checkpoints is: how a model is read from a directory, and written into one.

A format has one file in this folder and one entry in FORMATS. What all formats share (labels, tokenizer, metadata,
pooling) is in checkpoint.py.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from bothways.checkpoint.contents import Checkpoint
from bothways.checkpoint.state_dict import read_model
from bothways.config import EncoderConfig
from bothways.families import FamilySpec
from bothways.model.model import Model

HEAD_KEYS = {"architectures", "id2label", "label2id", "problem_type", "num_labels"}  # config keys of heads


@dataclass(frozen=True)
class ModelPlan:
    """What is to be read: the family, the config, the names of the classes, and the data type of the parameters.

    hf_config: the content of config.json, as the family writes it. warn: called with a line about ignored content.
    """

    directory: Path
    family: FamilySpec
    config: EncoderConfig
    labels: tuple[str, ...]
    hf_config: Mapping[str, Any]
    dtype: torch.dtype
    warn: Callable[[str], None]

    def read(self, tensors: Mapping[str, Tensor]) -> Model:
        """The model with these tensors, by their Hugging Face names."""
        return read_model(
            self.family, self.config, self.labels, self.hf_config, self.directory, tensors, self.dtype, self.warn
        )


@dataclass(frozen=True)
class StoredModel:
    """A model in a directory, before it is read.

    hf_config: the content of config.json, as the family writes it. read: reads the weights. pooler_act: what a
    classification head reads, if the family's own config cannot say it. normalized: whether text vectors are scaled to
    length 1; None means that modules.json says it. changes: config fields that the family's config cannot say.
    """

    hf_config: Mapping[str, Any]
    read: Callable[[ModelPlan], Model]
    pooler_act: str | None = None
    normalized: bool | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)


class Format(ABC):
    """A way to store a model.

    model_type: its name in config.json, so that no other library loads the files as something else; "" for a format
    that keeps the model_type of the family. stores_pooling: whether the pooling of text vectors is written beside the
    weights.
    """

    model_type: ClassVar[str] = ""
    stores_pooling: ClassVar[bool] = True

    @abstractmethod
    def open(self, directory: Path, hf_config: Mapping[str, Any]) -> StoredModel:
        """The model in a directory whose config.json has this content. InputError if it does not hold an encoder."""

    def holds(self, checkpoint: Checkpoint) -> bool:
        """Whether models like this one are saved in the format."""
        return False

    def write(self, checkpoint: Checkpoint, directory: Path, hf_config: dict[str, Any]) -> dict[str, Any]:
        """Write the weights. hf_config: config.json as the family writes it. Returns the content it shall have."""
        raise NotImplementedError(f"{type(self).__name__} cannot be written from a model alone")

    def for_others(self, checkpoint: Checkpoint) -> Checkpoint | None:
        """What other libraries can read of a model in this format, to be saved anew; None: the files themselves."""
        return checkpoint
