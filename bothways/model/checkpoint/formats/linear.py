"""Linear classifiers on the mean of the tokens, which most families lack: stored as sentence-transformers modules.

The encoder is in a separate folder, in the Hugging Face layout.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bothways.base.errors import flag
from bothways.model.checkpoint.description import CONFIG
from bothways.model.checkpoint.directory import Directory
from bothways.model.checkpoint.formats.format import HEAD_KEYS, ReadPlan, StoredModel
from bothways.model.checkpoint.formats.hugging_face import HUGGING_FACE, LayoutFormat
from bothways.model.checkpoint.sentence_transformers import DENSE, TRANSFORMER, write_modules
from bothways.model.checkpoint.weights import WEIGHTS, TensorFiles, open_safetensors
from bothways.model.config import NO_POOLER, encodes_separately, unit_scale

if TYPE_CHECKING:
    from bothways.model.checkpoint.contents import Checkpoint


class LinearFormat(LayoutFormat):
    model_type = "bothways-linear"
    stores_pooling = False  # `write` does

    def open(self, directory: Directory) -> StoredModel:
        act = directory.config.get("pooler_act", "none")
        config = directory.read(directory.path / TRANSFORMER / CONFIG)
        head_config = {key: directory.config[key] for key in HEAD_KEYS & directory.config.keys()}
        return StoredModel(
            {**config, **head_config},
            read_linear_model,
            pooler_act=act,
            normalized=act != "none",
        )

    def holds(self, checkpoint: "Checkpoint") -> bool:
        model = checkpoint.model
        return "classes" in model.num_outputs and model.config.pooler_act in NO_POOLER

    def write(self, checkpoint: "Checkpoint", directory: Path, hf_config: dict[str, Any]) -> dict[str, Any]:
        from bothways.model.checkpoint.changes.new_head import encoder_only

        (directory / TRANSFORMER).mkdir()
        HUGGING_FACE.save(encoder_only(checkpoint), directory / TRANSFORMER)

        # Of a head on vectors of length 1, the file has the weights for exactly these vectors.
        config = checkpoint.model.config
        normalized = config.pooler_act != "none"
        scale = unit_scale(config.hidden_size) if normalized else 1.0
        output = checkpoint.model.heads["classes"].get_submodule("output").state_dict()
        write_modules(
            directory,
            config,
            normalized=normalized,
            linear=(output["weight"] * scale, output["bias"]),
            # Of pairs, the modules compute the vectors of single texts.
            has_linear=not encodes_separately(config),
            encoder=TRANSFORMER,
        )

        head_config = {key: hf_config[key] for key in sorted(HEAD_KEYS & hf_config.keys())}
        return {
            **head_config,
            "model_type": self.model_type,
            "pooler_act": config.pooler_act,
        }

    def unread(self, checkpoint: "Checkpoint") -> str:
        if encodes_separately(checkpoint.model.config):
            computing = "Bothways computes"
        else:
            computing = "Bothways and sentence-transformers compute"
        return (
            f"only {computing} the scores of this model; {flag('pooling', 'cls')} gives a head that transformers reads "
            "too"
        )


def read_linear_model(plan: ReadPlan) -> TensorFiles:
    """The weights of the encoder and the head. In the file, the weights of the head are for vectors of length 1."""
    path = plan.directory.path
    head = plan.family.head_names["classes"]["output"]
    scale = 1.0 if plan.config.pooler_act == "none" else unit_scale(plan.config.hidden_size)

    dense = open_safetensors(path / DENSE / WEIGHTS).locations
    locations = {**open_safetensors(path / TRANSFORMER / WEIGHTS).locations}
    for name in ("weight", "bias"):
        if f"linear.{name}" in dense:
            locations[f"{head}.{name}"] = dense[f"linear.{name}"]
    return TensorFiles(locations, {f"{head}.weight": scale})
