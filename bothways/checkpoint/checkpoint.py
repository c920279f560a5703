"""Checkpoints: load, save and find a directory in the Hugging Face layout.

Loading checks every parameter; a save that fails leaves the old checkpoint intact.
"""

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from bothways.checkpoint import hub
from bothways.checkpoint.contents import CONFIG, METADATA_FILE, MULTI_LABEL, Checkpoint, is_adapter
from bothways.checkpoint.formats import detect, format_of
from bothways.checkpoint.formats.format import Format, ModelPlan
from bothways.checkpoint.formats.hugging_face import write_files
from bothways.checkpoint.metadata import read_metadata
from bothways.checkpoint.sentence_transformers import (
    DENSE,
    POOLING,
    TRANSFORMER,
    check_settings,
    lowers_texts,
    normalizes,
    read_pooling,
)
from bothways.checkpoint.state_dict import shorten
from bothways.errors import InputError, MissingFile, format_count
from bothways.families import DEFAULT_MODEL_TYPE, FAMILIES, FamilySpec
from bothways.io import atomic_directory, find_backup, list_entries, read_json, stat_files
from bothways.log import escape_line, logger
from bothways.model.parameters import move_model
from bothways.model.pooler import NO_POOLER
from bothways.tokenizer.formats import FILE_NAMES as TOKENIZER_FILES
from bothways.tokenizer.tokenizer import Tokenizer

TRIES = 10  # attempts to read a checkpoint that is being replaced
FILE_ENDINGS = (".json", ".safetensors", ".bin", ".model", "vocab.txt", "merges.txt")  # files that are read
MAX_LABELS = 1_000_000


# --- load -------------------------------------------------------------------------------------------------------------


def find(path: str | PathLike[str], warn: Callable[[str], None] = logger.warning) -> Path:
    """The checkpoint directory for a path or a name on the hub: the path itself, the model of a run, or files in the
    Hugging Face cache (hub.py). InputError if there is none."""
    directory = hub.locate(path)
    for candidate in (directory, directory / "model"):
        if (candidate / CONFIG).exists() or is_adapter(candidate):
            return candidate
        if old := find_backup(candidate):
            warn(f"{candidate}: a save was cut off; using the last good checkpoint, {old}")
            return old
    if directory.is_file():
        raise InputError(f"{directory}: a file; pass the directory that contains it")
    if not directory.exists():
        raise MissingFile(f"{directory}: no such directory; pass a checkpoint or a run")
    metadata = read_metadata(directory / METADATA_FILE)
    if metadata.get("status", "done") != "done":
        raise MissingFile(
            f"{directory}: an unfinished run, without a model yet; resume it: the same bothways {metadata['verb']} "
            "command with --resume"
        )
    raise MissingFile(f"{directory}: {CONFIG} not found; pass a checkpoint directory in the Hugging Face layout")


def load(
    path: str | PathLike[str], *, dtype: torch.dtype = torch.float32, adapter: str | PathLike[str] | None = None
) -> Checkpoint:
    """Load a checkpoint, the model of a run, a model of the hub by its name (hub.py), or an adapter with its model.

    dtype: data type of the parameters. adapter: the directory of an adapter for the model. Adapters of LoRA and biases
    alone are merged into the weights. Ignored or unusual content is logged as a warning. InputError for missing,
    malformed or unsupported files. If the checkpoint is replaced while it is read, it is read again, so that two
    checkpoints are never mixed.
    """
    if adapter is not None:
        return _load_adapter(find(adapter), load(path), dtype)
    parts, path = ("", TRANSFORMER, POOLING, DENSE), hub.locate(path)
    folders = [Path(path, above, part) for above in ("", "model") for part in parts]
    for _ in range(TRIES):
        lines: list[str] = []
        before, checkpoint, failure = stat_files(folders, FILE_ENDINGS), None, None
        try:
            checkpoint = _load(path, dtype, lines.append)
        except (InputError, OSError) as error:
            failure = error
        if stat_files(folders, FILE_ENDINGS) != before:
            continue
        for line in lines:
            logger.warning(line)
        if checkpoint is None:
            assert failure is not None
            raise failure
        return checkpoint
    raise InputError(f"{path}: replaced {TRIES} times while it was read; load it when no other process is writing it")


def _load(path: str | PathLike[str], dtype: torch.dtype, warn: Callable[[str], None]) -> Checkpoint:
    directory = find(path, warn)
    if is_adapter(directory):
        return _load_adapter(directory, None, dtype)
    file = directory / CONFIG
    hf_config: Mapping[str, Any] = read_json(file)
    stored = detect(hf_config).open(directory, hf_config)
    hf_config, pooler_act = stored.hf_config, stored.pooler_act
    family = read_family(hf_config, file)
    config, extra = family.parse_config(hf_config, file)
    if pooler_act is not None:
        if pooler_act not in NO_POOLER:
            raise InputError(
                f"{file}: pooler_act {pooler_act!r:.60} is not supported; use one of {', '.join(NO_POOLER)}"
            )
        config = config.replace(pooling="mean", pooler_act=pooler_act)
    config = config.replace(**stored.changes)
    if extra:
        warn(f"{file}: unknown keys, kept but ignored: {escape_line(shorten(sorted(extra)))}")
    labels = _read_labels(hf_config, file)
    model = stored.read(ModelPlan(directory, family, config, labels, hf_config, dtype, warn))
    multi_label = hf_config.get("problem_type") == MULTI_LABEL
    check_settings(directory, config.hidden_size, warn)
    has_labels = multi_label or model.num_outputs.get("classes", 1) > 1 or "tokens" in model.num_outputs
    if has_labels:
        _check_labels(labels, model.num_outputs.get("classes", model.num_outputs.get("tokens")), file)
    return Checkpoint(
        model=model.eval(),
        tokenizer=_read_tokenizer(directory, config.vocab_size),
        model_type=family.model_type,
        labels=labels if has_labels else (),
        multi_label=multi_label,
        pooling=read_pooling(directory),
        normalized=normalizes(directory) if stored.normalized is None else stored.normalized,
        extra=extra,
        metadata=_read_metadata(directory),
    )


