"""A checkpoint: a directory in the Hugging Face layout. Loaded with every parameter checked, saved so that a failed
write leaves the old one whole."""

import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bothways.checkpoint.metadata import read_metadata
from bothways.checkpoint.sentence_transformers import (
    DENSE,
    POOLING,
    TRANSFORMER,
    normalizes,
    read_pooling,
    stored_linear,
    warn_of_other_texts,
    write_linear,
    write_pooling,
)
from bothways.checkpoint.weights import WEIGHTS, is_finite, num_bytes, stored, stored_weights, write_weights
from bothways.config import EncoderConfig
from bothways.errors import InputError, MissingFile
from bothways.families import DEFAULT_MODEL_TYPE, FAMILIES, FamilySpec
from bothways.families.spec import CLASS_SUFFIXES
from bothways.io import atomic_directory, find_backup, list_entries, stat_files, write_json
from bothways.log import logger
from bothways.model.heads import ClassificationHead
from bothways.model.int8 import from_int8_state, int8_state, is_int8, refusal
from bothways.model.model import OUTPUTS, Model, initialize
from bothways.model.parameters import no_init
from bothways.model.pooler import PLAIN, POOLED_HEADS, initialize_near_identity, unit_scale
from bothways.tokenizer.files import get_object, read_json
from bothways.tokenizer.formats import FILE_NAMES as TOKENIZER_FILES
from bothways.tokenizer.tokenizer import Tokenizer

CONFIG, METADATA_FILE = "config.json", "bothways.json"
# What other libraries would load as a model with random weights, had config and weights their usual names.
INT8, INT8_WEIGHTS = "bothways-int8", "int8.safetensors"
# Classes from the mean of the tokens, which most families' layouts lack: written as sentence-transformers modules.
LINEAR = "bothways-linear"
# In files, but not parameters of ours: buffers, and copies of the token table and of the vocabulary bias.
MULTI_LABEL = "multi_label_classification"
BIAS, BIAS_COPY = "heads.masked_words.bias", "decoder.bias"
TABLE_COPIES = ("decoder.weight", "vocab_projector.weight", "lm_head.weight")
DERIVED = ("position_ids", "token_type_ids", BIAS_COPY, *TABLE_COPIES)
TRIES = 10  # to read a checkpoint that is replaced meanwhile
OF_HEAD = {"architectures", "id2label", "label2id", "problem_type", "num_labels"}  # of a config's keys
READ = (
    ".json",
    ".safetensors",
    ".bin",
    ".model",
    "vocab.txt",
    "merges.txt",
)  # ends of the names of files that are read
MOST_LABELS = 1_000_000


