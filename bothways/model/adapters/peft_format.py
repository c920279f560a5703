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
    model, labels = _with_stored_head(files, base, stored, family=family, is_bare=bool(prefix))

    # Copies, since the model shares its weights with the base.
    changed: dict[str, Tensor] = {}
    for name, parameter in [*model.named_parameters()]:
        owner = model.get_submodule(name.rpartition(".")[0])
        hf_names = family.hf_names(name, model.num_outputs)
        for index, hf_name in enumerate(hf_names):
            pair = _pair_names(hf_name, owner)
            has_pair = not stored.keys().isdisjoint(pair)
            if hf_name not in stored and not has_pair:
                continue

            weight = changed.setdefault(name, parameter.detach().clone())
            rows = weight.chunk(len(hf_names))[index]
            if hf_name in stored:
                check(files, {hf_name: stored[hf_name]}, {hf_name: rows.shape})
                rows.copy_(stored.pop(hf_name))
            if has_pair:
                down, up = take(files, stored, pair)
                module = hf_name.removesuffix(".weight").removeprefix(prefix)
                # peft's A and B of an embedding give the transposed table.
                target = rows.T if isinstance(owner, nn.Embedding) else rows
                _check_pair(files, pair, down, up=up, shape=target.shape)
                change = files.scale(module, len(down)) * (up.double() @ down.double())
                target += change.to(rows)

    old = model.state_dict()
    _check_tied(files, {**old, **changed}, old, left=stored)
    for name, weight in changed.items():
        module, _, attribute = name.rpartition(".")
        replacement = nn.Parameter(weight, requires_grad=model.get_parameter(name).requires_grad)
        setattr(model.get_submodule(module), attribute, replacement)

    return replace(
        base,
        model=model.eval(),
        labels=labels,
        metadata=files.metadata,
        words=None,
        scope=None,
        statements=None,
    )


def _pair_names(hf_name: str, owner: nn.Module) -> list[str]:
    """peft's names of A and B for a weight of a module; none for parameters that have no LoRA."""
    module = hf_name.removesuffix(".weight")
    if module == hf_name:
        return []
    if isinstance(owner, nn.Embedding):
        return [f"{module}.lora_embedding_A", f"{module}.lora_embedding_B"]
    if isinstance(owner, nn.Linear):
        return [f"{module}.lora_A", f"{module}.lora_B"]
    return []


def _check_tied(
    files: AdapterFiles,
    new: Mapping[str, Tensor],
    old: Mapping[str, Tensor],
    *,
    left: Mapping[str, Tensor],
) -> None:
    """InputError if a tensor is left over that is no copy of a tied one, or if the token table has changed, but not
    the output embeddings."""
    copies: dict[str, str] = {}
    for tied, ends in ((TABLE, TABLE_COPIES), (BIAS, (BIAS_COPY,))):
        for name, value in left.items():
            if tied in new and name.endswith(ends) and torch.equal(value.to(new[tied]), new[tied]):
                copies[name] = tied

    unused = left.keys() - copies.keys()
    if unused:
        raise files.unused_error([*unused])
    if BIAS in new and TABLE not in copies.values() and not torch.equal(new[TABLE], old[TABLE]):
        raise InputError(
            f"{files.directory}: changes the token table, but not the output embeddings, which is not supported; "
            "train it with the encoder alone"
        )


def _check_pair(files: AdapterFiles, names: list[str], down: Tensor, *, up: Tensor, shape: torch.Size) -> None:
    """InputError names a matrix that does not fit a weight of this shape."""
    num_outputs, num_inputs = shape
    rank = down.shape[0] if down.ndim else 0
    shapes = ([rank, num_inputs], [num_outputs, rank])
    for name, value, needed in zip(names, (down, up), shapes, strict=True):
        if [*value.shape] != needed or not 0 < rank <= MAX_RANK:
            raise InputError(
                f"{files.directory / PEFT_WEIGHTS}: {name} is {[*value.shape]}, the model needs {needed}; pass the "
                "model that the adapter was trained on"
            )


def _stored_heads(stored: Mapping[str, Tensor], family: FamilySpec, architecture: str) -> dict[str, int]:
    """The heads in a file, and their numbers of outputs."""
    sizes: dict[str, int] = {}
    for head in family.find_heads(stored, architecture):
        if head in NUM_OUTPUTS:
            sizes[head] = NUM_OUTPUTS[head]
            continue
        last = stored.get(f"{family.head_names[head].get('output')}.weight")
        if last is None or not last.ndim or not last.numel():
            sizes[head] = 0
        else:
            sizes[head] = len(last)
    return sizes


def _with_stored_head(
    files: AdapterFiles,
    base: Checkpoint,
    stored: Mapping[str, Tensor],
    *,
    family: FamilySpec,
    is_bare: bool,
) -> tuple[Model, tuple[str, ...]]:
    """The base with the heads in the file, or if there are none, its heads; and the names of the classes."""
    sizes = _stored_heads(stored, family, _architecture(files, base))
    heads = base.model.num_outputs
    keeps_heads = all(heads.get(head) == size for head, size in sizes.items())
    if is_bare:
        # The base's masked LM head is tied to its token table; the adapter may have changed the table alone.
        table = family.hf_names(TABLE, ())[0].removesuffix("weight")
        if any(name.startswith(table) for name in stored):
            heads = {head: size for head, size in heads.items() if head != "masked_words"}

    model = with_encoder_of(base.model, base.model.config, heads if keeps_heads else sizes)
    shapes = {name: value.shape for name, value in model.state_dict().items() if not name.startswith("encoder.")}
    base_state = base.model.state_dict()
    state: dict[str, Tensor] = {}
    for name in shapes:
        if name in base_state and (keeps_heads or name.startswith("pooler.")):
            state[name] = base_state[name]
        for hf_name in stored.keys() & {*family.hf_names(name, model.num_outputs)}:
            state[name] = stored[hf_name]
    check(files, state, shapes)
    model.load_state_dict(state, strict=False)

    size = sizes.get("classes", sizes.get("tokens"))
    if size is None:
        return model, base.labels if keeps_heads else ()
    # peft's files lack the names of the classes; a regression has one output and none.
    return model, tuple(f"LABEL_{index}" for index in range(size)) if size > 1 else ()


def _architecture(files: AdapterFiles, base: Checkpoint) -> str:
    """The classes of transformers that tell apart heads with the same names of parameters."""
    task = next((head for head, name in TASK_TYPES.items() if name == files.config.get("task_type")), None)
    mapping = get_object(files.config, "auto_mapping", files.directory / ADAPTER_CONFIG)
    if task:
        return f"For{CLASS_SUFFIXES[task]}"
    suffixes = " ".join(f"For{CLASS_SUFFIXES.get(head)}" for head in base.model.num_outputs)
    return str(mapping.get("base_model_class") or suffixes)