def _load_adapter(directory: Path, base: Checkpoint | None, dtype: torch.dtype) -> Checkpoint:
    """An adapter with its model. base: the model in float32, so that weights are rounded once; None reads it."""
    from bothways.checkpoint.adapter import AdapterFiles

    adapted = AdapterFiles.open(directory).load(base, load)
    move_model(adapted.model, torch.device("cpu"), dtype)
    return adapted


def _check_labels(labels: Sequence[str], num_outputs: int | None, file: Path) -> None:
    if num_outputs != len(labels):  # in int8 models; in others the shapes have been compared
        raise InputError(
            f"{file}: id2label has {format_count(len(labels), 'class', 'classes')}, the weights have {num_outputs}; "
            "correct id2label"
        )
    if duplicates := [name for name, count in Counter(labels).items() if count > 1]:
        raise InputError(f"{file}: id2label has {duplicates[0]!r} more than once; give each class a different name")


def _read_tokenizer(directory: Path, vocab_size: int) -> Tokenizer | None:
    if not any((directory / name).exists() for name in TOKENIZER_FILES):
        return None
    tokenizer = Tokenizer.load(directory)
    if len(tokenizer) > vocab_size:
        raise InputError(
            f"{directory}: the tokenizer has {len(tokenizer)} entries, the model only {vocab_size}; use the "
            "tokenizer that belongs to the model"
        )
    return tokenizer.lowercased() if lowers_texts(directory) else tokenizer


def _read_metadata(directory: Path) -> dict[str, Any]:
    """The metadata, and for files in the cache of the hub the commit."""
    metadata, commit = read_metadata(directory / METADATA_FILE), hub.commit_of(directory)
    return metadata if commit is None else {**metadata, "hub": {"model": commit}}


def read_family(hf_config: Mapping[str, Any], source: object) -> FamilySpec:
    """The family of a config. InputError, naming the source, if its model_type is unknown."""
    model_type = hf_config.get("model_type", DEFAULT_MODEL_TYPE if "type_vocab_size" in hf_config else None)
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        known = ", ".join(sorted(FAMILIES))
        raise InputError(f"{source}: model_type {model_type!r:.60} is not supported (supported: {known})")
    return FAMILIES[model_type]


def _read_labels(hf_config: Mapping[str, Any], source: Path) -> tuple[str, ...]:
    names, count = hf_config.get("id2label") or {}, hf_config.get("num_labels", 2)
    if not names:
        if type(count) is not int or not 0 <= count <= MAX_LABELS:
            raise InputError(f"{source}: num_labels ({count!r:.60}) must be an integer from 0 to {MAX_LABELS:,}")
        return tuple(f"LABEL_{index}" for index in range(count))
    if isinstance(names, dict) and all(isinstance(name, str | int | float) for name in names.values()):
        labels = {key: str(name) for key, name in names.items()}
        if sorted(labels) == sorted(map(str, range(len(labels)))):
            return tuple(labels[str(index)] for index in range(len(labels)))
    example = '{"0": "neg", "1": "pos"}'
    raise InputError(f"{source}: id2label must name the classes 0, 1, 2 ..., for example {example}")


# --- save -------------------------------------------------------------------------------------------------------------


def save(checkpoint: Checkpoint, path: str | PathLike[str], weights: Format | None = None) -> None:
    """Write a checkpoint that transformers can load, and sentence-transformers if it has a pooling; of a model with an
    adapter, only the adapter and the head.

    Only Bothways loads int8 models. Everything is written next to the target and renamed, so a failed write leaves the
    old files in place. weights: their format; None means the one that the model needs. InputError if the target
    contains anything but a checkpoint, such as a run.
    """
    target = Path(path)
    check_target(target, holds=METADATA_FILE)
    if (target / METADATA_FILE).exists() and "status" in read_json(target / METADATA_FILE):
        raise InputError(f"{target}: contains a run, which would be lost; pass a new directory")
    with atomic_directory(target) as directory:
        if checkpoint.model.adapter is None:
            write_files(checkpoint, directory, weights or format_of(checkpoint))
        else:
            from bothways.checkpoint.adapter import write_adapter

            write_adapter(checkpoint, directory)


def check_target(target: Path, *, holds: str) -> None:
    """InputError if a directory is not empty and lacks a file named `holds`, or cannot be written."""
    above = next(path for path in (target, *target.absolute().parents) if path.exists())
    if not above.is_dir():
        raise InputError(f"{above}: an existing file; pass a directory")
    if above == target and (others := list_entries(target)) and not (target / holds).exists():
        raise InputError(f"{target}: contains other files ({others[0].name}); pass a new or empty directory")
    directories = (target, target.resolve().parent) if above == target else (above,)
    if not any(os.access(directory, os.W_OK | os.X_OK) for directory in directories):
        raise InputError(f"{target}: no permission to write in {above}; pass another directory")


def write(checkpoint: Checkpoint, directory: Path) -> None:
    """Write the files of a checkpoint into a directory, in the format of its model."""
    write_files(checkpoint, directory, format_of(checkpoint))