@dataclass(frozen=True)
class Checkpoint:
    """A model with all that is kept beside it.

    labels: names of the classes, in the order of the head's outputs; none for regression. several: whether a text may
    have several of them, or none. pooling: how a text's vector is made (mean, cls, max), as the directory says;
    normalized: whether it is then scaled to length 1. extra: config keys nobody here knows, kept. made: how it came to
    be (bothways.json).
    """

    model: Model
    tokenizer: Tokenizer | None = None
    model_type: str = "bert"
    labels: tuple[str, ...] = ()
    multi_label: bool = False
    pooling: str | None = None
    normalized: bool = True
    extra: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings it was trained with, as far as it says."""
        settings: Mapping[str, Any] = self.metadata.get("settings") or {}
        return settings

    def need_tokenizer(self) -> Tokenizer:
        """The tokenizer. InputError if the checkpoint has none."""
        if self.tokenizer is None:
            raise InputError(
                "the checkpoint has no tokenizer files; put its tokenizer.json or vocab.txt beside the weights"
            )
        return self.tokenizer


POOLER = "pooler.dense.weight"


# --- load -------------------------------------------------------------------------------------------------------------


def find(path: str | PathLike[str], warn: Callable[[str], None] = logger.warning) -> Path:
    """The checkpoint directory that a path means: itself, or the model of a run. InputError where there is none."""
    directory = Path(path)
    for candidate in (directory, directory / "model"):
        if (candidate / CONFIG).exists():
            return candidate
        if old := find_backup(candidate):
            warn(f"{candidate}: a save was cut off; using the last good checkpoint, {old}")
            return old
    if directory.is_file():
        raise InputError(f"{directory}: a file; name the directory that it is in")
    if not directory.exists():
        raise MissingFile(f"{directory}: no such directory; name a checkpoint or a run")
    made = read_metadata(directory / METADATA_FILE)
    if made.get("status", "done") != "done":
        raise MissingFile(
            f"{directory}: its run is not done and has no model yet; go on with it: the same bothways {made['verb']} "
            "command with --resume"
        )
    raise MissingFile(f"{directory}: no {CONFIG} there; name a checkpoint directory in the Hugging Face layout")


def load(path: str | PathLike[str], *, dtype: torch.dtype = torch.float32) -> Checkpoint:
    """Read a checkpoint. InputError names what is missing, misshapen or unsupported; a warning is logged for what is
    unusual. A checkpoint that is replaced meanwhile is read again, so that no two are mixed."""
    parts = ("", TRANSFORMER, POOLING, DENSE)
    folders = [Path(path, above, part) for above in ("", "model") for part in parts]
    for _ in range(TRIES):
        lines: list[str] = []
        before, checkpoint, wrong = stat_files(folders, READ), None, None
        try:
            checkpoint = _load(path, dtype, lines.append)
        except (InputError, OSError) as error:
            wrong = error
        if stat_files(folders, READ) != before:
            continue
        for line in lines:
            logger.warning(line)
        if checkpoint is None:
            assert wrong is not None
            raise wrong
        return checkpoint
    raise InputError(f"{path}: replaced {TRIES} times while it was read; load it when nothing writes it")


def _load(path: str | PathLike[str], dtype: torch.dtype, warn: Callable[[str], None]) -> Checkpoint:
    directory = find(path, warn)
    file = directory / CONFIG
    theirs = read_json(file)
    quantized, linear, plain = theirs.get("model_type") == INT8, theirs.get("model_type") == LINEAR, None
    if quantized:
        told = get_object(theirs, "quantization_config", file)
        plain = told.get("pooler_act")
        theirs = {**theirs, "model_type": told.get("model_type")}
        theirs.pop("quantization_config", None)
    if linear:
        plain = theirs.get("pooler_act", "none")
        theirs = read_json(directory / TRANSFORMER / CONFIG) | {key: theirs[key] for key in OF_HEAD & theirs.keys()}
    family = read_family(theirs, file)
    config, extra = family.parse_config(theirs, file)
    if plain is not None:
        if plain not in PLAIN:
            raise InputError(f"{file}: pooler_act {plain!r:.60} is not supported; one of {', '.join(PLAIN)} is")
        config = config.replace(pooling="mean", pooler_act=plain)
    if extra:
        warn(f"{file}: unknown keys kept as they are: {_some(sorted(extra))}")
    labels = _labels(theirs, file)
    if quantized:
        model = _read_int8(config, directory)
    else:
        state = (
            stored_linear(directory, family.head_names["classes"]["output"]) if linear else stored_weights(directory)
        )
        model = _read(family, config, labels, theirs, directory, state, dtype, warn)
        if linear and plain != "none":
            with torch.no_grad():
                model.get_parameter("heads.classes.output.weight").div_(unit_scale(config.hidden_size))
    tokenizer = None
    if any((directory / name).exists() for name in TOKENIZER_FILES):
        tokenizer = Tokenizer.load(directory)
        if len(tokenizer) > config.vocab_size:
            raise InputError(
                f"{directory}: the tokenizer has {len(tokenizer)} entries, the model {config.vocab_size}; they "
                f"do not belong together"
            )
        warn_of_other_texts(directory, tokenizer, warn)
    multi_label = theirs.get("problem_type") == MULTI_LABEL
    has_labels = multi_label or model.num_outputs.get("classes", 1) > 1 or "tokens" in model.num_outputs
    outputs = model.num_outputs.get("classes", model.num_outputs.get("tokens"))
    if has_labels and outputs != len(labels):  # of int8 models: the others' shapes were compared
        raise InputError(f"{file}: id2label names {len(labels)} classes, the weights have {outputs}; mend it")
    if has_labels and (twice := [name for name, number in Counter(labels).items() if number > 1]):
        raise InputError(f"{file}: id2label names {twice[0]!r} more than once; give each class a name of its own")
    return Checkpoint(
        model=model.eval(),
        tokenizer=tokenizer,
        model_type=family.model_type,
        labels=labels if has_labels else (),
        multi_label=multi_label,
        pooling=read_pooling(directory),
        normalized=plain != "none" if linear else normalizes(directory),
        extra=extra,
        metadata=read_metadata(directory / METADATA_FILE),
    )


def read_family(theirs: Mapping[str, Any], source: object) -> FamilySpec:
    kind = theirs.get("model_type", DEFAULT_MODEL_TYPE if "type_vocab_size" in theirs else None)
    if not isinstance(kind, str) or kind not in FAMILIES:
        known = ", ".join(sorted(FAMILIES))
        raise InputError(f"{source}: model_type {kind!r:.60} is not supported; known are {known}")
    return FAMILIES[kind]


def _read(
    family: FamilySpec, config: EncoderConfig, labels: tuple[str, ...], theirs: Mapping[str, Any], directory: Path,
    state: Mapping[str, Tensor], dtype: torch.dtype, warn: Callable[[str], None],
) -> Model:  # fmt: skip
    model = _build(family, config, state, labels, theirs, directory, dtype)
    _fill(model, family, state, directory, warn)
    file, outputs = directory / "config.json", model.num_outputs.get("classes", 1)
    if theirs.get("problem_type") == "regression" and outputs > 1:
        raise InputError(f"{file}: a regression with {outputs} outputs is not supported; with one it is")
    copies = [name for name in state if name.endswith(TABLE_COPIES)]  # equal to the table, as is known by now
    if theirs.get("tie_word_embeddings") is False and "masked_words" in model.num_outputs and not copies:
        raise InputError(f"{file}: untied vocabulary scores (tie_word_embeddings) are not supported; tied ones are")
    return model


def _read_int8(config: EncoderConfig, directory: Path) -> Model:
    file = directory / INT8_WEIGHTS
    if not file.exists():
        raise MissingFile(f"{file}: no such file, though config.json says int8; quantize the model again")
    state = dict(stored(file))
    if broken := [name for name, value in state.items() if not is_finite(value)]:
        raise _not_finite(file, broken)
    try:
        return from_int8_state(config, state)
    except InputError as error:
        raise InputError(f"{file}: does not belong to config.json ({error}); quantize the model again") from None


def _labels(theirs: Mapping[str, Any], source: Path) -> tuple[str, ...]:
    names, number = theirs.get("id2label") or {}, theirs.get("num_labels", 2)
    if not names:
        if type(number) is not int or not 0 <= number <= MOST_LABELS:
            raise InputError(f"{source}: num_labels ({number!r:.60}) must be a whole number up to {MOST_LABELS:,}")
        return tuple(f"LABEL_{index}" for index in range(number))
    if isinstance(names, dict) and all(isinstance(name, str | int | float) for name in names.values()):
        labels = {key: str(name) for key, name in names.items()}
        if sorted(labels) == sorted(map(str, range(len(labels)))):
            return tuple(labels[str(index)] for index in range(len(labels)))
    way = 'such as {"0": "neg", "1": "pos"}'
    raise InputError(f"{source}: id2label must name a class for each number from 0, {way}; mend it")


def _build(
    family: FamilySpec, config: EncoderConfig, state: Mapping[str, Tensor], labels: tuple[str, ...],
    theirs: Mapping[str, Any], directory: Path, dtype: torch.dtype,
) -> Model:  # fmt: skip
    """A model without values, with the heads whose parameters are in the file."""
    stored = _stored_heads(family, state, str(theirs.get("architectures")))
    sizes = {**OUTPUTS, "classes": len(labels), "tokens": len(labels)}
    own = family.hf_names(POOLER, stored)
    pooler = any(name in state or name.removeprefix(family.prefix) in state for name in own)
    if not pooler and stored & set(POOLED_HEADS) and config.pooler_act not in PLAIN:
        raise InputError(f"{directory}: a head for texts is there, but its pooler is missing")
    try:
        with no_init(dtype, most=num_bytes(state)):
            model = Model(config, {name: sizes[name] for name in family.head_names if name in stored}, pooler=pooler)
    except InputError as error:
        raise InputError(f"{directory / CONFIG}: {error}; config and weights do not belong together") from None
    for head in model.heads.values():
        if isinstance(head, ClassificationHead):
            head.output.to(torch.promote_types(dtype, torch.float32))  # as `moving.move` leaves it
    return model


def _stored_heads(family: FamilySpec, state: Mapping[str, Tensor], architecture: str) -> set[str]:
    """The heads of which there is a parameter that is theirs alone; where several share all, as classes and tokens do
    in BERT's layout, the architecture tells, or it is the first."""
    poolers = {
        name for table in family.head_names.values() for ours, name in table.items() if ours.startswith("pooler.")
    }
    own = {
        head: {name if ours == "bias" else f"{name}.weight" for ours, name in table.items() if name not in poolers}
        for head, table in family.head_names.items()
    }
    stored: dict[frozenset[str], str] = {}
    for head, names in own.items():
        if any(name in state for name in names) and (
            frozenset(names) not in stored or f"For{CLASS_SUFFIXES.get(head)}" in architecture
        ):
            stored[frozenset(names)] = head
    return set(stored.values())


