"""Write the adapter of a model in the layout of peft, as far as that layout holds it."""

from pathlib import Path
from typing import Any

from torch import Tensor

from bothways.base.errors import flag
from bothways.base.io import write_json
from bothways.model.adapters.files import OWN_WEIGHTS, PEFT_WEIGHTS, PREFIX, TASK_TYPES
from bothways.model.adapters.install import LoraLinear, own_state
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.checkpoint.description import ADAPTER_CONFIG, METADATA_FILE
from bothways.model.checkpoint.weights import write_floats
from bothways.model.config import NO_POOLER
from bothways.model.families import FAMILIES


def write_adapter(checkpoint: Checkpoint, directory: Path) -> None:
    """Write the adapter of a checkpoint's model and its head into a directory."""
    model = checkpoint.model
    spec = model.adapter
    state = own_state(model)
    config: dict[str, Any] = {"base_model_name_or_path": spec.base}
    if spec.kind == "lora":
        tensors, peft_config = _take_peft(checkpoint, state)
        write_floats(tensors, directory / PEFT_WEIGHTS)
        config |= peft_config
    else:
        config["adapter_type"] = spec.kind
    line = unread(checkpoint)
    if line:
        config["readers"] = line

    # The layout of peft has no place for the rest.
    if state:
        write_floats(state, directory / OWN_WEIGHTS)

    described = {
        **spec.to_json(),
        "heads": model.num_outputs,
        "labels": checkpoint.labels,
        "multi_label": checkpoint.multi_label,
        "pooling": checkpoint.pooling,
        "normalized": checkpoint.normalized,
        "head_pooling": model.config.pooling,
        "pooler_act": model.config.pooler_act,
    }
    write_json(directory / ADAPTER_CONFIG, config)
    write_json(directory / METADATA_FILE, {"format": 1, **checkpoint.metadata, "adapter": described})
    if checkpoint.scope is not None:
        checkpoint.scope.write(directory)


def _take_peft(checkpoint: Checkpoint, state: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of peft's file, by its names, and their configuration. They are taken from `state`, the adapter and
    the head by our names."""
    model = checkpoint.model
    family = FAMILIES[checkpoint.model_type]
    tensors: dict[str, Tensor] = {}
    targets: list[str] = []
    for name, part in model.named_modules():
        if isinstance(part, LoraLinear):
            hf_names = family.hf_names(f"{name}.weight", ())
            downs = state.pop(f"{name}.lora_down").chunk(len(hf_names))
            ups = state.pop(f"{name}.lora_up")
            for hf_name, down, up in zip(hf_names, downs, ups, strict=True):
                module = hf_name.removesuffix(".weight")
                targets.append(module.removeprefix(family.prefix))
                tensors[f"{PREFIX}{module}.lora_A.weight"] = down
                tensors[f"{PREFIX}{module}.lora_B.weight"] = up

    head_names = _head_names(checkpoint)
    for name, hf_name in head_names.items():
        tensors[f"{PREFIX}{hf_name}"] = state.pop(name)
    if not (head_names and model.num_outputs):  # a bare encoder
        prefix = PREFIX + family.prefix
        tensors = {f"{PREFIX}{name.removeprefix(prefix)}": value for name, value in tensors.items()}

    modules = sorted({hf_name.removeprefix(family.prefix).split(".")[0] for hf_name in head_names.values()})
    task_types = [TASK_TYPES[head] for head in model.num_outputs if head in TASK_TYPES and head_names]
    return tensors, {
        "peft_type": "LORA",
        "task_type": task_types[0] if task_types else "FEATURE_EXTRACTION",
        "r": model.adapter.rank,
        "lora_alpha": model.adapter.alpha,
        "lora_dropout": 0.0,
        "target_modules": targets,
        "modules_to_save": modules or None,
        "bias": "none",
        "inference_mode": True,
    }


def unread(checkpoint: Checkpoint) -> str | None:
    """A line for an adapter that peft does not compute whole over transformers' model; None for all others."""
    model = checkpoint.model
    family = FAMILIES[checkpoint.model_type]
    classifies = "classes" in model.num_outputs
    if model.adapter.kind != "lora":
        return f"only Bothways reads an adapter of this kind ({model.adapter.kind})"
    if model.num_outputs and not _head_names(checkpoint):
        way_out = f"; {flag('pooling', 'cls')} gives a head that peft reads too" if classifies else ""
        return f"peft reads the LoRA of the encoder, only Bothways the head{way_out}"
    if classifies and family.supports_mean_pooling:
        pooling = "cls" if model.config.pooling == "first" else model.config.pooling
        return f"peft reads it over a model whose config.json has classifier_pooling={pooling!r}"
    return None


def _head_names(checkpoint: Checkpoint) -> dict[str, str]:
    """Hugging Face's names of the parameters outside the encoder; none if its layout does not have this head."""
    model = checkpoint.model
    family = FAMILIES[checkpoint.model_type]
    is_supported = frozenset(model.num_outputs) in family.architectures
    if model.config.pooler_act in NO_POOLER or not is_supported:
        return {}

    names: dict[str, str] = {}
    for name in model.state_dict():
        if name.startswith("encoder."):
            continue
        hf_names = family.hf_names(name, model.num_outputs)
        if len(hf_names) != 1:
            return {}
        names[name] = hf_names[0]
    return names
