"""Models with fewer attention heads than their hidden size has room for, which only Bothways computes with.

The Hugging Face layout has no place for it: there, the number of heads times their size is the hidden size. The
weights have Hugging Face's names; config.json has the number of heads before the cut, and the rest beside it.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bothways.checkpoint.contents import CONFIG, Checkpoint
from bothways.checkpoint.formats.format import Format, ModelPlan, StoredModel
from bothways.checkpoint.state_dict import hf_state_dict
from bothways.checkpoint.weights import open_safetensors, write_weights
from bothways.config import EncoderConfig
from bothways.errors import InputError, MissingFile
from bothways.families import FAMILIES, FamilySpec
from bothways.io import get_object
from bothways.model.model import Model
from bothways.model.pooler import NO_POOLER

PRUNED_WEIGHTS = "pruned.safetensors"  # under the usual name other libraries would load some of it
HEADS, HEAD_SIZE = "num_attention_heads", "attention_head_size"


class PrunedFormat(Format):
    model_type = "bothways-pruned"

    def open(self, directory: Path, hf_config: Mapping[str, Any]) -> StoredModel:
        pruning = get_object(hf_config, "pruning_config", directory / CONFIG)
        config = {name: value for name, value in hf_config.items() if name != "pruning_config"}
        config["model_type"] = pruning.get("model_type")
        changes = read_heads(pruning, directory / CONFIG)
        return StoredModel(config, read_pruned, pruning.get("pooler_act"), changes=changes)

    def holds(self, checkpoint: Checkpoint) -> bool:
        return checkpoint.model.config.attention_head_size is not None

    def write(self, checkpoint: Checkpoint, directory: Path, hf_config: dict[str, Any]) -> dict[str, Any]:
        config, family = checkpoint.model.config, FAMILIES[checkpoint.model_type]
        write_weights(hf_state_dict(checkpoint.model, family, family.prefix), directory / PRUNED_WEIGHTS)
        is_linear = "classes" in checkpoint.model.num_outputs and config.pooler_act in NO_POOLER
        whole, heads = split_heads(hf_config, family, config)
        pruning = {
            "model_type": hf_config["model_type"],
            **heads,
            **({"pooler_act": config.pooler_act} if is_linear else {}),
        }
        return {**whole, "model_type": self.model_type, "pruning_config": pruning}

    def for_others(self, checkpoint: Checkpoint) -> Checkpoint:
        return fill_heads(checkpoint)


def split_heads(
    hf_config: Mapping[str, Any], family: FamilySpec, config: EncoderConfig
) -> tuple[dict[str, Any], dict[str, int]]:
    """The config with the number of heads before the cut, and the numbers that say what is left; nothing for a model
    that has all heads."""
    if config.attention_head_size is None:
        return {**hf_config}, {}
    whole = {**hf_config, family.config_keys[HEADS]: config.hidden_size // config.head_size}
    return whole, {HEADS: config.num_attention_heads, HEAD_SIZE: config.head_size}


def read_heads(stored: Mapping[str, Any], file: Path) -> dict[str, int]:
    """The config fields of a model without some heads. InputError if they are no integers."""
    changes = {name: stored.get(name) for name in (HEADS, HEAD_SIZE)}
    for name, value in changes.items():
        if type(value) is not int or not 0 < value < 2**16:
            raise InputError(f"{file}: {name} ({value!r:.40}) must be an integer from 1; prune the model again")
    return {name: value for name, value in changes.items() if value is not None}


def read_pruned(plan: ModelPlan) -> Model:
    file = plan.directory / PRUNED_WEIGHTS
    if not file.exists():
        raise MissingFile(f"{file}: not found, though config.json declares a pruned model; prune the model again")
    return plan.read(open_safetensors(file))


def fill_heads(checkpoint: Checkpoint) -> Checkpoint:
    """The same function in the Hugging Face layout: removed heads are there again, with weights of 0."""
    model, config = checkpoint.model, checkpoint.model.config
    if config.attention_head_size is None:
        return checkpoint
    full = Model(
        config.replace(attention_head_size=None, num_attention_heads=config.hidden_size // config.head_size),
        model.num_outputs,
        pooler=model.pooler is not None,
    )
    state = model.state_dict()
    for name, value in full.state_dict().items():
        stored = state[name]
        value.zero_()
        if name.endswith(("attention.qkv.weight", "attention.qkv.bias")):
            for rows, kept in zip(value.chunk(3), stored.chunk(3), strict=True):
                rows[: len(kept)] = kept
        elif name.endswith("attention.output.weight"):
            value[:, : stored.shape[1]] = stored
        else:
            value.copy_(stored)
    return replace(checkpoint, model=full.eval())
