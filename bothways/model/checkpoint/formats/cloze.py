"""Cloze classifiers (checkpoint/cloze.py), whose head reads the state of a mask: only Bothways has such a head."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bothways.errors import InputError
from bothways.model.checkpoint.description import CONFIG
from bothways.model.checkpoint.directory import Directory
from bothways.model.checkpoint.formats.format import Format, ReadPlan, StoredModel, split_config
from bothways.model.checkpoint.weights import CLOZE_WEIGHTS, TensorFiles, open_declared, write_floats

if TYPE_CHECKING:
    from bothways.model.checkpoint.contents import Checkpoint

OUTPUT = "heads.classes.output.bias"


class ClozeFormat(Format):
    """The weights have our names."""

    model_type = "bothways-cloze"

    def open(self, directory: Directory) -> StoredModel:
        config, cloze = split_config(directory, "cloze_config")
        changes = {name: cloze.get(name) for name in ("pooling_position", "pooler_act")}
        if type(changes["pooling_position"]) is not int or not 0 < changes["pooling_position"] < 2**16:
            value = changes["pooling_position"]
            file = directory.path / CONFIG
            raise InputError(f"{file}: pooling_position of cloze_config ({value!r:.40}) must be an integer")
        fixed = {"pooling": "first", "pooler_norm": True, "pooler_dropout": False, "deep_heads": False}
        return StoredModel(config, read_cloze, "exact", changes={**changes, **fixed})

    def holds(self, checkpoint: "Checkpoint") -> bool:
        return checkpoint.model.config.pooling_position > 0

    def write(self, checkpoint: "Checkpoint", directory: Path, hf_config: dict[str, Any]) -> dict[str, Any]:
        config = checkpoint.model.config
        write_floats(checkpoint.model.state_dict(), directory / CLOZE_WEIGHTS)
        cloze = {name: getattr(config, name) for name in ("pooling_position", "pooler_act")}
        cloze["model_type"] = hf_config["model_type"]
        return {**hf_config, "model_type": self.model_type, "cloze_config": cloze}


def read_cloze(plan: ReadPlan) -> TensorFiles:
    """The tensors by our names. InputError if the file is missing or broken."""
    file = plan.directory.path / CLOZE_WEIGHTS
    tensors = open_declared(file, "a cloze classifier", "train it again")
    if OUTPUT not in tensors:
        raise InputError(f"{file}: {OUTPUT} is missing; train the model again")
    return tensors
