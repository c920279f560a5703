"""Adapter directories: the trained parameters beside a model, and the way to it.

LoRA is in the layout of peft: `adapter_config.json`, and `adapter_model.safetensors` with A and B by Hugging Face's
names and the head if that layout has it. Other kinds, and heads that the layout lacks, are in `adapter.safetensors` by
our names. `bothways.json` says under "adapter" what the kind, the head and the labels are; a directory that peft has
written lacks it.
"""

import math
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
from bothways.checkpoint.state_dict import find_heads, shorten
from bothways.checkpoint.weights import is_finite, open_safetensors, write_weights
from bothways.config import EncoderConfig
from bothways.errors import InputError, MissingFile
from bothways.families import FAMILIES, FamilySpec
from bothways.families.spec import CLASS_SUFFIXES
from bothways.io import get_object, read_json, write_json
from bothways.model.heads import ClassificationHead
from bothways.model.model import NUM_OUTPUTS, Model
from bothways.model.modules import retype, set_module, share
from bothways.model.parameters import no_init
from bothways.model.pooler import NO_POOLER

PEFT_WEIGHTS, OWN_WEIGHTS = "adapter_model.safetensors", "adapter.safetensors"
PREFIX = "base_model.model."  # of names in peft's files
TASK_TYPES = {"classes": "SEQ_CLS", "tokens": "TOKEN_CLS", "spans": "QUESTION_ANS"}  # peft's, by head
UNSUPPORTED = (
    "use_dora",
    "fan_in_fan_out",
    "lora_bias",
    "megatron_config",
    "layer_replication",
    "trainable_token_indices",
)
MAX_RANK = 4096


# --- writing ----------------------------------------------------------------------------------------------------------


def write_adapter(checkpoint: Checkpoint, directory: Path) -> None:
    """Write the adapter of a checkpoint's model and its head into a directory."""
    model, family = checkpoint.model, FAMILIES[checkpoint.model_type]
    spec: AdapterSpec = model.adapter
    config: dict[str, Any] = {"base_model_name_or_path": spec.base}
    state = {name: value.detach().float().cpu().contiguous() for name, value in own_state(model).items()}
    if spec.kind == "lora":
        prefix = PREFIX if model.num_outputs else PREFIX + family.prefix
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
        modules: list[str] = []
        if state and (stored := _head_names(checkpoint, state)):
            tensors |= {f"{PREFIX}{hf_name}": state.pop(name) for name, hf_name in stored.items()}
            modules = sorted({hf_name.removeprefix(family.prefix).split(".")[0] for hf_name in stored.values()})
        if prefix != PREFIX:
            tensors = {f"{PREFIX}{name.removeprefix(prefix)}": value for name, value in tensors.items()}
        write_weights({name: value.contiguous().clone() for name, value in tensors.items()}, directory / PEFT_WEIGHTS)
        heads = [TASK_TYPES[head] for head in model.num_outputs if head in TASK_TYPES]
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


