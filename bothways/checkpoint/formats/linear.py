"""Linear classifiers on the mean of the tokens, which most families lack: stored as sentence-transformers modules.

The encoder is in a separate folder, in the Hugging Face layout.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from bothways.checkpoint.contents import CONFIG, Checkpoint, encoder_only
from bothways.checkpoint.formats.format import HEAD_KEYS, Format, ModelPlan, StoredModel
from bothways.checkpoint.formats.hugging_face import write_files
from bothways.checkpoint.sentence_transformers import TRANSFORMER, read_linear, write_linear
from bothways.io import read_json
from bothways.model.heads import ClassificationHead
from bothways.model.model import Model
from bothways.model.pooler import NO_POOLER, unit_scale


class LinearFormat(Format):
    model_type = "bothways-linear"
    stores_pooling = False  # `write_linear` does

    def open(self, directory: Path, hf_config: Mapping[str, Any]) -> StoredModel:
        act = hf_config.get("pooler_act", "none")
        head_config = {key: hf_config[key] for key in HEAD_KEYS & hf_config.keys()}
        config = read_json(directory / TRANSFORMER / CONFIG) | head_config
        return StoredModel(config, read_linear_model, pooler_act=act, normalized=act != "none")

    def holds(self, checkpoint: Checkpoint) -> bool:
        model = checkpoint.model
        return "classes" in model.num_outputs and model.config.pooler_act in NO_POOLER

    def write(self, checkpoint: Checkpoint, directory: Path, hf_config: dict[str, Any]) -> dict[str, Any]:
        model = checkpoint.model
        (directory / TRANSFORMER).mkdir()
        write_files(encoder_only(checkpoint), directory / TRANSFORMER)
        head = model.heads["classes"]
        assert isinstance(head, ClassificationHead)
        write_linear(directory, head.output, model.config)
        head_config = {key: hf_config[key] for key in sorted(HEAD_KEYS & hf_config.keys())}
        return {**head_config, "model_type": self.model_type, "pooler_act": model.config.pooler_act}

    def for_others(self, checkpoint: Checkpoint) -> Checkpoint:
        return encoder_only(checkpoint)


def read_linear_model(plan: ModelPlan) -> Model:
    model = plan.read(read_linear(plan.directory, plan.family.head_names["classes"]["output"]))
    if plan.config.pooler_act != "none":
        with torch.no_grad():
            model.get_parameter("heads.classes.output.weight").div_(unit_scale(plan.config.hidden_size))
    return model
