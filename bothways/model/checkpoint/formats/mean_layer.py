"""Linear classifiers on the mean of the tokens, in the layout of families whose head reads one more layer.

transformers and sentence-transformers get the scores from the layer (checkpoint/mean_layer.py). Bothways drops it and
reads the exact head and last layer norm from a file of their own.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bothways.base.errors import InputError
from bothways.model.checkpoint.description import CONFIG
from bothways.model.checkpoint.directory import Directory
from bothways.model.checkpoint.formats.format import ReadPlan, StoredModel
from bothways.model.checkpoint.formats.hugging_face import LayoutFormat, hf_state_dict, hugging_face_config
from bothways.model.checkpoint.sentence_transformers import write_modules
from bothways.model.checkpoint.weights import WEIGHTS, TensorFiles, open_declared, open_safetensors, write_floats
from bothways.model.families import FAMILIES, FamilySpec

if TYPE_CHECKING:
    from bothways.model.checkpoint.contents import Checkpoint

MEAN_HEAD = "mean_head.safetensors"
LAYER_MODULES = (
    "attention.qkv",
    "attention.output",
    "attention_norm",
    "feed_forward.inner",
    "feed_forward.output",
    "feed_forward_norm",
)
AGAIN = "copy the whole directory again, or fine-tune again"


class MeanLayerFormat(LayoutFormat):
    model_type = "bothways-mean-layer"
    stores_pooling = False  # `write` does
    is_read_by_others = True

    def open(self, directory: Directory) -> StoredModel:
        file = directory.path / CONFIG
        config = {**directory.config}
        config.pop("bothways_format", None)

        depth = config.get("num_hidden_layers")
        if type(depth) is not int or depth < 2:
            raise InputError(f"{file}: num_hidden_layers ({depth!r:.20}) must be at least 2; the last is extra")
        config["num_hidden_layers"] = depth - 1

        act = config.pop("pooler_act", None)
        if act not in ("none", "unit"):
            raise InputError(f"{file}: pooler_act {act!r:.60} is not supported; use one of none, unit")

        return StoredModel(
            config,
            read_mean_layer,
            pooler_act=act,
            normalized=act != "none",
        )

    def holds(self, checkpoint: "Checkpoint") -> bool:
        from bothways.model.checkpoint.mean_layer import find_mean_layer

        return find_mean_layer(checkpoint) is not None

    def write(self, checkpoint: "Checkpoint", directory: Path, hf_config: dict[str, Any]) -> dict[str, Any]:
        from bothways.model.checkpoint.mean_layer import find_mean_layer, last_norm, with_mean_layer

        model = checkpoint.model
        family = FAMILIES[checkpoint.model_type]
        layer = find_mean_layer(checkpoint)
        if layer is None:
            raise InputError("no encoder layer computes what the head reads; the model cannot be saved in this format")

        expressed = with_mean_layer(checkpoint, layer)
        write_floats(hf_state_dict(expressed.model, family, family.prefix), directory / WEIGHTS)

        exact = {f"norm.{kind}": value for kind, value in last_norm(model).items()}
        exact |= model.heads["classes"].get_submodule("output").state_dict()
        write_floats(exact, directory / MEAN_HEAD)

        # The last layer gives every token of a text the same vector, so their mean is what the linear layer reads.
        write_modules(directory, model.config, linear=(layer.head_CH, layer.bias_C))
        return {
            **hugging_face_config(expressed),
            "bothways_format": self.model_type,
            "pooler_act": model.config.pooler_act,
        }


def read_mean_layer(plan: ReadPlan) -> TensorFiles:
    """The weights without the layer. InputError if the file of its head is missing or incomplete."""
    file = plan.directory.path / MEAN_HEAD
    depth = plan.config.num_hidden_layers
    exact = open_declared(file, "it", AGAIN).locations
    names = exact_names(plan.family, depth)
    for name in names.values():
        if name not in exact:
            raise InputError(f"{file}: {name} is missing; {AGAIN}")

    dropped = layer_names(plan.family, depth)
    stored = open_safetensors(plan.directory.path / WEIGHTS).locations
    locations = {hf_name: location for hf_name, location in stored.items() if hf_name not in dropped}
    for hf_name, name in names.items():
        locations[hf_name] = exact[name]
    return TensorFiles(locations)


def exact_names(family: FamilySpec, depth: int) -> dict[str, str]:
    """Hugging Face's names of the parameters in MEAN_HEAD -> the names there."""
    prefixes = {
        "heads.classes.output": "",
        f"encoder.layers.{depth - 1}.feed_forward_norm": "norm.",
    }
    names: dict[str, str] = {}
    for module, prefix in prefixes.items():
        for kind in ("weight", "bias"):
            hf_name = family.hf_names(f"{module}.{kind}", ("classes",))[0]
            names[hf_name] = prefix + kind
    return names


def layer_names(family: FamilySpec, depth: int) -> set[str]:
    """Hugging Face's names of the parameters of the extra layer and the pooler."""
    names: set[str] = set()
    modules = [f"encoder.layers.{depth}.{name}" for name in LAYER_MODULES]
    for module in (*modules, "pooler.dense"):
        names.update(family.hf_names(f"{module}.weight", ("classes",)))
        names.update(family.hf_names(f"{module}.bias", ("classes",)))
    return names
