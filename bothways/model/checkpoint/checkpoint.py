"""Checkpoints: load and save a directory in the Hugging Face layout.

Loading checks every parameter; a save that fails leaves the old checkpoint intact.
"""

from os import PathLike
from pathlib import Path

import torch

from bothways.base.errors import InputError
from bothways.base.io import atomic_directory, check_target, read_json
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.checkpoint.description import CONFIG, DECIDE, METADATA_FILE
from bothways.model.checkpoint.directory import Directory, read_unchanged
from bothways.model.checkpoint.formats import format_of
from bothways.model.checkpoint.formats.format import Format, StoredAdapter
from bothways.model.checkpoint.model_files import ModelFiles, detect
from bothways.model.checkpoint.weights import INT8_WEIGHTS, Array, num_bytes
from bothways.model.heads import ClassificationHead
from bothways.model.int8 import load_int8_state_dict
from bothways.model.model import Model
from bothways.model.parameters import all_finite, no_init

WORDS_UNREAD = "only Bothways reads the whole model; other libraries leave out its TF-IDF part"
STATEMENTS_UNREAD = "only Bothways reads the whole model; other libraries leave out its statements"

# --- load -------------------------------------------------------------------------------------------------------------


def load(
    path: str | PathLike[str],
    *,
    dtype: torch.dtype = torch.float32,
    static: bool = False,
) -> Checkpoint:
    """Load a checkpoint, the model of a run, a model of the hub by its name (hub.py), or an adapter with its model.

    dtype: data type of the parameters.
    static: whether it may be static vectors, which can be fine-tuned, but have no layers.

    Ignored or unusual content is logged as a warning. If the checkpoint is replaced while it is read, it is read again,
    so that two checkpoints are never mixed. InputError for missing, malformed or unsupported files.

    >>> load("bothways-en").pooling
    'mean'
    """
    loaded = read_unchanged(path, lambda directory: read(directory, dtype))
    if loaded.model.config.is_static and not static:
        raise InputError(
            f"{path}: static vectors, which have no encoder; they embed texts and can be fine-tuned to classify or "
            "regress; for all else, name an encoder, such as bothways-en"
        )
    return loaded


def read(directory: Directory, dtype: torch.dtype) -> Checkpoint:
    """The checkpoint in a directory; of an adapter, with the model that it names."""
    stored = detect(directory).open(directory)
    if isinstance(stored, StoredAdapter):
        return stored.read(dtype)

    files = ModelFiles.of(directory, stored)
    model = build_model(files, dtype).eval()
    return Checkpoint(
        **vars(files.description),
        model=model,
        tokenizer=files.read_tokenizer(),
        extra=files.extra,
    )


# --- modules for arrays ----------------------------------------------------------------------------------------------


def build_model(files: ModelFiles, dtype: torch.dtype) -> Model:
    """The modules for the arrays of a directory, filled. InputError names missing, misshapen or untied parameters."""
    if files.naming == "int8":
        return _int8_model(files)

    model = _build(files, dtype)
    state = model.state_dict()

    # Each array is copied when it is read, so that the whole file is not in memory beside the model.
    def write(parameter: str, start: int, value: Array) -> bool:
        rows = state[parameter][start : start + len(value)]
        rows.copy_(torch.from_numpy(value))
        return all_finite(rows)

    shapes = {name: value.shape for name, value in state.items()}
    files.read_parameters(shapes, write)

    outputs = model.num_outputs.get("classes", 1)
    if files.hf_config.get("problem_type") == "regression" and outputs > 1:
        file = files.directory.path / CONFIG
        raise InputError(f"{file}: regression with {outputs} outputs is not supported; use a model with one")
    return model


def _int8_model(files: ModelFiles) -> Model:
    state = {name: torch.from_numpy(value) for name, value in files.arrays.items()}
    try:
        return load_int8_state_dict(files.config, state)
    except InputError as error:
        file = files.directory.path / INT8_WEIGHTS
        raise InputError(f"{file}: does not fit config.json ({error}); quantize the model again") from None


def _build(files: ModelFiles, dtype: torch.dtype) -> Model:
    """An uninitialized model, with the heads whose parameters are in the file."""
    pooler = files.has_pooler
    try:
        # The file bounds the memory that a config with huge sizes can ask for.
        with no_init(dtype, max_elements=num_bytes(files.arrays)):
            model = Model(files.config, files.outputs, pooler=pooler)
    except InputError as error:
        file = files.directory.path / CONFIG
        raise InputError(f"{file}: {error}; use the config.json that belongs to the weights") from None

    for head in model.heads.values():
        if isinstance(head, ClassificationHead):
            head.output.to(torch.promote_types(dtype, torch.float32))  # as `move_model` does
    return model


# --- save -------------------------------------------------------------------------------------------------------------


def save(checkpoint: Checkpoint, path: str | PathLike[str], weights: Format | None = None, *, card: str = "") -> None:
    """Write a checkpoint that transformers can load, and sentence-transformers if it has a pooling; of a model with an
    adapter, only the adapter and the head. Only Bothways loads int8 models.

    path: a directory, which is created or replaced.
    weights: the format of the files; None means the format that the model needs.
    card: the text of README.md, unless the directory has one that the user has written; "": none is written.

    Everything is written next to the target and renamed, so a failed write leaves the old files in place. InputError if
    the target contains anything but a checkpoint, such as a run.
    """
    target = Path(path)
    check_target(target, holds=METADATA_FILE)
    if (target / METADATA_FILE).exists() and "status" in read_json(target / METADATA_FILE):
        raise InputError(f"{target}: contains a run, which would be lost; pass a new directory")

    form = weights or format_of(checkpoint)
    with atomic_directory(target) as directory:
        form.save(checkpoint, directory)
        if card:
            from bothways.model.checkpoint.card_file import write_card

            write_card(card, directory, replaced=target)


def unread_warning(checkpoint: Checkpoint) -> str | None:
    """A line for a model that transformers reads in part or not at all, or an adapter that peft does; else None."""
    if checkpoint.words:
        return WORDS_UNREAD
    if checkpoint.metadata.get(DECIDE, {}).get("pair_scale"):
        return STATEMENTS_UNREAD
    return format_of(checkpoint).unread(checkpoint)
