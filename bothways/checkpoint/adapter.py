"""Adapter directories: the trained parameters beside a model, and the way to it.

LoRA is in the layout of peft: `adapter_config.json`, and `adapter_model.safetensors` with A and B by Hugging Face's
names and the head if that layout has it. Other kinds, and heads that the layout lacks, are in `adapter.safetensors` by
our names. `bothways.json` says under "adapter" what the kind, the head and the labels are; a directory that peft has
written lacks it.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bothways.adapters.install import fingerprint_encoder, install, merge, own_state
from bothways.adapters.lora import LoraLinear
from bothways.adapters.spec import AdapterSpec, check_supported
from bothways.checkpoint.contents import ADAPTER_CONFIG, METADATA_FILE, Checkpoint, is_adapter
from bothways.checkpoint.metadata import read_metadata
from bothways.checkpoint.state_dict import BIAS, BIAS_COPY, TABLE_COPIES, find_heads, not_finite_error, shorten
from bothways.checkpoint.weights import is_finite, open_safetensors, write_weights
from bothways.config import EncoderConfig
from bothways.errors import InputError, MissingFile
from bothways.families import FAMILIES, FamilySpec
from bothways.families.spec import CLASS_SUFFIXES
from bothways.io import get_object, read_json, write_json
from bothways.model.heads import ClassificationHead
from bothways.model.model import NUM_OUTPUTS, Model
from bothways.model.modules import share
from bothways.model.parameters import no_init
from bothways.model.pooler import NO_POOLER

PEFT_WEIGHTS, OWN_WEIGHTS = "adapter_model.safetensors", "adapter.safetensors"
PREFIX = "base_model.model."  # of names in peft's files
TASK_TYPES = {"classes": "SEQ_CLS", "tokens": "TOKEN_CLS", "spans": "QUESTION_ANS"}  # peft's, by head
# Keys of adapter_config.json that do not change the result, or repeat what the tensors show (which modules).
IGNORED_KEYS = frozenset(
    "adapter_type auto_mapping base_model_name_or_path corda_config eva_config exclude_modules inference_mode"
    " layers_pattern layers_to_transform loftq_config lora_dropout lora_ga_config megatron_core modules_to_save"
    " peft_type peft_version qalora_group_size readers revision runtime_config target_modules task_type".split()
)
SCALE_KEYS = frozenset({"alpha_pattern", "lora_alpha", "r", "rank_pattern"})  # read and checked with the tensors
SUPPORTED_VALUES: dict[str, tuple[Any, ...]] = {
    "bias": ("none", "all", "lora_only"),
    "init_lora_weights": (True, False, "gaussian", "eva", "orthogonal"),  # others change the model's weights as well
    "use_rslora": (True, False),
}
DEFAULT_SCALE = 8  # peft's rank, and its alpha
MAX_RANK = 4096
LORA_PART = re.compile(r"(.*)\.(lora_(?:embedding_)?[AB])(?:\.weight)?")
MAX_CHOICES, MAX_PATTERN = 4, 200  # groups and repetitions, and length, of a pattern that is compared with names
TABLE = "encoder.embeddings.words.weight"
BUFFERS = ("position_ids", "token_type_ids")  # of embeddings that were trained as a whole


# --- writing ----------------------------------------------------------------------------------------------------------


def write_adapter(checkpoint: Checkpoint, directory: Path) -> None:
    """Write the adapter of a checkpoint's model and its head into a directory."""
    model, family = checkpoint.model, FAMILIES[checkpoint.model_type]
    spec: AdapterSpec = model.adapter
    config: dict[str, Any] = {"base_model_name_or_path": spec.base}
    state = {name: value.detach().float().cpu().contiguous() for name, value in own_state(model).items()}
    if spec.kind == "lora":
        stored = _head_names(checkpoint)
        prefix = PREFIX if stored and model.num_outputs else PREFIX + family.prefix
        tensors, targets = {}, []
        for name, part in model.named_modules():
            if isinstance(part, LoraLinear):
                hf_names = family.hf_names(f"{name}.weight", ())
                downs = state.pop(f"{name}.lora_down").chunk(len(part.adapted))
                for index, down, up in zip(part.adapted, downs, state.pop(f"{name}.lora_up"), strict=True):
                    module = hf_names[index].removesuffix(".weight")
                    targets.append(module.removeprefix(family.prefix))
                    tensors[f"{PREFIX}{module}.lora_A.weight"] = down
                    tensors[f"{PREFIX}{module}.lora_B.weight"] = up
        tensors |= {f"{PREFIX}{hf_name}": state.pop(name) for name, hf_name in stored.items()}
        modules = sorted({hf_name.removeprefix(family.prefix).split(".")[0] for hf_name in stored.values()})
        if prefix != PREFIX:
            tensors = {f"{PREFIX}{name.removeprefix(prefix)}": value for name, value in tensors.items()}
        write_weights({name: value.contiguous().clone() for name, value in tensors.items()}, directory / PEFT_WEIGHTS)
        heads = [TASK_TYPES[head] for head in model.num_outputs if head in TASK_TYPES and stored]
        config |= {
            "peft_type": "LORA",
            "task_type": heads[0] if heads else "FEATURE_EXTRACTION",
            "r": spec.rank,
            "lora_alpha": spec.alpha,
            "lora_dropout": 0.0,
            "target_modules": targets,
            "modules_to_save": modules or None,
            "bias": "none",
            "inference_mode": True,
        }
    else:
        config["adapter_type"] = spec.kind
    if line := readers(checkpoint):
        config["readers"] = line
    if state:
        write_weights({name: value.clone() for name, value in state.items()}, directory / OWN_WEIGHTS)
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


