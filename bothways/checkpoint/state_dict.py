"""State dicts in Hugging Face's names: build the model for one, load it, and write one."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bothways.checkpoint.weights import WEIGHTS, is_finite, num_bytes
from bothways.config import EncoderConfig
from bothways.errors import InputError
from bothways.families import FamilySpec
from bothways.families.spec import CLASS_SUFFIXES
from bothways.model.heads import ClassificationHead
from bothways.model.model import NUM_OUTPUTS, Model
from bothways.model.parameters import no_init
from bothways.model.pooler import NO_POOLER, POOLED_HEADS

POOLER = "pooler.dense.weight"
BIAS, BIAS_COPY = "heads.masked_words.bias", "decoder.bias"
TABLE_COPIES = ("decoder.weight", "vocab_projector.weight", "lm_head.weight")
# In files, but no parameters of ours: buffers, and copies of the token table and the vocabulary bias.
DERIVED = ("position_ids", "token_type_ids", BIAS_COPY, *TABLE_COPIES)


def read_model(
    family: FamilySpec,
    config: EncoderConfig,
    labels: tuple[str, ...],
    hf_config: Mapping[str, Any],
    directory: Path,
    tensors: Mapping[str, Tensor],
    dtype: torch.dtype,
    warn: Callable[[str], None],
) -> Model:
    """Build the model for these tensors and load them. InputError names missing, misshapen or untied parameters."""
    model = _build(family, config, tensors, labels, hf_config, directory, dtype)
    _fill(model, family, tensors, directory, warn)
    file, outputs = directory / "config.json", model.num_outputs.get("classes", 1)
    if hf_config.get("problem_type") == "regression" and outputs > 1:
        raise InputError(f"{file}: regression with {outputs} outputs is not supported; use a model with one")
    copies = [name for name in tensors if name.endswith(TABLE_COPIES)]  # compared with the table by now
    if hf_config.get("tie_word_embeddings") is False and "masked_words" in model.num_outputs and not copies:
        raise InputError(f"{file}: untied output embeddings (tie_word_embeddings) are not supported")
    return model


def _build(
    family: FamilySpec,
    config: EncoderConfig,
    tensors: Mapping[str, Tensor],
    labels: tuple[str, ...],
    hf_config: Mapping[str, Any],
    directory: Path,
    dtype: torch.dtype,
) -> Model:
    """An uninitialized model, with the heads whose parameters are in the file."""
    stored_heads = find_heads(family, tensors, str(hf_config.get("architectures")))
    sizes = {**NUM_OUTPUTS, "classes": len(labels), "tokens": len(labels)}
    names = family.hf_names(POOLER, stored_heads)
    pooler = any(name in tensors or name.removeprefix(family.prefix) in tensors for name in names)
    if not pooler and stored_heads & set(POOLED_HEADS) and config.pooler_act not in NO_POOLER:
        raise InputError(f"{directory}: a head on text vectors, but its pooler is missing")
    try:
        with no_init(dtype, max_elements=num_bytes(tensors)):
            model = Model(
                config, {name: sizes[name] for name in family.head_names if name in stored_heads}, pooler=pooler
            )
    except InputError as error:
        file = directory / "config.json"
        raise InputError(f"{file}: {error}; use the config.json that belongs to the weights") from None
    for head in model.heads.values():
        if isinstance(head, ClassificationHead):
            head.output.to(torch.promote_types(dtype, torch.float32))  # as `move_model` does
    return model


def find_heads(family: FamilySpec, tensors: Mapping[str, Tensor], architecture: str) -> set[str]:
    """The heads that have a parameter in the file other than a pooler's. If heads have the same parameter names, such
    as classes and tokens in BERT, the architecture in the config decides, else the first head is used."""
    poolers = {
        name for table in family.head_names.values() for ours, name in table.items() if ours.startswith("pooler.")
    }
    names_by_head = {
        head: {name if ours == "bias" else f"{name}.weight" for ours, name in table.items() if name not in poolers}
        for head, table in family.head_names.items()
    }
    found: dict[frozenset[str], str] = {}
    for head, names in names_by_head.items():
        if any(name in tensors for name in names) and (
            frozenset(names) not in found or f"For{CLASS_SUFFIXES.get(head)}" in architecture
        ):
            found[frozenset(names)] = head
    return set(found.values())


def _fill(
    model: Model, family: FamilySpec, tensors: Mapping[str, Tensor], directory: Path, warn: Callable[[str], None]
) -> None:
    """Copy every parameter from the file into the model. InputError lists those that are missing or misshapen."""
    missing, misshapen, broken, used = [], [], [], set[str]()
    prefixed = any(name.startswith(family.prefix) for name in tensors)  # a bare encoder has no prefix
    for parameter, target in model.state_dict().items():
        names = family.hf_names(parameter, model.num_outputs)
        names = tuple(name if prefixed else name.removeprefix(family.prefix) for name in names)
        if parameter == BIAS and names[0] not in tensors:
            names = (names[0].removesuffix("bias") + BIAS_COPY,)
        used.update(names)
        if absent := [name for name in names if name not in tensors]:
            missing += absent
            continue
        for name, rows in zip(names, target.chunk(len(names)), strict=True):
            value = tensors[name]
            if value.shape != rows.shape:
                misshapen.append(f"{name} is {list(value.shape)}, config.json requires {list(rows.shape)}")
                continue
            if not value.is_floating_point():
                misshapen.append(f"{name} is {value.dtype}, not floating point")
                continue
            rows.copy_(value)
            if not is_finite(rows):
                broken.append(name)
    file = directory / WEIGHTS
    if missing:
        raise InputError(f"{file}: missing parameters: {shorten(missing)}; download the checkpoint again")
    if misshapen:
        raise InputError(
            f"{file}: wrong shape or type: {shorten(misshapen)}; use the config.json that belongs to the weights"
        )
    if broken:
        raise not_finite_error(file, broken)
    unused = [name for name in tensors if name not in used and not name.endswith(DERIVED)]
    if unused:
        warn(f"{file}: ignored, since no part of the model uses them: {shorten(unused)}")
    if "masked_words" in model.num_outputs:
        _refuse_untied(model, {name: tensors[name] for name in tensors if name not in used}, file)


def not_finite_error(file: Path, names: list[str]) -> InputError:
    """The error of weights that are not numbers."""
    return InputError(
        f"{file}: NaN or infinite values in {shorten(names)}; download the checkpoint again, or train it again"
    )


def _refuse_untied(model: Model, unused: Mapping[str, Tensor], file: Path) -> None:
    """InputError if the file has output embeddings or a bias that differ from the tied ones."""
    parameters = model.state_dict()
    for tied, tied_name, copies in (
        (parameters["encoder.embeddings.words.weight"], "token table", TABLE_COPIES),
        (parameters[BIAS], "vocabulary bias", BIAS_COPY),
    ):
        for name in (name for name in unused if name.endswith(copies)):
            if not torch.equal(unused[name].to(tied.dtype), tied):
                raise InputError(
                    f"{file}: {name} differs from the {tied_name}; untied output embeddings are not supported"
                )


def shorten(names: list[str], limit: int = 5) -> str:
    """The first names of a list, and how many more there are."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def hf_state_dict(model: Model, family: FamilySpec, prefix: str) -> dict[str, Tensor]:
    """Our parameters under Hugging Face's names, with stacked ones split. prefix: replaces the family's prefix."""
    tensors = {}
    for parameter, value in model.state_dict().items():
        names = family.hf_names(parameter, model.num_outputs)
        if not names:
            raise InputError(
                f"{parameter} has no Hugging Face name in the family {family.model_type}; the model cannot be saved"
            )
        for name, rows in zip(names, value.chunk(len(names)), strict=True):
            renamed = prefix + name.removeprefix(family.prefix) if name.startswith(family.prefix) else name
            tensors[renamed] = rows.detach().float().cpu().contiguous().clone()
    return tensors
