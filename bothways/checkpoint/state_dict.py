"""Modules for the arrays of a directory."""

import math
from collections.abc import Mapping
from pathlib import Path

import torch

from bothways.checkpoint.description import CONFIG
from bothways.checkpoint.reading import ModelFiles
from bothways.checkpoint.weights import (
    CLOZE_WEIGHTS,
    INT8_WEIGHTS,
    WEIGHTS,
    Array,
    is_finite,
    not_finite_error,
    num_bytes,
    shorten,
)
from bothways.config import NO_POOLER, POOLED_HEADS
from bothways.errors import InputError
from bothways.model.heads import ClassificationHead
from bothways.model.int8 import load_int8_state_dict
from bothways.model.model import Model
from bothways.model.parameters import no_init

POOLER = "pooler.dense.weight"
BIAS, BIAS_COPY = "heads.masked_words.bias", "decoder.bias"
TABLE_COPIES = ("decoder.weight", "vocab_projector.weight", "lm_head.weight")
# In files, but no parameters of ours: buffers, and copies of the token table and the vocabulary bias.
DERIVED = ("position_ids", "token_type_ids", BIAS_COPY, *TABLE_COPIES)


def build_model(files: ModelFiles, dtype: torch.dtype) -> Model:
    """The modules for the arrays of a directory, filled. InputError names missing, misshapen or untied parameters."""
    if files.naming == "int8":
        return _int8_model(files)
    if files.naming == "exact":
        return _exact_model(files, dtype)
    model, hf_config, tensors = _build(files, dtype), files.hf_config, files.arrays
    _fill(model, files)
    file, outputs = files.directory.path / CONFIG, model.num_outputs.get("classes", 1)
    if hf_config.get("problem_type") == "regression" and outputs > 1:
        raise InputError(f"{file}: regression with {outputs} outputs is not supported; use a model with one")
    copies = [name for name in tensors if name.endswith(TABLE_COPIES)]  # compared with the table by now
    if hf_config.get("tie_word_embeddings") is False and "masked_words" in model.num_outputs and not copies:
        raise InputError(f"{file}: untied output embeddings (tie_word_embeddings) are not supported")
    return model


def _build(files: ModelFiles, dtype: torch.dtype) -> Model:
    """An uninitialized model, with the heads whose parameters are in the file."""
    family, config, tensors, heads = files.family, files.config, files.arrays, files.outputs
    names = family.hf_names(POOLER, heads)
    pooler = any(name in tensors or name.removeprefix(family.prefix) in tensors for name in names)
    if not pooler and not heads.keys().isdisjoint(POOLED_HEADS) and config.pooler_act not in NO_POOLER:
        raise InputError(f"{files.directory.path}: a head on text vectors, but its pooler is missing")
    try:
        with no_init(dtype, max_elements=num_bytes(tensors)):
            model = Model(config, heads, pooler=pooler)
    except InputError as error:
        file = files.directory.path / CONFIG
        raise InputError(f"{file}: {error}; use the config.json that belongs to the weights") from None
    for head in model.heads.values():
        if isinstance(head, ClassificationHead):
            head.output.to(torch.promote_types(dtype, torch.float32))  # as `move_model` does
    return model


def _exact_model(files: ModelFiles, dtype: torch.dtype) -> Model:
    """A model whose file has all parameters by our names: a cloze classifier."""
    tensors, file = files.arrays, files.directory.path / CLOZE_WEIGHTS
    with no_init(dtype, max_elements=num_bytes(tensors)):
        model = Model(files.config, files.outputs)
    model.heads["classes"].float()
    for name, value in model.state_dict().items():
        if name not in tensors or tensors[name].shape != value.shape or not is_finite(tensors[name]):
            raise InputError(f"{file}: {name} is missing, or does not fit config.json; train the model again")
        value.copy_(torch.from_numpy(tensors[name]))
    return model


def _int8_model(files: ModelFiles) -> Model:
    try:
        return load_int8_state_dict(
            files.config, {name: torch.from_numpy(value) for name, value in files.arrays.items()}
        )
    except InputError as error:
        file = files.directory.path / INT8_WEIGHTS
        raise InputError(f"{file}: does not fit config.json ({error}); quantize the model again") from None


def _fill(model: Model, files: ModelFiles) -> None:
    """Copy every parameter from the file into the model. InputError lists those that are missing or misshapen."""
    family, tensors = files.family, files.arrays
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
            value = torch.from_numpy(tensors[name])
            if value.shape != rows.shape:
                misshapen.append(f"{name} is {list(value.shape)}, config.json requires {list(rows.shape)}")
                continue
            if not value.is_floating_point():
                misshapen.append(f"{name} is {value.dtype}, not floating point")
                continue
            rows.copy_(value)
            if not all_finite(rows):
                broken.append(name)
    file = files.directory.path / WEIGHTS
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
        files.directory.warn(f"{file}: ignored, since no part of the model uses them: {shorten(unused)}")
    if "masked_words" in model.num_outputs:
        _refuse_untied(model, [name for name in tensors if name not in used], tensors, file)


def all_finite(values: torch.Tensor) -> bool:
    """Whether no value is NaN or infinite. Tries the sum first, in a twentieth of the time; it may overflow."""
    return math.isfinite(values.sum().item()) or bool(values.isfinite().all())


def _refuse_untied(model: Model, unused: list[str], tensors: Mapping[str, Array], file: Path) -> None:
    """InputError if the file has output embeddings or a bias that differ from the tied ones."""
    parameters = model.state_dict()
    for tied, tied_name, copies in (
        (parameters["encoder.embeddings.words.weight"], "token table", TABLE_COPIES),
        (parameters[BIAS], "vocabulary bias", BIAS_COPY),
    ):
        for name in (name for name in unused if name.endswith(copies)):
            if not torch.equal(torch.from_numpy(tensors[name]).to(tied.dtype), tied):
                raise InputError(
                    f"{file}: {name} differs from the {tied_name}; untied output embeddings are not supported"
                )
