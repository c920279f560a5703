"""Int8 models: most linear layers in 8 bits, which only Bothways computes with (model/int8.py)."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bothways.model.checkpoint import weights
from bothways.model.checkpoint.description import CONFIG
from bothways.model.checkpoint.directory import Directory
from bothways.model.checkpoint.formats.format import ReadPlan, StoredModel, split_config
from bothways.model.checkpoint.formats.hugging_face import LayoutFormat
from bothways.model.checkpoint.formats.pruned import HEADS, read_heads, split_heads

if TYPE_CHECKING:
    from bothways.model.checkpoint.contents import Checkpoint


class Int8Format(LayoutFormat):
    model_type = "bothways-int8"

    def open(self, directory: Directory) -> StoredModel:
        config, quantization = split_config(directory, "quantization_config")
        changes = read_heads(quantization, directory.path / CONFIG) if HEADS in quantization else {}
        return StoredModel(
            config,
            read_int8,
            naming="int8",
            pooler_act=quantization.get("pooler_act"),
            changes=changes,
        )

    def holds(self, checkpoint: "Checkpoint") -> bool:
        from bothways.model.int8 import is_int8

        return is_int8(checkpoint.model)

    def write(self, checkpoint: "Checkpoint", directory: Path, hf_config: dict[str, Any]) -> dict[str, Any]:
        from bothways.model.int8 import int8_state_dict

        whole, entry = split_heads(checkpoint, hf_config)
        weights.write_weights(int8_state_dict(checkpoint.model), directory / weights.INT8_WEIGHTS)
        return {
            **whole,
            "quantization_config": {"quant_method": self.model_type, **entry},
            "model_type": self.model_type,
        }


def read_int8(plan: ReadPlan) -> weights.TensorFiles:
    """The tensors of an int8 model. InputError if the file is missing or broken."""
    file = plan.directory.path / weights.INT8_WEIGHTS
    tensors = weights.open_declared(file, "int8", "quantize the model again")
    broken = [name for name, value in tensors.items() if not weights.is_finite(value)]
    if broken:
        raise weights.not_finite_error(file, broken)
    return tensors