def _fill(
    model: Model, family: FamilySpec, state: Mapping[str, Tensor], directory: Path, warn: Callable[[str], None]
) -> None:
    """Copy every parameter from the file into the model; name all that are missing, misshapen or left over."""
    missing, misshapen, broken, used = [], [], [], set[str]()
    prefixed = any(name.startswith(family.prefix) for name in state)  # an encoder alone is stored without
    for ours, target in model.state_dict().items():
        names = family.hf_names(ours, model.num_outputs)
        names = tuple(name if prefixed else name.removeprefix(family.prefix) for name in names)
        if ours == BIAS and names[0] not in state:
            names = (names[0].removesuffix("bias") + BIAS_COPY,)
        used.update(names)
        if absent := [name for name in names if name not in state]:
            missing += absent
            continue
        for name, part in zip(names, target.chunk(len(names)), strict=True):
            value = state[name]
            if value.shape != part.shape:
                misshapen.append(f"{name} is {list(value.shape)}, config.json asks for {list(part.shape)}")
                continue
            if not value.is_floating_point():
                misshapen.append(f"{name} is {value.dtype}, not floating point")
                continue
            part.copy_(value)
            if not is_finite(part):
                broken.append(name)
    file = directory / WEIGHTS
    if missing:
        raise InputError(f"{file}: missing parameters: {_some(missing)}; fetch the checkpoint again")
    if misshapen:
        raise InputError(
            f"{file}: parameters of another shape: {_some(misshapen)}; config and weights do not belong together"
        )
    if broken:
        raise _not_finite(file, broken)
    left = [name for name in state if name not in used and not name.endswith(DERIVED)]
    if left:
        warn(f"{file}: not read, since nothing here uses them: {_some(left)}")
    if "masked_words" in model.num_outputs:
        _refuse_untied(model, {name: state[name] for name in state if name not in used}, file)


