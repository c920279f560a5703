"""Adapters that Bothways has written, given to the model that they belong to."""

from collections.abc import Mapping, Set
from dataclasses import replace

import torch
from torch import Tensor

from bothways.base.errors import InputError
from bothways.model.adapters.files import AdapterFiles
from bothways.model.adapters.install import LoraLinear, fingerprint_encoder, install, own_state
from bothways.model.adapters.spec import AdapterSpec
from bothways.model.adapters.tensors import check, take, to_tensors, with_encoder_of
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.checkpoint.description import ADAPTER_CONFIG, METADATA_FILE
from bothways.model.checkpoint.scope import SCOPE, Scope
from bothways.model.config import NUM_OUTPUTS
from bothways.model.families import FAMILIES, FamilySpec
from bothways.model.model import Model


def attach_own(base: Checkpoint, files: AdapterFiles) -> Checkpoint:
    """The checkpoint with an adapter, not merged. InputError if it belongs to another model, or is broken."""
    family = FAMILIES[base.model_type]
    described = files.described
    spec = _read_spec(base, files)
    labels, heads = _read_heads(files, family)

    pooling = {"pooling": described.get("head_pooling"), "pooler_act": described.get("pooler_act")}
    config = base.model.config.replace(**{name: value for name, value in pooling.items() if value is not None})
    model = with_encoder_of(base.model, config, heads)
    install(model, spec, family)

    state = {name: torch.empty_like(value) for name, value in own_state(model).items()}
    tensors = _own_tensors(files, model, family, state)
    check(files, tensors, {name: value.shape for name, value in state.items()})
    # Assigned, not copied: the adapter may have biases of its own where the model holds the base's.
    own = {name: value.to(state[name]) for name, value in tensors.items()}
    model.load_state_dict(own, strict=False, assign=True)

    return replace(
        base,
        model=model.eval(),
        labels=tuple(labels),
        multi_label=bool(described.get("multi_label")),
        pooling=described.get("pooling"),
        normalized=bool(described.get("normalized", True)),
        metadata=files.metadata,
        scope=Scope.read(files.directory / SCOPE),
    )


def _read_spec(base: Checkpoint, files: AdapterFiles) -> AdapterSpec:
    """The adapter without its weights. InputError if its fingerprint is of another model's encoder."""
    base_name = str(files.config.get("base_model_name_or_path", ""))
    spec = AdapterSpec.from_json(files.described, base_name, files.directory / METADATA_FILE)
    if spec.fingerprint and spec.fingerprint != fingerprint_encoder(base.model):
        model_name = base.metadata.get("settings", {}).get("out") or f"this {base.model_type} model"
        raise InputError(
            f"{files.directory}: the adapter belongs to other weights than those of {model_name}; pass the model that "
            "it was trained on"
        )
    return spec


def _read_heads(files: AdapterFiles, family: FamilySpec) -> tuple[list[str], dict[str, int]]:
    """The labels, and the heads with their numbers of outputs. InputError if they do not fit each other."""
    file = files.directory / METADATA_FILE
    labels = files.described.get("labels")
    heads = files.described.get("heads")
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise InputError(f"{file}: labels of the adapter are broken; save or download it again")
    if not isinstance(heads, dict) or any(heads[head] != _size(head, labels) for head in heads):
        raise InputError(f"{file}: heads of the adapter do not fit its labels; save or download it again")
    unknown = heads.keys() - {*family.head_names, *NUM_OUTPUTS, "classes", "tokens"}
    if unknown:
        raise InputError(f"{file}: {family.model_type} has no head {min(unknown)!r:.40}")
    return labels, heads


def _size(head: str, labels: list[str]) -> int:
    """The number of outputs of a head with these labels, which bounds the memory that a file can ask for."""
    if head in NUM_OUTPUTS:
        return NUM_OUTPUTS[head]
    return len(labels) or 1  # a regression has no labels


def _own_tensors(
    files: AdapterFiles,
    model: Model,
    family: FamilySpec,
    state: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """The tensors of both files by our names. InputError if one is left over, or the files differ in scale."""
    tensors = to_tensors(files.own_tensors())
    if model.adapter.kind == "lora":
        tensors |= _lora_tensors(files, model, family, names=state.keys() - tensors.keys())
    unknown = [name for name in tensors if name not in state and "pooler." not in name]
    if unknown:
        raise files.unused_error(unknown)
    return tensors


def _lora_tensors(
    files: AdapterFiles,
    model: Model,
    family: FamilySpec,
    *,
    names: Set[str],
) -> dict[str, Tensor]:
    """The tensors of peft's file: those with these names of ours by our names, others as the file names them."""
    arrays, prefix = files.peft_tensors(family)
    stored = to_tensors(arrays)
    tensors: dict[str, Tensor] = {}

    for name, part in model.named_modules():
        if isinstance(part, LoraLinear):
            modules = [hf_name.removesuffix(".weight") for hf_name in family.hf_names(f"{name}.weight", ())]
            for module in modules:
                _check_scale(files, module.removeprefix(prefix), model.adapter)
            downs = take(files, stored, [f"{module}.lora_A" for module in modules])
            ups = take(files, stored, [f"{module}.lora_B" for module in modules])
            tensors[f"{name}.lora_down"] = torch.cat(downs)
            tensors[f"{name}.lora_up"] = torch.stack(ups)

    for name in names - tensors.keys():
        hf_names = family.hf_names(name, model.num_outputs)
        if hf_names and hf_names[0] in stored:
            tensors[name] = stored.pop(hf_names[0])
    return {**tensors, **stored}


def _check_scale(files: AdapterFiles, name: str, spec: AdapterSpec) -> None:
    if files.scale(name, spec.rank) != spec.scale:
        raise InputError(
            f"{files.directory / ADAPTER_CONFIG}: r and lora_alpha differ from those in {METADATA_FILE}; remove "
            f"{METADATA_FILE} if peft has written the adapter"
        )
