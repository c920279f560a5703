"""Int8 models: most linear layers in 8 bits, which only Bothways computes with (model/int8.py)."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bothways.checkpoint.contents import CONFIG, Checkpoint, encoder_only
from bothways.checkpoint.formats.format import Format, ModelPlan, StoredModel
from bothways.checkpoint.formats.pruned import HEADS, read_heads, split_heads
from bothways.checkpoint.state_dict import not_finite_error
from bothways.checkpoint.weights import is_finite, open_safetensors, write_weights
from bothways.errors import InputError, MissingFile
from bothways.families import FAMILIES
from bothways.io import get_object
from bothways.model.int8 import dequantize, int8_state_dict, is_int8, load_int8_state_dict
from bothways.model.model import Model
from bothways.model.pooler import NO_POOLER

INT8_WEIGHTS = "int8.safetensors"  # under the usual name other libraries would load random weights


class Int8Format(Format):
    model_type = "bothways-int8"

    def open(self, directory: Path, hf_config: Mapping[str, Any]) -> StoredModel:
        quantization = get_object(hf_config, "quantization_config", directory / CONFIG)
        config = {name: value for name, value in hf_config.items() if name != "quantization_config"}
        config["model_type"] = quantization.get("model_type")
        changes = read_heads(quantization, directory / CONFIG) if HEADS in quantization else {}
        return StoredModel(config, read_int8_model, quantization.get("pooler_act"), changes=changes)

    def holds(self, checkpoint: Checkpoint) -> bool:
        return is_int8(checkpoint.model)

    def write(self, checkpoint: Checkpoint, directory: Path, hf_config: dict[str, Any]) -> dict[str, Any]:
        act = checkpoint.model.config.pooler_act
        is_linear = "classes" in checkpoint.model.num_outputs and act in NO_POOLER
        whole, heads = split_heads(hf_config, FAMILIES[checkpoint.model_type], checkpoint.model.config)
        quantization = {"quant_method": self.model_type, "model_type": hf_config["model_type"], **heads}
        write_weights(int8_state_dict(checkpoint.model), directory / INT8_WEIGHTS)
        return {
            **whole,
            "quantization_config": quantization | ({"pooler_act": act} if is_linear else {}),
            "model_type": self.model_type,
        }

    def for_others(self, checkpoint: Checkpoint) -> Checkpoint:
        return encoder_only(replace(checkpoint, model=dequantize(checkpoint.model)))


def read_int8_model(plan: ModelPlan) -> Model:
    """The int8 model of a directory. InputError if the file is missing, broken or does not fit the config."""
    file = plan.directory / INT8_WEIGHTS
    if not file.exists():
        raise MissingFile(f"{file}: not found, though config.json declares int8; quantize the model again")
    tensors = dict(open_safetensors(file))
    if broken := [name for name, value in tensors.items() if not is_finite(value)]:
        raise not_finite_error(file, broken)
    try:
        return load_int8_state_dict(plan.config, tensors)
    except InputError as error:
        raise InputError(f"{file}: does not fit config.json ({error}); quantize the model again") from None
