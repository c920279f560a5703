"""Models with fewer attention heads than their hidden size has room for, which only Bothways computes with.

The Hugging Face layout has no place for it: there, the number of heads times their size is the hidden size. The
weights have Hugging Face's names; config.json has the number of heads before the cut, and the rest beside it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bothways.base.errors import InputError
from bothways.model.checkpoint.description import CONFIG
from bothways.model.checkpoint.directory import Directory
from bothways.model.checkpoint.formats.format import ReadPlan, StoredModel, split_config
from bothways.model.checkpoint.formats.hugging_face import LayoutFormat, hf_state_dict
from bothways.model.checkpoint.weights import TensorFiles, open_declared, write_floats
from bothways.model.config import NO_POOLER
from bothways.model.families import FAMILIES

if TYPE_CHECKING:
    from bothways.model.checkpoint.contents import Checkpoint

PRUNED_WEIGHTS = "pruned.safetensors"  # under the usual name other libraries would load some of it
HEADS = "num_attention_heads"
HEAD_SIZE = "attention_head_size"


class PrunedFormat(LayoutFormat):
    model_type = "bothways-pruned"

    def open(self, directory: Directory) -> StoredModel:
        config, pruning = split_config(directory, "pruning_config")
        changes = read_heads(pruning, directory.path / CONFIG)
        return StoredModel(
            config,
            read_pruned,
            pooler_act=pruning.get("pooler_act"),
            changes=changes,
        )

    def holds(self, checkpoint: "Checkpoint") -> bool:
        return checkpoint.model.config.attention_head_size is not None

    def write(self, checkpoint: "Checkpoint", directory: Path, hf_config: dict[str, Any]) -> dict[str, Any]:
        family = FAMILIES[checkpoint.model_type]
        write_floats(hf_state_dict(checkpoint.model, family, family.prefix), directory / PRUNED_WEIGHTS)
        whole, pruning = split_heads(checkpoint, hf_config)
        return {
            **whole,
            "model_type": self.model_type,
            "pruning_config": pruning,
        }


def split_heads(checkpoint: "Checkpoint", hf_config: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The config with the number of heads before the cut, and an object with values for which the family's config has
    no key: the remaining heads, if some are missing, and the input of a head on classes."""
    config = checkpoint.model.config
    entry = {"model_type": hf_config["model_type"]}
    if config.attention_head_size is not None:
        key = FAMILIES[checkpoint.model_type].config_keys[HEADS]
        hf_config = {**hf_config, key: config.hidden_size // config.head_size}
        entry[HEADS] = config.num_attention_heads
        entry[HEAD_SIZE] = config.head_size
    if "classes" in checkpoint.model.num_outputs and config.pooler_act in NO_POOLER:
        entry["pooler_act"] = config.pooler_act
    return hf_config, entry


def read_heads(stored: Mapping[str, Any], file: Path) -> dict[str, int]:
    """The config fields of a model without some heads. InputError if they are no integers."""
    changes: dict[str, int] = {}
    for name in (HEADS, HEAD_SIZE):
        value = stored.get(name)
        if type(value) is not int or not 0 < value < 2**16:
            raise InputError(f"{file}: {name} ({value!r:.40}) must be an integer from 1; prune the model again")
        changes[name] = value
    return changes


def read_pruned(plan: ReadPlan) -> TensorFiles:
    return open_declared(plan.directory.path / PRUNED_WEIGHTS, "a pruned model", "prune the model again")