def _not_finite(file: Path, names: list[str]) -> InputError:
    return InputError(f"{file}: NaN or infinite numbers in {_some(names)}; fetch the checkpoint, or train it, again")


def _refuse_untied(model: Model, left: Mapping[str, Tensor], file: Path) -> None:
    """InputError where what transformers would score words with is not what is read."""
    found = model.state_dict()
    for origin, name_of, copies in (
        (found["encoder.embeddings.words.weight"], "token table", TABLE_COPIES),
        (found[BIAS], "vocabulary bias", BIAS_COPY),
    ):
        for name in (name for name in left if name.endswith(copies)):
            if not torch.equal(left[name].to(origin.dtype), origin):
                raise InputError(
                    f"{file}: {name} differs from the {name_of}; untied vocabulary scores are not supported"
                )


def _some(names: list[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


# --- change -----------------------------------------------------------------------------------------------------------


def with_head(
    checkpoint: Checkpoint, head: str, labels: tuple[str, ...], *, seed: int, num_outputs: int | None = None,
    multi_label: bool = False, dropout: float | None = None, pooling: str | None = None, near_identity: bool = False,
    layers: int | None = None,
) -> Checkpoint:  # fmt: skip
    """The same encoder with one new head, initialised from the seed; what is new is said. InputError of int8 models.

    pooling: what a head for classes reads, "cls" (the state of the first token, through a pooler), "mean" (of all
    tokens; without a pooler where the family's layout has none for it) "unit" (such a mean, scaled to one length) or
    "distance" (of such means of a pair's texts).
    None: what the family's own head reads.
    near_identity: a pooler that the checkpoint does not bring begins so that a linear layer behind it can do what it
    could do without.
    layers: keep only the first so many.
    """
    check_not_int8(checkpoint.model)
    old = checkpoint.model
    config = reading(old.config, checkpoint.model_type, pooling if head == "classes" else None)
    if dropout is not None:
        config = config.replace(
            hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout, classifier_dropout=dropout
        )
    if layers is not None:
        config = config.replace(num_hidden_layers=layers)
    model = Model(config, {head: num_outputs or len(labels)})  # with a pooler only where the head reads it
    generator = torch.Generator().manual_seed(seed)
    new = [f"head {head!r} ({num_outputs or len(labels)} outputs)"]
    initialize(model.heads, config.initializer_range, generator)
    kept = {name: value for name, value in old.state_dict().items() if name.startswith("encoder.")}
    if model.pooler is not None:
        # By its published name: RoBERTa's for classes is not its encoder's, ModernBERT's is the masked words' own map.
        names_of = FAMILIES[checkpoint.model_type].hf_names
        stored = {names_of(name, old.num_outputs): value for name, value in old.state_dict().items()}
        wanted = {name: names_of(name, (head,)) for name in model.state_dict() if name.startswith("pooler.")}
        if all(names in stored for names in wanted.values()):
            kept |= {name: stored[names] for name, names in wanted.items()}
        else:
            new.append("pooler")
            initialize(model.pooler, config.initializer_range, generator)
            if near_identity:
                initialize_near_identity(model.pooler)
    model.load_state_dict(kept, strict=False)
    logger.info(f"new, to be trained: {', '.join(new)}")
    return replace(checkpoint, model=model, labels=labels, multi_label=multi_label, metadata={})


def reading(config: EncoderConfig, model_type: str, pooling: str | None) -> EncoderConfig:
    """The config of a model whose head for classes reads this pooling, as in `with_head`."""
    fields = FAMILIES[model_type].defaults
    if config.pooler_act in PLAIN:  # as the family has it, before another pooling is asked for
        config = config.replace(pooling="first", pooler_act=fields.get("pooler_act", "tanh"))
    if pooling is None:
        return config
    if pooling == "distance" or (pooling != "cls" and not FAMILIES[model_type].supports_mean_pooling):
        return config.replace(pooling="mean", pooler_act="none" if pooling == "mean" else pooling)
    return config.replace(pooling="first" if pooling == "cls" else "mean")


def check_head_supported(checkpoint: Checkpoint, head: str, source: object) -> None:
    """InputError if there is no layout in which the family could be saved with this head."""
    able = sorted(kind for kind, family in FAMILIES.items() if frozenset({head}) in family.architectures)
    if checkpoint.model_type not in able:
        raise InputError(
            f"{source}: a head for {head} is not supported for {checkpoint.model_type}; it is for {', '.join(able)}"
        )


def check_not_int8(model: Model) -> None:
    """InputError if a model has int8 layers, which can only be used, not changed."""
    if is_int8(model):
        raise refusal()


# --- save -------------------------------------------------------------------------------------------------------------


def save(checkpoint: Checkpoint, path: str | PathLike[str]) -> None:
    """Write a directory that transformers (and sentence-transformers, where it pools) load with no help; of an int8
    model one that only Bothways loads.

    Everything is written beside the target and moved into place, so a failed write leaves what stood there. InputError
    where the target holds something that is not a checkpoint of ours: a whole run, too.
    """
    target = Path(path)
    check_target(target, holds=METADATA_FILE)
    if (target / METADATA_FILE).exists() and "status" in read_json(target / METADATA_FILE):
        raise InputError(f"{target}: holds a run, which would be lost; name a new directory")
    with atomic_directory(target) as beside:
        _write(checkpoint, beside)


def check_target(target: Path, *, holds: str) -> None:
    """InputError if a directory is in use for something else, told by a file that ours hold, or cannot be written."""
    above = next(place for place in (target, *target.absolute().parents) if place.exists())
    if not above.is_dir():
        raise InputError(f"{above}: a file stands there; name a directory")
    if above == target and (others := list_entries(target)) and not (target / holds).exists():
        raise InputError(f"{target}: holds something else already ({others[0].name}); name a new or empty directory")
    places = (target, target.resolve().parent) if above == target else (above,)
    if not any(os.access(place, os.W_OK | os.X_OK) for place in places):
        raise InputError(f"{target}: {above} cannot be written; name another directory")


def _write(checkpoint: Checkpoint, directory: Path) -> None:
    model, family = checkpoint.model, FAMILIES[checkpoint.model_type]
    architecture = family.architectures.get(frozenset(model.num_outputs))
    linear = "classes" in model.num_outputs and model.config.pooler_act in PLAIN
    if architecture is None:
        raise InputError(f"{checkpoint.model_type} with heads {sorted(model.num_outputs)} has no layout to be saved in")
    own = checkpoint.tokenizer
    specials = {"cls_token_id": own.cls_id, "sep_token_id": own.sep_id} if own else {}
    config = {**checkpoint.extra, "architectures": [architecture], **specials, **family.to_hf_config(model.config)}
    num_labels = model.num_outputs.get("classes", model.num_outputs.get("tokens", 0))
    if labels := checkpoint.labels or tuple(f"LABEL_{index}" for index in range(num_labels)):
        config["id2label"] = {str(index): label for index, label in enumerate(labels)}
        config["label2id"] = {label: index for index, label in enumerate(labels)}
    if "classes" in model.num_outputs:
        one = "single_label_classification" if checkpoint.labels or num_labels > 1 else "regression"
        config["problem_type"] = MULTI_LABEL if checkpoint.multi_label else one
    if is_int8(model):
        mark = {"pooler_act": model.config.pooler_act} if linear else {}
        config["quantization_config"] = {"quant_method": INT8, "model_type": config["model_type"], **mark}
        config["model_type"] = INT8
        write_weights(int8_state(model), directory / INT8_WEIGHTS)
    elif linear:
        config = {key: config[key] for key in sorted(OF_HEAD & config.keys())}
        config |= {"model_type": LINEAR, "pooler_act": model.config.pooler_act}
        (directory / TRANSFORMER).mkdir()
        _write(encoder_only(checkpoint), directory / TRANSFORMER)
        head = model.heads["classes"]
        assert isinstance(head, ClassificationHead)
        write_linear(directory, head.output, model.config)
    else:
        prefix = "" if architecture.endswith("Model") else family.prefix
        write_weights(hf_state_dict(model, family, prefix), directory / WEIGHTS)
    write_json(directory / "config.json", config)
    write_json(directory / METADATA_FILE, {"format": 1, **checkpoint.metadata})
    if own:
        own.save(directory, model.config.max_position_embeddings, segments=model.config.type_vocab_size)
    if checkpoint.pooling and (not linear or is_int8(model)):
        write_pooling(directory, checkpoint.pooling, checkpoint.normalized, model.config)


def encoder_only(checkpoint: Checkpoint) -> Checkpoint:
    """The same encoder without any head, and without what is said of one."""
    with no_init():
        bare = Model(reading(checkpoint.model.config, checkpoint.model_type, None))
    bare.encoder = checkpoint.model.encoder
    return replace(checkpoint, model=bare, labels=(), multi_label=False, pooling=None, metadata={})


def hf_state_dict(model: Model, family: FamilySpec, prefix: str) -> dict[str, Tensor]:
    """Our parameters (or gradients) by their names, stacked ones taken apart."""
    state = {}
    for ours, value in model.state_dict().items():
        names = family.hf_names(ours, model.num_outputs)
        if not names:
            raise InputError(
                f"{ours} has no name in the layout of {family.model_type}; the model cannot be saved in it"
            )
        for name, part in zip(names, value.chunk(len(names)), strict=True):
            renamed = prefix + name.removeprefix(family.prefix) if name.startswith(family.prefix) else name
            state[renamed] = part.detach().float().cpu().contiguous().clone()
    return state
