"""Checkpoints: load, save and find a directory in the Hugging Face layout.

Loading checks every parameter; a save that fails leaves the old checkpoint intact.
"""

import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from bothways.checkpoint import hub
from bothways.checkpoint.formats import FORMATS
from bothways.checkpoint.metadata import read_metadata
from bothways.checkpoint.sentence_transformers import (
    DENSE,
    POOLING,
    TRANSFORMER,
    normalizes,
    read_linear,
    read_pooling,
    warn_of_text_changes,
    write_linear,
    write_pooling,
)
from bothways.checkpoint.state_dict import hf_state_dict, read_int8_model, read_model, shorten
from bothways.checkpoint.weights import WEIGHTS, read_weights, write_weights
from bothways.config import EncoderConfig
from bothways.errors import InputError, MissingFile, format_count
from bothways.families import DEFAULT_MODEL_TYPE, FAMILIES, FamilySpec
from bothways.io import atomic_directory, find_backup, list_entries, stat_files, write_json
from bothways.log import escape_line, logger
from bothways.model.heads import ClassificationHead
from bothways.model.int8 import int8_error, int8_state_dict, is_int8
from bothways.model.model import Model
from bothways.model.parameters import no_init
from bothways.model.pooler import NO_POOLER, unit_scale
from bothways.tokenizer.files import get_object, read_json
from bothways.tokenizer.formats import FILE_NAMES as TOKENIZER_FILES
from bothways.tokenizer.tokenizer import Tokenizer

CONFIG, METADATA_FILE = "config.json", "bothways.json"
# Int8 models have their own model_type and file name; other libraries would load random weights otherwise.
INT8, INT8_WEIGHTS = "bothways-int8", "int8.safetensors"
# A classifier on the mean of the tokens, which most families lack: stored as sentence-transformers modules.
LINEAR = "bothways-linear"
TFIDF = "bothways-tfidf"  # a linear model over TF-IDF, which has no encoder (inference/tfidf_predictor.py)
MULTI_LABEL = "multi_label_classification"
TRIES = 10  # attempts to read a checkpoint that is being replaced
HEAD_KEYS = {"architectures", "id2label", "label2id", "problem_type", "num_labels"}  # config keys of heads
FILE_ENDINGS = (".json", ".safetensors", ".bin", ".model", "vocab.txt", "merges.txt")  # files that are read
MAX_LABELS = 1_000_000