def readers(checkpoint: Checkpoint) -> str | None:
    """A line for an adapter that peft does not compute whole over transformers' model; None for all others."""
    model, family = checkpoint.model, FAMILIES[checkpoint.model_type]
    if model.adapter.kind != "lora":
        return f"only Bothways reads an adapter of this kind ({model.adapter.kind})"
    if model.num_outputs and not _head_names(checkpoint):
        way_out = "; --pooling cls gives a head that peft reads too" if "classes" in model.num_outputs else ""
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
    return {} if any(len(found) != 1 for found in names.values()) else {name: found[0] for name, found in names.items()}


# --- reading ----------------------------------------------------------------------------------------------------------


def find_adapter(directory: Path) -> Path | None:
    """The directory of an adapter: this one, or the model of a run; None if it is something else."""
    for candidate in (directory, directory / "model"):
        if is_adapter(candidate):
            return candidate
    return None


@dataclass(frozen=True)
class AdapterFiles:
    """A directory with an adapter: the contents of its two JSON files."""

    directory: Path
    config: Mapping[str, Any]
    metadata: Mapping[str, Any]

    @staticmethod
    def open(directory: Path) -> "AdapterFiles":
        """InputError if it is not an adapter, or one of an unsupported kind."""
        file = directory / ADAPTER_CONFIG
        if not file.is_file():
            raise MissingFile(f"{directory}: {ADAPTER_CONFIG} not found; pass the directory of an adapter")
        config = read_json(file)
        kind = config.get("peft_type", "LORA")
        if kind != "LORA":
            raise InputError(f"{file}: peft_type {kind!r:.40} is not supported (supported: LORA); merge it with peft")
        for name in config.keys() - IGNORED_KEYS - SCALE_KEYS:
            value, known = config[name], SUPPORTED_VALUES.get(name, ())
            is_neutral = value is None or value is False or value in ("", [], {})
            if not is_neutral and not any(type(value) is type(one) and value == one for one in known):
                raise InputError(f"{file}: {name!s:.60}={value!r:.60} is not supported; merge it with peft")
        return AdapterFiles(directory, config, read_metadata(directory / METADATA_FILE))

    @property
    def base(self) -> str:
        """The directory or name of the model that it belongs to. InputError if the file does not say it."""
        base, revision = self.config.get("base_model_name_or_path"), self.config.get("revision")
        if not isinstance(base, str) or not base:
            raise InputError(
                f"{self.directory / ADAPTER_CONFIG}: base_model_name_or_path is missing; name the model: "
                "bothways merge ADAPTER --base MODEL, or bothways.load(MODEL, adapter=...)"
            )
        is_of_hub = isinstance(revision, str) and revision and "@" not in base and not Path(base).exists()
        return f"{base}@{revision}" if is_of_hub else base

    def load(self, base: Checkpoint | None, load_base: Callable[[str], Checkpoint]) -> Checkpoint:
        """The model with the adapter, merged if its kind can be.

        load_base: reads the model that the files name, unless `base` is given.
        """
        if base is None:
            try:
                base = load_base(self.base)
            except MissingFile as error:
                raise MissingFile(
                    f"{self.directory}: the model that the adapter belongs to is missing ({error}); if it has moved: "
                    "bothways merge ADAPTER --base MODEL, or bothways.load(MODEL, adapter=...)"
                ) from None
        adapted = self.attach(base)
        if adapted.model.adapter is not None and adapted.model.adapter.is_mergeable:
            merge(adapted.model)
        return adapted

    def attach(self, base: Checkpoint) -> Checkpoint:
        """The model with the adapter, not merged. It shares its encoder's weights with `base`, which does not change.

        InputError if the adapter belongs to another model."""
        described = get_object(self.metadata, "adapter", self.directory / METADATA_FILE)
        return self._attach_own(base, described) if described else self._attach_peft(base)

    def _attach_own(self, base: Checkpoint, described: Mapping[str, Any]) -> Checkpoint:
        file, family = self.directory / METADATA_FILE, FAMILIES[base.model_type]
        spec = AdapterSpec.from_json(described, str(self.config.get("base_model_name_or_path", "")), file)
        if spec.fingerprint and spec.fingerprint != fingerprint_encoder(base.model):
            raise InputError(
                f"{self.directory}: the adapter belongs to other weights than those of {self._named(base)}; pass the "
                "model that it was trained on"
            )
        labels, heads = described.get("labels"), described.get("heads")
        if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
            raise InputError(f"{file}: labels of the adapter are broken; save or download it again")
        if not isinstance(heads, dict) or any(heads[head] != self._size(head, labels) for head in heads):
            raise InputError(f"{file}: heads of the adapter do not fit its labels; save or download it again")
        if unknown := heads.keys() - {*family.head_names, *NUM_OUTPUTS, "classes", "tokens"}:
            raise InputError(f"{file}: {base.model_type} has no head {min(unknown)!r:.40}")
        pooling = {"pooling": described.get("head_pooling"), "pooler_act": described.get("pooler_act")}
        config = base.model.config.replace(**{name: value for name, value in pooling.items() if value is not None})
        model = _with_encoder_of(base.model, config, heads)
        install(model, spec, family)
        state = {name: torch.empty_like(value) for name, value in own_state(model).items()}
        tensors = self._own_tensors(model, family, state)
        self._check(tensors, {name: value.shape for name, value in state.items()})
        model.load_state_dict(tensors, strict=False)
        return replace(
            base,
            model=model.eval(),
            labels=tuple(labels),
            multi_label=bool(described.get("multi_label")),
            pooling=described.get("pooling"),
            normalized=bool(described.get("normalized", True)),
            metadata=self.metadata,
        )

    @staticmethod
    def _size(head: str, labels: list[str]) -> int:
        """The number of outputs of a head with these labels, which bounds the memory that a file can ask for."""
        return NUM_OUTPUTS[head] if head in NUM_OUTPUTS else len(labels) or 1

    def _own_tensors(self, model: Model, family: FamilySpec, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors of both files by our names. InputError if one is left over, or the files differ in scale."""
        tensors: dict[str, Tensor] = {}
        if (self.directory / OWN_WEIGHTS).exists():
            tensors |= open_safetensors(self.directory / OWN_WEIGHTS)
        if model.adapter.kind == "lora":
            stored, prefix = self._peft_tensors(family)
            for name, part in model.named_modules():
                if isinstance(part, LoraLinear):
                    modules = [hf_name.removesuffix(".weight") for hf_name in family.hf_names(f"{name}.weight", ())]
                    names = [modules[index] for index in part.adapted]
                    for one in names:
                        self._check_scale(one.removeprefix(prefix), model.adapter)
                    tensors[f"{name}.lora_down"] = torch.cat(self._take(stored, [f"{one}.lora_A" for one in names]))
                    tensors[f"{name}.lora_up"] = torch.stack(self._take(stored, [f"{one}.lora_B" for one in names]))
            for name in state.keys() - tensors.keys():
                hf_names = family.hf_names(name, model.num_outputs)
                tensors |= {name: stored.pop(hf_names[0])} if hf_names and hf_names[0] in stored else {}
            tensors |= stored
        if unknown := [name for name in tensors if name not in state and "pooler." not in name]:
            raise self._unused_error(unknown)
        return tensors

    def _check_scale(self, name: str, spec: AdapterSpec) -> None:
        if self._scale(name, spec.rank) != spec.scale:
            raise InputError(
                f"{self.directory / ADAPTER_CONFIG}: r and lora_alpha differ from those in {METADATA_FILE}; remove "
                f"{METADATA_FILE} if peft has written the adapter"
            )

    def _unused_error(self, names: list[str]) -> InputError:
        return InputError(
            f"{self.directory}: no part of the model uses {shorten(sorted(names))}; pass the model that the adapter "
            "was trained on, or merge it with peft"
        )

    def _take(self, stored: dict[str, Tensor], names: list[str]) -> list[Tensor]:
        if missing := [name for name in names if name not in stored]:
            raise InputError(
                f"{self.directory / PEFT_WEIGHTS}: missing: {shorten(missing)}; download the adapter again"
            )
        return [stored.pop(name) for name in names]

    def _check(self, tensors: Mapping[str, Tensor], shapes: Mapping[str, torch.Size]) -> None:
        """InputError names tensors that are missing, misshapen or not finite."""
        if missing := sorted(shapes.keys() - tensors.keys()):
            raise InputError(f"{self.directory}: missing parameters: {shorten(missing)}; download the adapter again")
        for name, shape in shapes.items():
            if tensors[name].shape != shape:
                raise InputError(
                    f"{self.directory}: {name} is {[*tensors[name].shape]}, the model needs {[*shape]}; pass the model "
                    "that the adapter was trained on"
                )
            if not tensors[name].is_floating_point() or not is_finite(tensors[name]):
                raise InputError(f"{self.directory}: {name} has values that are no numbers; download the adapter again")

    def _named(self, base: Checkpoint) -> str:
        return str(base.metadata.get("settings", {}).get("out") or f"this {base.model_type} model")

    # --- files that peft has written ----------------------------------------------------------------------------------

    def _peft_tensors(self, family: FamilySpec) -> tuple[dict[str, Tensor], str]:
        """The tensors of peft's file by Hugging Face's names of their modules, `.lora_A` or the like behind them; and
        the prefix that these names have but the file lacks, since it is of an encoder alone."""
        file = self.directory / PEFT_WEIGHTS
        if not file.exists():
            raise MissingFile(f"{file}: not found; save the adapter again, as safetensors")
        named: dict[str, Tensor] = {}
        tensors = open_safetensors(file)
        for name in sorted(tensors, key=lambda name: ".modules_to_save." in name):
            value = tensors[name]
            short = name.removeprefix(PREFIX).replace(".base_layer.", ".")
            if ".original_module." in short or short.endswith(BUFFERS):
                continue  # what modules_to_save replaces
            again = re.sub(r"\.modules_to_save\.\w+\.", ".", short)  # bias="all" stores a head's biases twice
            short = again if again in named else short.replace(".modules_to_save.", ".")
            if (part := LORA_PART.fullmatch(short)) is not None:
                short = f"{part[1]}.{part[2]}"
            if short in named and not torch.equal(named[short], value):
                raise self._unused_error([name])
            named[short] = value
        if broken := [name for name, value in named.items() if not value.is_floating_point() or not is_finite(value)]:
            raise not_finite_error(file, broken)
        if any(name.startswith(family.prefix) for name in named):
            return named, ""
        heads = {hf_name.split(".")[0] for table in family.head_names.values() for hf_name in table.values()}
        prefixes = {name: "" if name.split(".")[0] in heads else family.prefix for name in named}
        return {prefixes[name] + name: value for name, value in named.items()}, family.prefix

    def _attach_peft(self, base: Checkpoint) -> Checkpoint:
        """LoRA that peft has trained, and the parameters that it has trained as a whole, in copies of the weights."""
        family = FAMILIES[base.model_type]
        check_supported(AdapterSpec("lora"), base.model.config, base.model_type)
        stored, prefix = self._peft_tensors(family)
        model, labels = self._with_stored_head(base, stored, family, is_bare=bool(prefix))
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
                    self._check({hf_name: stored[hf_name]}, {hf_name: rows.shape})
                    rows.copy_(stored.pop(hf_name))
                if has_pair:
                    down, up = self._take(stored, pair)
                    shape = rows.T.shape if kind else rows.shape
                    self._check_pair(pair, down, up, shape)
                    change = self._scale(module.removeprefix(prefix), len(down)) * (up.double() @ down.double())
                    rows += (change.T if kind else change).to(rows)
        self._check_tied({**model.state_dict(), **changed}, model.state_dict(), stored)
        for name, weight in changed.items():
            module, _, attribute = name.rpartition(".")
            replacement = nn.Parameter(weight, requires_grad=model.get_parameter(name).requires_grad)
            setattr(model.get_submodule(module), attribute, replacement)
        return replace(base, model=model.eval(), labels=labels, metadata=self.metadata)

    def _check_tied(self, new: Mapping[str, Tensor], old: Mapping[str, Tensor], left: Mapping[str, Tensor]) -> None:
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
            raise self._unused_error([*unused])
        if BIAS in new and TABLE not in copies.values() and not torch.equal(new[TABLE], old[TABLE]):
            raise InputError(
                f"{self.directory}: changes the token table, but not the output embeddings, which is not supported; "
                "train it with the encoder alone"
            )

    def _check_pair(self, names: list[str], down: Tensor, up: Tensor, shape: torch.Size) -> None:
        """InputError names a matrix that does not fit a weight of this shape."""
        rank = down.shape[0] if down.ndim else 0
        for name, value, needed in zip(names, (down, up), ([rank, shape[1]], [shape[0], rank]), strict=True):
            if [*value.shape] != needed or not 0 < rank <= MAX_RANK:
                raise InputError(
                    f"{self.directory / PEFT_WEIGHTS}: {name} is {[*value.shape]}, the model needs {needed}; pass the "
                    "model that the adapter was trained on"
                )

    def _scale(self, name: str, rank: int) -> float:
        """alpha / rank of a module. InputError if the config has no number, or another rank."""
        file = self.directory / ADAPTER_CONFIG
        alpha, stated = self._value("alpha_pattern", "lora_alpha", name), self._value("rank_pattern", "r", name)
        if not isinstance(alpha, int | float) or isinstance(alpha, bool) or not math.isfinite(alpha):
            raise InputError(f"{file}: lora_alpha or alpha_pattern of {name} ({alpha!r:.40}) must be a number")
        if stated != rank:
            raise InputError(
                f"{file}: r or rank_pattern of {name} is {stated!r:.40}, its tensors have {rank}; save it again"
            )
        return float(alpha) / (math.sqrt(rank) if self.config.get("use_rslora") else rank)

    def _value(self, patterns: str, default: str, name: str) -> Any:
        """The value of the first pattern that matches the end of a module's name, else that of all modules."""
        file = self.directory / ADAPTER_CONFIG
        for pattern, value in get_object(self.config, patterns, file).items():
            # Each can multiply the ways to match, also groups such as (.|.) and characters such as .? in a row.
            choices = re.findall(r"\(\??|[*+?{]", pattern)
            try:
                if len(pattern) > MAX_PATTERN or len(choices) > MAX_CHOICES or re.search(r"\)[*+{]", pattern):
                    raise re.error("too many groups or repetitions")
                if re.fullmatch(rf"(.*\.)?({pattern})", name):
                    return value
            except re.error as error:
                raise InputError(f"{file}: {patterns} {pattern!r:.60}: {error}; write out the modules") from None
        return self.config.get(default, DEFAULT_SCALE)

    def _with_stored_head(
        self, base: Checkpoint, stored: Mapping[str, Tensor], family: FamilySpec, *, is_bare: bool
    ) -> tuple[Model, tuple[str, ...]]:
        """The base with the heads in the file, or if there are none, its heads; and the names of the classes."""
        sizes: dict[str, int] = {}
        for head in find_heads(family, stored, self._architecture(base)):
            last = stored.get(f"{family.head_names[head].get('output')}.weight")
            sizes[head] = NUM_OUTPUTS.get(head, 0 if last is None or not last.numel() or not last.ndim else len(last))
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
        self._check(state, shapes)
        model.load_state_dict(state, strict=False)
        size = sizes.get("classes", sizes.get("tokens"))
        if size is None:
            return model, base.labels if keeps_heads else ()
        return model, tuple(f"LABEL_{index}" for index in range(size)) if size > 1 else ()

    def _architecture(self, base: Checkpoint) -> str:
        """The classes of transformers that tell apart heads with the same names of parameters."""
        task = next((head for head, name in TASK_TYPES.items() if name == self.config.get("task_type")), None)
        mapping = get_object(self.config, "auto_mapping", self.directory / ADAPTER_CONFIG)
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
