"""LoRA that peft has trained, and parameters that it has trained as a whole, given to the model that they belong to."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from bothways.base.errors import InputError
from bothways.base.io import get_object
from bothways.model.adapters.files import MAX_RANK, PEFT_WEIGHTS, TASK_TYPES, AdapterFiles
from bothways.model.adapters.spec import AdapterSpec, check_supported
from bothways.model.adapters.tensors import check, take, to_tensors, with_encoder_of
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.checkpoint.description import ADAPTER_CONFIG
from bothways.model.checkpoint.formats.hugging_face import BIAS, BIAS_COPY, TABLE, TABLE_COPIES
from bothways.model.config import NUM_OUTPUTS
from bothways.model.families import FAMILIES, FamilySpec
from bothways.model.families.spec import CLASS_SUFFIXES
from bothways.model.model import Model


def attach_peft(base: Checkpoint, files: AdapterFiles) -> Checkpoint:
    """LoRA that peft has trained, and the parameters that it has trained as a whole, in copies of the weights."""
    family = FAMILIES[base.model_type]
    check_supported(AdapterSpec("lora"), base.model.config, base.model_type)
    arrays, prefix = files.peft_tensors(family)
    stored = to_tensors(arrays)
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
                check(files, {hf_name: stored[hf_name]}, {hf_name: rows.shape})
                rows.copy_(stored.pop(hf_name))
            if has_pair:
                down, up = take(files, stored, pair)
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
    model = with_encoder_of(base.model, base.model.config, heads if keeps_heads else sizes)
    shapes = {name: value.shape for name, value in model.state_dict().items() if not name.startswith("encoder.")}
    outside, state = base.model.state_dict(), {}
    for name in shapes:
        if name in outside and (keeps_heads or name.startswith("pooler.")):
            state[name] = outside[name]
        for hf_name in stored.keys() & {*family.hf_names(name, model.num_outputs)}:
            state[name] = stored[hf_name]
    check(files, state, shapes)
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