@dataclass(frozen=True, repr=False)
class Checkpoint:
    """A model with its tokenizer, labels and metadata.

    labels: names of the classes, in the order of the head's outputs; empty for regression. multi_label: a text may have
    any number of labels. pooling: how sentence vectors are pooled (mean, cls, max); None if the directory does not
    specify it. normalized: whether they are scaled to length 1. extra: unknown config keys, kept when saving. metadata:
    content of bothways.json, which records how the model was trained."""

    model: Model
    tokenizer: Tokenizer | None = None
    model_type: str = "bert"
    labels: tuple[str, ...] = ()
    multi_label: bool = False
    pooling: str | None = None
    normalized: bool = True
    extra: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        config, heads = self.model.config, ", ".join(self.model.num_outputs) or "none"
        labels = f", {format_count(len(self.labels), 'label')}" if self.labels else ""
        return (
            f"Checkpoint({self.model_type}, {format_count(config.num_hidden_layers, 'layer')} of {config.hidden_size}, "
            f"heads: {heads}{labels}, tokenizer: {self.tokenizer})"
        )

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings the model was trained with; empty if unknown."""
        settings: Mapping[str, Any] = self.metadata.get("settings") or {}
        return settings

    def need_tokenizer(self) -> Tokenizer:
        """The tokenizer. InputError if the checkpoint has none."""
        if self.tokenizer is None:
            raise InputError(
                "the checkpoint has no tokenizer files; put its tokenizer.json or vocab.txt next to the weights"
            )
        return self.tokenizer


# --- load -------------------------------------------------------------------------------------------------------------


def find(path: str | PathLike[str], warn: Callable[[str], None] = logger.warning) -> Path:
    """The checkpoint directory for a path or a name on the hub: the path itself, the model of a run, or files in the
    Hugging Face cache (hub.py). InputError if there is none."""
    directory = hub.locate(path)
    for candidate in (directory, directory / "model"):
        if (candidate / CONFIG).exists():
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


def load(path: str | PathLike[str], *, dtype: torch.dtype = torch.float32) -> Checkpoint:
    """Load a checkpoint, the model of a run, or a model of the hub by its name (hub.py).

    dtype: data type of the parameters. Ignored or unusual content is logged as a warning. InputError for missing,
    malformed or unsupported files. If the checkpoint is replaced while it is read, it is read again, so that two
    checkpoints are never mixed.
    """
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
    file = directory / CONFIG
    hf_config = read_json(file)
    if hf_config.get("model_type") == TFIDF:
        raise tfidf_error(directory, classifies=hf_config.get("problem_type") != "regression")
    is_quantized, is_linear = hf_config.get("model_type") == INT8, hf_config.get("model_type") == LINEAR
    pooler_act, read = None, read_weights
    if reader := FORMATS.get(str(hf_config.get("model_type"))):
        read = partial(reader, hf_config=hf_config)
        hf_config = {**hf_config, "model_type": get_object(hf_config, "quantization_config", file).get("model_type")}
        hf_config.pop("quantization_config")
    if is_quantized:
        quantization = get_object(hf_config, "quantization_config", file)
        pooler_act = quantization.get("pooler_act")
        hf_config = {**hf_config, "model_type": quantization.get("model_type")}
        hf_config.pop("quantization_config", None)
    if is_linear:
        pooler_act = hf_config.get("pooler_act", "none")
        head_config = {key: hf_config[key] for key in HEAD_KEYS & hf_config.keys()}
        hf_config = read_json(directory / TRANSFORMER / CONFIG) | head_config
    family = read_family(hf_config, file)
    config, extra = family.parse_config(hf_config, file)
    if pooler_act is not None:
        if pooler_act not in NO_POOLER:
            raise InputError(
                f"{file}: pooler_act {pooler_act!r:.60} is not supported; use one of {', '.join(NO_POOLER)}"
            )
        config = config.replace(pooling="mean", pooler_act=pooler_act)
    if extra:
        warn(f"{file}: unknown keys, kept but ignored: {escape_line(shorten(sorted(extra)))}")
    labels = _read_labels(hf_config, file)
    if is_quantized:
        model = read_int8_model(config, directory / INT8_WEIGHTS)
    else:
        head = family.head_names["classes"]["output"]
        tensors = read_linear(directory, head) if is_linear else read(directory)
        model = read_model(family, config, labels, hf_config, directory, tensors, dtype, warn)
        if is_linear and pooler_act != "none":
            with torch.no_grad():
                model.get_parameter("heads.classes.output.weight").div_(unit_scale(config.hidden_size))
    tokenizer = None
    if any((directory / name).exists() for name in TOKENIZER_FILES):
        tokenizer = Tokenizer.load(directory)
        if len(tokenizer) > config.vocab_size:
            raise InputError(
                f"{directory}: the tokenizer has {len(tokenizer)} entries, the model only {config.vocab_size}; use the "
                "tokenizer that belongs to the model"
            )
        warn_of_text_changes(directory, tokenizer, warn)
    multi_label = hf_config.get("problem_type") == MULTI_LABEL
    has_labels = multi_label or model.num_outputs.get("classes", 1) > 1 or "tokens" in model.num_outputs
    num_outputs = model.num_outputs.get("classes", model.num_outputs.get("tokens"))
    if has_labels and num_outputs != len(labels):  # in int8 models; in others the shapes have been compared
        raise InputError(
            f"{file}: id2label has {format_count(len(labels), 'class', 'classes')}, the weights have {num_outputs}; "
            "correct id2label"
        )
    if has_labels and (duplicates := [name for name, count in Counter(labels).items() if count > 1]):
        raise InputError(f"{file}: id2label has {duplicates[0]!r} more than once; give each class a different name")
    return Checkpoint(
        model=model.eval(),
        tokenizer=tokenizer,
        model_type=family.model_type,
        labels=labels if has_labels else (),
        multi_label=multi_label,
        pooling=read_pooling(directory),
        normalized=pooler_act != "none" if is_linear else normalizes(directory),
        extra=extra,
        metadata=_read_metadata(directory),
    )


def _read_metadata(directory: Path) -> dict[str, Any]:
    """The metadata, and for files in the cache of the hub the commit."""
    metadata, commit = read_metadata(directory / METADATA_FILE), hub.commit_of(directory)
    return metadata if commit is None else {**metadata, "hub": {"model": commit}}


def tfidf_error(directory: Path, *, classifies: bool) -> InputError:
    """The error of a use for which a TF-IDF model lacks an encoder."""
    kind = "classifies texts" if classifies else "predicts a number for each text (regression)"
    return InputError(
        f"{directory}: a TF-IDF model, which {kind} and has no encoder; use it with predict, evaluate or info, or pass "
        "a checkpoint with an encoder"
    )


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


# --- check ------------------------------------------------------------------------------------------------------------


def check_not_int8(model: Model) -> None:
    """InputError if a model has int8 layers, which cannot be trained or changed."""
    if is_int8(model):
        raise int8_error()


# --- save -------------------------------------------------------------------------------------------------------------


def save(checkpoint: Checkpoint, path: str | PathLike[str]) -> None:
    """Write a checkpoint that transformers can load, and sentence-transformers if it has a pooling.

    Only Bothways loads int8 models. Everything is written next to the target and renamed, so a failed write leaves the
    old files in place. InputError if the target contains anything but a checkpoint, such as a run.
    """
    target = Path(path)
    check_target(target, holds=METADATA_FILE)
    if (target / METADATA_FILE).exists() and "status" in read_json(target / METADATA_FILE):
        raise InputError(f"{target}: contains a run, which would be lost; pass a new directory")
    with atomic_directory(target) as directory:
        write(checkpoint, directory)


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
    """Write the files of a checkpoint into a directory."""
    model, family = checkpoint.model, FAMILIES[checkpoint.model_type]
    architecture = family.architectures.get(frozenset(model.num_outputs))
    is_linear = "classes" in model.num_outputs and model.config.pooler_act in NO_POOLER
    if architecture is None:
        heads = ", ".join(sorted(model.num_outputs))
        raise InputError(f"{checkpoint.model_type} with heads {heads} cannot be saved in the Hugging Face layout")
    tokenizer = checkpoint.tokenizer
    specials = _special_token_ids(tokenizer)
    config = {**checkpoint.extra, "architectures": [architecture], **specials, **family.to_hf_config(model.config)}
    if tokenizer and not model.config.position_offset:  # RoBERTa's positions start behind this id
        config["pad_token_id"] = tokenizer.pad_id
    num_labels = model.num_outputs.get("classes", model.num_outputs.get("tokens", 0))
    if labels := checkpoint.labels or tuple(f"LABEL_{index}" for index in range(num_labels)):
        config["id2label"] = {str(index): label for index, label in enumerate(labels)}
        config["label2id"] = {label: index for index, label in enumerate(labels)}
    if "classes" in model.num_outputs:
        single = "single_label_classification" if checkpoint.labels or num_labels > 1 else "regression"
        config["problem_type"] = MULTI_LABEL if checkpoint.multi_label else single
    if is_int8(model):
        pooler_act = {"pooler_act": model.config.pooler_act} if is_linear else {}
        config["quantization_config"] = {"quant_method": INT8, "model_type": config["model_type"], **pooler_act}
        config["model_type"] = INT8
        write_weights(int8_state_dict(model), directory / INT8_WEIGHTS)
    elif is_linear:
        config = {key: config[key] for key in sorted(HEAD_KEYS & config.keys())}
        config |= {"model_type": LINEAR, "pooler_act": model.config.pooler_act}
        (directory / TRANSFORMER).mkdir()
        write(encoder_only(checkpoint), directory / TRANSFORMER)
        head = model.heads["classes"]
        assert isinstance(head, ClassificationHead)
        write_linear(directory, head.output, model.config)
    else:
        prefix = "" if architecture.endswith("Model") else family.prefix
        write_weights(hf_state_dict(model, family, prefix), directory / WEIGHTS)
    write_json(directory / "config.json", config)
    write_json(directory / METADATA_FILE, {"format": 1, **checkpoint.metadata})
    if tokenizer:
        tokenizer.save(directory, model.config.max_position_embeddings, segments=model.config.type_vocab_size)
    if checkpoint.pooling and (not is_linear or is_int8(model)):
        write_pooling(directory, checkpoint.pooling, checkpoint.normalized, model.config)


def _special_token_ids(tokenizer: Tokenizer | None) -> dict[str, int | None]:
    """The ids of the tokenizer's special tokens for config.json; None for those that are unknown.

    If they were left out, transformers would take those of its class, which a smaller vocabulary does not have."""
    ids: dict[str, int | None] = dict.fromkeys(("bos", "eos", "cls", "sep", "mask"))
    if tokenizer:
        ids |= {"cls": tokenizer.cls_id, "sep": tokenizer.sep_id, "mask": tokenizer.mask_id}
        if tokenizer.backend.has_bos_and_eos:
            ids |= {"bos": tokenizer.cls_id, "eos": tokenizer.sep_id}
    return {f"{name}_token_id": index for name, index in ids.items()}


def encoder_only(checkpoint: Checkpoint) -> Checkpoint:
    """The same encoder without heads, labels, pooling and metadata."""
    with no_init():
        model = Model(pooling_config(checkpoint.model.config, checkpoint.model_type, None))
    model.encoder = checkpoint.model.encoder
    return replace(checkpoint, model=model, labels=(), multi_label=False, pooling=None, metadata={})


def pooling_config(config: EncoderConfig, model_type: str, pooling: str | None) -> EncoderConfig:
    """The config with a classification head that reads this pooling ("cls", "mean", "unit", "distance",
    "pair"); None: the family's own."""
    family = FAMILIES[model_type]
    if config.pooler_act in NO_POOLER:  # back to the family's own
        config = config.replace(pooling="first", pooler_act=family.defaults.get("pooler_act", "tanh"))
    if pooling is None:
        return config
    if pooling in ("distance", "pair") or (pooling != "cls" and not family.supports_mean_pooling):
        return config.replace(pooling="mean", pooler_act="none" if pooling == "mean" else pooling)
    return config.replace(pooling="first" if pooling == "cls" else "mean")
