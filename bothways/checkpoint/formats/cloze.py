"""Cloze classifiers (checkpoint/cloze.py), whose head reads the state of a mask: only Bothways has such a head."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bothways.checkpoint.contents import CONFIG, Checkpoint
from bothways.checkpoint.formats.format import Format, ModelPlan, StoredModel
from bothways.checkpoint.weights import is_finite, num_bytes, open_safetensors, write_weights
from bothways.errors import InputError, MissingFile
from bothways.io import get_object
from bothways.model.model import Model
from bothways.model.parameters import no_init

CLOZE_WEIGHTS = "cloze.safetensors"  # under the usual name other libraries would load it with another head
OUTPUT = "heads.classes.output.bias"


class ClozeFormat(Format):
    """The weights have our names."""

    model_type = "bothways-cloze"

    def open(self, directory: Path, hf_config: Mapping[str, Any]) -> StoredModel:
        cloze = get_object(hf_config, "cloze_config", directory / CONFIG)
        config = {name: value for name, value in hf_config.items() if name != "cloze_config"}
        changes = {name: cloze.get(name) for name in ("pooling_position", "pooler_act")}
        if type(changes["pooling_position"]) is not int or not 0 < changes["pooling_position"] < 2**16:
            value = changes["pooling_position"]
            raise InputError(
                f"{directory / CONFIG}: pooling_position of cloze_config ({value!r:.40}) must be an integer"
            )
        fixed = {"pooling": "first", "pooler_norm": True, "pooler_dropout": False, "deep_heads": False}
        return StoredModel({**config, "model_type": cloze.get("model_type")}, read_cloze, changes={**changes, **fixed})

    def holds(self, checkpoint: Checkpoint) -> bool:
        return checkpoint.model.config.pooling_position > 0

    def write(self, checkpoint: Checkpoint, directory: Path, hf_config: dict[str, Any]) -> dict[str, Any]:
        config, state = checkpoint.model.config, checkpoint.model.state_dict()
        tensors = {name: value.detach().float().cpu().contiguous().clone() for name, value in state.items()}
        write_weights(tensors, directory / CLOZE_WEIGHTS)
        cloze = {name: getattr(config, name) for name in ("pooling_position", "pooler_act")}
        cloze["model_type"] = hf_config["model_type"]
        return {**hf_config, "model_type": self.model_type, "cloze_config": cloze}

    def for_others(self, checkpoint: Checkpoint) -> None:
        return None


def read_cloze(plan: ModelPlan) -> Model:
    """InputError if the file is missing, broken or does not fit the config."""
    file = plan.directory / CLOZE_WEIGHTS
    if not file.exists():
        raise MissingFile(f"{file}: not found, though config.json declares a cloze classifier; train it again")
    tensors = open_safetensors(file)
    if OUTPUT not in tensors:
        raise InputError(f"{file}: {OUTPUT} is missing; train the model again")
    with no_init(plan.dtype, max_elements=num_bytes(tensors)):
        model = Model(plan.config, {"classes": len(tensors[OUTPUT])})
    model.heads["classes"].float()
    state = model.state_dict()
    for name, value in state.items():
        if name not in tensors or tensors[name].shape != value.shape or not is_finite(tensors[name]):
            raise InputError(f"{file}: {name} is missing, or does not fit config.json; train the model again")
        value.copy_(tensors[name])
    return model
