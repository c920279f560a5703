"""Adapters over a model: attached, merged and written (formats/adapter.py has their files)."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bothways.base.errors import InputError, MissingFile, flag
from bothways.base.io import get_object, write_json
from bothways.model.adapters.install import LoraLinear, fingerprint_encoder, install, merge, own_state
from bothways.model.adapters.spec import AdapterSpec, check_supported
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.checkpoint.description import ADAPTER_CONFIG, METADATA_FILE
from bothways.model.checkpoint.directory import Directory
from bothways.model.checkpoint.formats.adapter import (
    MAX_RANK,
    OWN_WEIGHTS,
    PEFT_WEIGHTS,
    PREFIX,
    TASK_TYPES,
    AdapterFiles,
)
from bothways.model.checkpoint.formats.hugging_face import BIAS, BIAS_COPY, TABLE, TABLE_COPIES
from bothways.model.checkpoint.scope import SCOPE, Scope
from bothways.model.checkpoint.weights import Array, shorten, write_floats
from bothways.model.config import NO_POOLER, NUM_OUTPUTS, EncoderConfig
from bothways.model.families import FAMILIES, FamilySpec
from bothways.model.families.spec import CLASS_SUFFIXES
from bothways.model.heads import ClassificationHead
from bothways.model.model import Model
from bothways.model.parameters import all_finite, no_init, share

# --- writing ----------------------------------------------------------------------------------------------------------


def write_adapter(checkpoint: Checkpoint, directory: Path) -> None:
    """Write the adapter of a checkpoint's model and its head into a directory."""
    model, spec = checkpoint.model, checkpoint.model.adapter
    config: dict[str, Any] = {"base_model_name_or_path": spec.base}
    state = own_state(model)
    if spec.kind == "lora":
        tensors, peft_config = _take_peft(checkpoint, state)
        write_floats(tensors, directory / PEFT_WEIGHTS)
        config |= peft_config
    else:
        config["adapter_type"] = spec.kind
    if line := unread(checkpoint):
        config["readers"] = line
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
    model, family = checkpoint.model, FAMILIES[checkpoint.model_type]
    stored = _head_names(checkpoint)
    tensors, targets = dict[str, Tensor](), []
    for name, part in model.named_modules():
        if isinstance(part, LoraLinear):
            hf_names = family.hf_names(f"{name}.weight", ())
            downs = state.pop(f"{name}.lora_down").chunk(len(hf_names))
            for hf_name, down, up in zip(hf_names, downs, state.pop(f"{name}.lora_up"), strict=True):
                module = hf_name.removesuffix(".weight")
                targets.append(module.removeprefix(family.prefix))
                tensors |= {f"{PREFIX}{module}.lora_A.weight": down, f"{PREFIX}{module}.lora_B.weight": up}
    tensors |= {f"{PREFIX}{hf_name}": state.pop(name) for name, hf_name in stored.items()}
    if not (stored and model.num_outputs):  # a bare encoder
        prefix = PREFIX + family.prefix
        tensors = {f"{PREFIX}{name.removeprefix(prefix)}": value for name, value in tensors.items()}
    modules = sorted({hf_name.removeprefix(family.prefix).split(".")[0] for hf_name in stored.values()})
    heads = [TASK_TYPES[head] for head in model.num_outputs if head in TASK_TYPES and stored]
    return tensors, {
        "peft_type": "LORA",
        "task_type": heads[0] if heads else "FEATURE_EXTRACTION",
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
    model, family = checkpoint.model, FAMILIES[checkpoint.model_type]
    if model.adapter.kind != "lora":
        return f"only Bothways reads an adapter of this kind ({model.adapter.kind})"
    if model.num_outputs and not _head_names(checkpoint):
        way_out = (
            f"; {flag('pooling', 'cls')} gives a head that peft reads too" if "classes" in model.num_outputs else ""
        )
        return f"peft reads the LoRA of the encoder, only Bothways the head{way_out}"
    if "classes" in model.num_outputs and family.supports_mean_pooling:
        pooling = "cls" if model.config.pooling == "first" else model.config.pooling
        return f"peft reads it over a model whose config.json has classifier_pooling={pooling!r}"
    return None


def _head_names(checkpoint: Checkpoint) -> dict[str, str]:
    """Hugging Face's names of the parameters outside the encoder; none if its layout does not have this head."""
    model, family = checkpoint.model, FAMILIES[checkpoint.model_type]
    is_supported = frozenset(model.num_outputs) in family.architectures
    if model.config.pooler_act in NO_POOLER or not is_supported:
        return {}
    outside = [name for name in model.state_dict() if not name.startswith("encoder.")]
    names = {name: family.hf_names(name, model.num_outputs) for name in outside}
    return {} if any(len(keys) != 1 for keys in names.values()) else {name: keys[0] for name, keys in names.items()}


# --- reading ----------------------------------------------------------------------------------------------------------


def _from_arrays(arrays: Mapping[str, Array]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(value) for name, value in arrays.items()}


def load_adapter(directory: Directory, base: Checkpoint | None, load_base: Callable[[str], Checkpoint]) -> Checkpoint:
    """The model with the adapter, merged.

    load_base: reads the model that the files name, unless `base` is given.
    """
    files = AdapterFiles.open(directory)
    if base is None:
        try:
            base = load_base(files.base)
        except MissingFile as error:
            raise MissingFile(
                f"{files.directory}: the model that the adapter belongs to is missing ({error}); if it has moved: "
                "bothways merge ADAPTER --base MODEL, or bothways.load(MODEL, adapter=...)"
            ) from None
    adapted = attach(files, base)
    if adapted.model.adapter is not None:
        merge(adapted.model)
    return adapted


def attach(files: AdapterFiles, base: Checkpoint) -> Checkpoint:
    """The model with the adapter, not merged. It shares its encoder's weights with `base`, which does not change.

    InputError if the adapter belongs to another model."""
    return _attach_own(files, base, files.described) if files.described else _attach_peft(files, base)


def _attach_own(files: AdapterFiles, base: Checkpoint, described: Mapping[str, Any]) -> Checkpoint:
    file, family = files.directory / METADATA_FILE, FAMILIES[base.model_type]
    spec = AdapterSpec.from_json(described, str(files.config.get("base_model_name_or_path", "")), file)
    if spec.fingerprint and spec.fingerprint != fingerprint_encoder(base.model):
        named = base.metadata.get("settings", {}).get("out") or f"this {base.model_type} model"
        raise InputError(
            f"{files.directory}: the adapter belongs to other weights than those of {named}; pass the model that "
            "it was trained on"
        )
    labels, heads = described.get("labels"), described.get("heads")
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise InputError(f"{file}: labels of the adapter are broken; save or download it again")
    if not isinstance(heads, dict) or any(heads[head] != _size(head, labels) for head in heads):
        raise InputError(f"{file}: heads of the adapter do not fit its labels; save or download it again")
    if unknown := heads.keys() - {*family.head_names, *NUM_OUTPUTS, "classes", "tokens"}:
        raise InputError(f"{file}: {base.model_type} has no head {min(unknown)!r:.40}")
    pooling = {"pooling": described.get("head_pooling"), "pooler_act": described.get("pooler_act")}
    config = base.model.config.replace(**{name: value for name, value in pooling.items() if value is not None})
    model = _with_encoder_of(base.model, config, heads)
    install(model, spec, family)
    state = {name: torch.empty_like(value) for name, value in own_state(model).items()}
    tensors = _own_tensors(files, model, family, state)
    _check(files, tensors, {name: value.shape for name, value in state.items()})
    # Assigned, not copied: the adapter may have biases of its own where the model holds those of the base.
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


def _size(head: str, labels: list[str]) -> int:
    """The number of outputs of a head with these labels, which bounds the memory that a file can ask for."""
    return NUM_OUTPUTS[head] if head in NUM_OUTPUTS else len(labels) or 1


def _own_tensors(
    files: AdapterFiles, model: Model, family: FamilySpec, state: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The tensors of both files by our names. InputError if one is left over, or the files differ in scale."""
    tensors = _from_arrays(files.own_tensors())
    if model.adapter.kind == "lora":
        arrays, prefix = files.peft_tensors(family)
        stored = _from_arrays(arrays)
        for name, part in model.named_modules():
            if isinstance(part, LoraLinear):
                names = [hf_name.removesuffix(".weight") for hf_name in family.hf_names(f"{name}.weight", ())]
                for one in names:
                    _check_scale(files, one.removeprefix(prefix), model.adapter)
                tensors[f"{name}.lora_down"] = torch.cat(_take(files, stored, [f"{one}.lora_A" for one in names]))
                tensors[f"{name}.lora_up"] = torch.stack(_take(files, stored, [f"{one}.lora_B" for one in names]))
        for name in state.keys() - tensors.keys():
            hf_names = family.hf_names(name, model.num_outputs)
            tensors |= {name: stored.pop(hf_names[0])} if hf_names and hf_names[0] in stored else {}
        tensors |= stored
    if unknown := [name for name in tensors if name not in state and "pooler." not in name]:
        raise files.unused_error(unknown)
    return tensors


def _check_scale(files: AdapterFiles, name: str, spec: AdapterSpec) -> None:
    if files.scale(name, spec.rank) != spec.scale:
        raise InputError(
            f"{files.directory / ADAPTER_CONFIG}: r and lora_alpha differ from those in {METADATA_FILE}; remove "
            f"{METADATA_FILE} if peft has written the adapter"
        )


def _take(files: AdapterFiles, stored: dict[str, Tensor], names: list[str]) -> list[Tensor]:
    if missing := [name for name in names if name not in stored]:
        raise InputError(f"{files.directory / PEFT_WEIGHTS}: missing: {shorten(missing)}; download the adapter again")
    return [stored.pop(name) for name in names]


def _check(files: AdapterFiles, tensors: Mapping[str, Tensor], shapes: Mapping[str, torch.Size]) -> None:
    """InputError names tensors that are missing, misshapen or not finite."""
    if missing := sorted(shapes.keys() - tensors.keys()):
        raise InputError(f"{files.directory}: missing parameters: {shorten(missing)}; download the adapter again")
    for name, shape in shapes.items():
        if tensors[name].shape != shape:
            raise InputError(
                f"{files.directory}: {name} is {[*tensors[name].shape]}, the model needs {[*shape]}; pass the model "
                "that the adapter was trained on"
            )
        if not tensors[name].is_floating_point() or not all_finite(tensors[name]):
            raise InputError(f"{files.directory}: {name} has values that are no numbers; download the adapter again")


# --- files that peft has written --------------------------------------------------------------------------------------


def _attach_peft(files: AdapterFiles, base: Checkpoint) -> Checkpoint:
    """LoRA that peft has trained, and the parameters that it has trained as a whole, in copies of the weights."""
    family = FAMILIES[base.model_type]
    check_supported(AdapterSpec("lora"), base.model.config, base.model_type)
    arrays, prefix = files.peft_tensors(family)
    stored = _from_arrays(arrays)
    model, labels = _with_stored_head(files, base, stored, family, is_bare=bool(prefix))
    changed: dict[str, Tensor] = {}
    for name, parameter in [*model.named_parameters()]:
        owner = model.get_submodule(name.rpartition(".")[0])
        hf_names = family.hf_names(name, model.num_outputs)
        for index, hf_name in enumerate(hf_names):
            module, kind = hf_name.removesuffix(".weight"), "embedding_" if isinstance(owner, nn.Embedding) else ""
            pair = [f"{module}.lora_{kind}{letter}" for letter in "AB"]
            can_have_pair = isinstance(owner, nn.Embedding | nn.Linear) and module != hf_name
            has_pair = can_have_pair and not stored.keys().isdisjoint(pair)
            if hf_name not in stored and not has_pair:
                continue
            weight = changed.setdefault(name, parameter.detach().clone())
            rows = weight.chunk(len(hf_names))[index]
            if hf_name in stored:
                _check(files, {hf_name: stored[hf_name]}, {hf_name: rows.shape})
                rows.copy_(stored.pop(hf_name))
            if has_pair:
                down, up = _take(files, stored, pair)
                shape = rows.T.shape if kind else rows.shape
                _check_pair(files, pair, down, up, shape)
                change = files.scale(module.removeprefix(prefix), len(down)) * (up.double() @ down.double())
                rows += (change.T if kind else change).to(rows)
    _check_tied(files, {**model.state_dict(), **changed}, model.state_dict(), stored)
    for name, weight in changed.items():
        module, _, attribute = name.rpartition(".")
        replacement = nn.Parameter(weight, requires_grad=model.get_parameter(name).requires_grad)
        setattr(model.get_submodule(module), attribute, replacement)
    return replace(base, model=model.eval(), labels=labels, metadata=files.metadata, words=None, scope=None)


def _check_tied(
    files: AdapterFiles, new: Mapping[str, Tensor], old: Mapping[str, Tensor], left: Mapping[str, Tensor]
) -> None:
    """InputError if a tensor is left over that is no copy of a tied one, or if the token table has changed, but not
    the output embeddings."""
    ends = {TABLE: TABLE_COPIES, BIAS: (BIAS_COPY,)}
    copies = {
        name: tied
        for tied in ends.keys() & new.keys()
        for name, value in left.items()
        if name.endswith(ends[tied]) and torch.equal(value.to(new[tied]), new[tied])
    }
    if unused := left.keys() - copies.keys():
        raise files.unused_error([*unused])
    if BIAS in new and TABLE not in copies.values() and not torch.equal(new[TABLE], old[TABLE]):
        raise InputError(
            f"{files.directory}: changes the token table, but not the output embeddings, which is not supported; "
            "train it with the encoder alone"
        )


def _check_pair(files: AdapterFiles, names: list[str], down: Tensor, up: Tensor, shape: torch.Size) -> None:
    """InputError names a matrix that does not fit a weight of this shape."""
    rank = down.shape[0] if down.ndim else 0
    for name, value, needed in zip(names, (down, up), ([rank, shape[1]], [shape[0], rank]), strict=True):
        if [*value.shape] != needed or not 0 < rank <= MAX_RANK:
            raise InputError(
                f"{files.directory / PEFT_WEIGHTS}: {name} is {[*value.shape]}, the model needs {needed}; pass the "
                "model that the adapter was trained on"
            )


def _stored_heads(stored: Mapping[str, Tensor], family: FamilySpec, architecture: str) -> dict[str, int]:
    """The heads in a file, and their numbers of outputs."""
    sizes: dict[str, int] = {}
    for head in family.find_heads(stored, architecture):
        last = stored.get(f"{family.head_names[head].get('output')}.weight")
        sizes[head] = NUM_OUTPUTS.get(head, 0 if last is None or not last.numel() or not last.ndim else len(last))
    return sizes


def _with_stored_head(
    files: AdapterFiles, base: Checkpoint, stored: Mapping[str, Tensor], family: FamilySpec, *, is_bare: bool
) -> tuple[Model, tuple[str, ...]]:
    """The base with the heads in the file, or if there are none, its heads; and the names of the classes."""
    sizes = _stored_heads(stored, family, _architecture(files, base))
    heads = base.model.num_outputs
    keeps_heads = all(heads.get(head) == size for head, size in sizes.items())
    if is_bare and any(name.startswith(family.hf_names(TABLE, ())[0].removesuffix("weight")) for name in stored):
        heads = {head: size for head, size in heads.items() if head != "masked_words"}  # tied to another table
    model = _with_encoder_of(base.model, base.model.config, heads if keeps_heads else sizes)
    shapes = {name: value.shape for name, value in model.state_dict().items() if not name.startswith("encoder.")}
    outside, state = base.model.state_dict(), {}
    for name in shapes:
        if name in outside and (keeps_heads or name.startswith("pooler.")):
            state[name] = outside[name]
        for hf_name in stored.keys() & {*family.hf_names(name, model.num_outputs)}:
            state[name] = stored[hf_name]
    _check(files, state, shapes)
    model.load_state_dict(state, strict=False)
    size = sizes.get("classes", sizes.get("tokens"))
    if size is None:
        return model, base.labels if keeps_heads else ()
    return model, tuple(f"LABEL_{index}" for index in range(size)) if size > 1 else ()


def _architecture(files: AdapterFiles, base: Checkpoint) -> str:
    """The classes of transformers that tell apart heads with the same names of parameters."""
    task = next((head for head, name in TASK_TYPES.items() if name == files.config.get("task_type")), None)
    mapping = get_object(files.config, "auto_mapping", files.directory / ADAPTER_CONFIG)
    heads = [task] if task else [*base.model.num_outputs]
    suffixes = " ".join(f"For{CLASS_SUFFIXES.get(head)}" for head in heads)
    return suffixes if task else str(mapping.get("base_model_class") or suffixes)


def _with_encoder_of(base: Model, config: EncoderConfig, heads: Mapping[str, int]) -> Model:
    """A model with these heads, uninitialized, and an encoder that shares the weights of `base`."""
    with no_init(base.encoder.embeddings.words.weight.dtype):
        model = Model(config, heads, pooler=base.pooler is not None and dict(heads) in ({}, base.num_outputs))
    for head in model.heads.values():
        if isinstance(head, ClassificationHead):
            head.output.float()  # as `move_model` does
    model.encoder = share(base.encoder)
    return model