def _head_names(checkpoint: Checkpoint, state: Mapping[str, Tensor]) -> dict[str, str]:
    """Hugging Face's names of the parameters outside the encoder; none if its layout does not have this head."""
    model, family = checkpoint.model, FAMILIES[checkpoint.model_type]
    is_supported = frozenset(model.num_outputs) in family.architectures
    if model.config.pooler_act in NO_POOLER or not is_supported:
        return {}
    names = {name: family.hf_names(name, model.num_outputs) for name in state}
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
        for name in UNSUPPORTED:
            if config.get(name):
                raise InputError(f"{file}: {name}={config[name]!r:.60} is not supported; merge it with peft")
        return AdapterFiles(directory, config, read_metadata(directory / METADATA_FILE))

    @property
    def base(self) -> str:
        """The directory or name of the model that it belongs to. InputError if the file does not say it."""
        base = self.config.get("base_model_name_or_path")
        if not isinstance(base, str) or not base:
            raise InputError(
                f"{self.directory / ADAPTER_CONFIG}: base_model_name_or_path is missing; name the model: "
                "bothways merge ADAPTER --base MODEL, or bothways.load(MODEL, adapter=...)"
            )
        return base

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
        """The tensors of both files by our names."""
        tensors: dict[str, Tensor] = {}
        if (self.directory / OWN_WEIGHTS).exists():
            tensors |= open_safetensors(self.directory / OWN_WEIGHTS)
        if model.adapter.kind != "lora":
            return tensors
        stored = self._peft_tensors(family)
        for name, part in model.named_modules():
            if isinstance(part, LoraLinear):
                modules = [hf_name.removesuffix(".weight") for hf_name in family.hf_names(f"{name}.weight", ())]
                names = [modules[index] for index in part.adapted]
                tensors[f"{name}.lora_down"] = torch.cat(self._take(stored, [f"{one}.lora_A" for one in names]))
                tensors[f"{name}.lora_up"] = torch.stack(self._take(stored, [f"{one}.lora_B" for one in names]))
        for name in state.keys() - tensors.keys():
            hf_names = family.hf_names(name, model.num_outputs)
            tensors |= {name: stored[hf_names[0]]} if hf_names and hf_names[0] in stored else {}
        return tensors

    def _take(self, stored: Mapping[str, Tensor], names: list[str]) -> list[Tensor]:
        if missing := [name for name in names if name not in stored]:
            raise InputError(
                f"{self.directory / PEFT_WEIGHTS}: missing: {shorten(missing)}; download the adapter again"
            )
        return [stored[name] for name in names]

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

    def _peft_tensors(self, family: FamilySpec) -> dict[str, Tensor]:
        """The tensors of peft's file by Hugging Face's names of their modules, `.lora_A` or `.lora_B` behind them."""
        file = self.directory / PEFT_WEIGHTS
        if not file.exists():
            raise MissingFile(f"{file}: not found; save the adapter again, as safetensors")
        named = {}
        for name, value in open_safetensors(file).items():
            short = name.removeprefix(PREFIX)
            for kind in ("lora_A", "lora_B"):
                short = (
                    short.removesuffix(f".{kind}.weight") + f".{kind}" if short.endswith(f".{kind}.weight") else short
                )
            named[short] = value
        is_bare = not any(name.startswith(family.prefix) for name in named)
        return {
            family.prefix + name if is_bare and _is_encoder(name, family) else name: value
            for name, value in named.items()
        }

    def _attach_peft(self, base: Checkpoint) -> Checkpoint:
        """LoRA that peft has trained: A and B of any linear map are added to the weights."""
        file, family = self.directory / ADAPTER_CONFIG, FAMILIES[base.model_type]
        check_supported(AdapterSpec("lora"), base.model.config, base.model_type)
        stored = self._peft_tensors(family)
        changes = {name.removesuffix(".lora_A"): value for name, value in stored.items() if name.endswith(".lora_A")}
        plain = {name: value for name, value in stored.items() if not name.endswith((".lora_A", ".lora_B"))}
        model, labels = self._with_stored_head(base, plain, family)
        modules = {
            hf_name.removesuffix(".weight"): (name, index, len(hf_names))
            for name, part in model.named_modules()
            if isinstance(part, nn.Linear)
            for hf_names in [family.hf_names(f"{name}.weight", model.num_outputs)]
            for index, hf_name in enumerate(hf_names)
        }
        if unknown := sorted(changes.keys() - modules.keys()):
            raise InputError(
                f"{self.directory / PEFT_WEIGHTS}: LoRA on {shorten(unknown)}, which the model does not have as a "
                "linear map; merge it with peft"
            )
        for hf_name, down_RI in changes.items():
            (up_OR,) = self._take(stored, [f"{hf_name}.lora_B"])
            name, index, num_parts = modules[hf_name]
            linear = model.get_submodule(name)
            assert isinstance(linear, nn.Linear)
            rows = linear.out_features // num_parts
            shapes = {"A": [len(down_RI), linear.in_features], "B": [rows, len(down_RI)]}
            for kind, value in (("A", down_RI), ("B", up_OR)):
                if [*value.shape] != shapes[kind]:
                    raise InputError(
                        f"{self.directory / PEFT_WEIGHTS}: {hf_name}.lora_{kind} is {[*value.shape]}, the model needs "
                        f"{shapes[kind]}; pass the model that the adapter was trained on"
                    )
            scale = self._scale(hf_name, len(down_RI), file)
            change = scale * (up_OR.double() @ down_RI.double())
            weight = linear.weight.detach().clone()
            weight[index * rows : (index + 1) * rows] += change.to(weight)
            replacement = retype(linear, nn.Linear)
            replacement.weight = nn.Parameter(weight, requires_grad=False)
            set_module(model, name, replacement)
        return replace(base, model=model.eval(), labels=labels, metadata=self.metadata)

    def _scale(self, hf_name: str, rank: int, file: Path) -> float:
        """alpha / rank of a map. InputError if the config has no number."""
        patterns = get_object(self.config, "alpha_pattern", file)
        alpha = next((value for key, value in patterns.items() if hf_name.endswith(key)), self.config.get("lora_alpha"))
        if not isinstance(alpha, int | float) or isinstance(alpha, bool) or not 0 < rank <= MAX_RANK:
            raise InputError(f"{file}: lora_alpha ({alpha!r:.40}) must be a number")
        return float(alpha) / (math.sqrt(rank) if self.config.get("use_rslora") else rank)

    def _with_stored_head(
        self, base: Checkpoint, plain: Mapping[str, Tensor], family: FamilySpec
    ) -> tuple[Model, tuple[str, ...]]:
        """The base with the head that is in the file, or its own if there is none; and the names of the classes."""
        task = next((head for head, name in TASK_TYPES.items() if name == self.config.get("task_type")), "")
        heads = find_heads(family, plain, f"For{CLASS_SUFFIXES.get(task)}")
        config = base.model.config
        outside = {name: value for name, value in base.model.state_dict().items() if not name.startswith("encoder.")}
        if not heads:
            model = _with_encoder_of(base.model, config, base.model.num_outputs)
            model.load_state_dict(outside, strict=False)
            return model, base.labels
        head = min(heads)
        last = plain.get(f"{family.head_names[head].get('output')}.weight")
        size = NUM_OUTPUTS.get(head, 0 if last is None else len(last))
        model = _with_encoder_of(base.model, config, {head: size})
        shapes = {name: value.shape for name, value in model.state_dict().items() if not name.startswith("encoder.")}
        state = {name: outside[name] for name in shapes if name.startswith("pooler.") and name in outside}
        for name in shapes:
            (hf_name, *_) = family.hf_names(name, model.num_outputs)
            state |= {name: plain[hf_name]} if hf_name in plain else {}
        self._check(state, shapes)
        model.load_state_dict(state, strict=False)
        has_labels = head in ("classes", "tokens") and size > 1
        return model, tuple(f"LABEL_{index}" for index in range(size)) if has_labels else ()


def _is_encoder(name: str, family: FamilySpec) -> bool:
    """Whether a name is that of a part of the encoder, and not of a head."""
    heads = {hf_name.split(".")[0] for table in family.head_names.values() for hf_name in table.values()}
    return name.split(".")[0] not in heads


def _with_encoder_of(base: Model, config: EncoderConfig, heads: Mapping[str, int]) -> Model:
    """A model with these heads, uninitialized, and an encoder that shares the weights of `base`."""
    with no_init(base.encoder.embeddings.words.weight.dtype):
        model = Model(config, heads, pooler=not heads and base.pooler is not None)
    for head in model.heads.values():
        if isinstance(head, ClassificationHead):
            head.output.float()  # as `move_model` does
    model.encoder = share(base.encoder)
    return model
