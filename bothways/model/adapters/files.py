"""Adapter directories: the trained parameters beside a model, and the way to it.

LoRA is in the layout of peft: `adapter_config.json`, and `adapter_model.safetensors` with A and B by Hugging Face's
names and the head if that layout has it. Biases, and heads that the layout lacks, are in `adapter.safetensors` by our
names. The entry "adapter" of `bothways.json` has the kind, the head and the labels; directories written by peft lack
it. attach.py gives the arrays to the model.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bothways.base.errors import InputError, MissingFile
from bothways.base.io import get_object
from bothways.model.adapters.name_patterns import PatternError, matches_end
from bothways.model.checkpoint.description import ADAPTER_CONFIG, CONFIG, METADATA_FILE
from bothways.model.checkpoint.directory import Directory
from bothways.model.checkpoint.weights import Array, is_finite, not_finite_error, open_safetensors, shorten
from bothways.model.families import FamilySpec

PEFT_WEIGHTS = "adapter_model.safetensors"
OWN_WEIGHTS = "adapter.safetensors"
PREFIX = "base_model.model."  # of names in peft's files
TASK_TYPES = {  # peft's, by head
    "classes": "SEQ_CLS",
    "tokens": "TOKEN_CLS",
    "spans": "QUESTION_ANS",
}
# Keys of adapter_config.json that do not change the result, or repeat what the tensors show (which modules).
IGNORED_KEYS = frozenset(
    {
        "adapter_type",
        "auto_mapping",
        "base_model_name_or_path",
        "corda_config",
        "eva_config",
        "exclude_modules",
        "inference_mode",
        "layers_pattern",
        "layers_to_transform",
        "loftq_config",
        "lora_dropout",
        "lora_ga_config",
        "megatron_core",
        "modules_to_save",
        "peft_type",
        "peft_version",
        "qalora_group_size",
        "readers",
        "revision",
        "runtime_config",
        "target_modules",
        "task_type",
    }
)
SCALE_KEYS = frozenset(  # read and checked with the tensors
    {
        "alpha_pattern",
        "lora_alpha",
        "r",
        "rank_pattern",
    }
)
SUPPORTED_VALUES: dict[str, tuple[Any, ...]] = {
    "bias": ("none", "all", "lora_only"),
    "init_lora_weights": (True, False, "gaussian", "eva", "orthogonal"),  # others change the model's weights as well
    "use_rslora": (True, False),
}
DEFAULT_SCALE = 8  # peft's rank, and its alpha
MAX_RANK = 4096
LORA_PART = re.compile(r"(.*)\.(lora_(?:embedding_)?[AB])(?:\.weight)?")
BUFFERS = ("position_ids", "token_type_ids")  # of embeddings that were trained as a whole


@dataclass(frozen=True)
class AdapterFiles:
    """A directory with an adapter: the contents of its two JSON files. The arrays are read by methods."""

    directory: Path
    config: Mapping[str, Any]
    metadata: Mapping[str, Any]

    @staticmethod
    def open(directory: Directory) -> "AdapterFiles":
        """InputError if it is not an adapter, or one of an unsupported kind."""
        file = directory.path / ADAPTER_CONFIG
        if not file.is_file():
            raise MissingFile(f"{directory.path}: {ADAPTER_CONFIG} not found; pass the directory of an adapter")

        config = directory.json(ADAPTER_CONFIG)
        kind = config.get("peft_type", "LORA")
        if kind != "LORA":
            raise InputError(f"{file}: peft_type {kind!r:.40} is not supported (supported: LORA); merge it with peft")

        for name in config.keys() - IGNORED_KEYS - SCALE_KEYS:
            value = config[name]
            is_neutral = value is None or value is False or value in ("", [], {})
            supported = SUPPORTED_VALUES.get(name, ())
            # The types are compared too, since 1 == True.
            if not is_neutral and not any(type(value) is type(other) and value == other for other in supported):
                raise InputError(f"{file}: {name!s:.60}={value!r:.60} is not supported; merge it with peft")

        return AdapterFiles(directory.path, config, directory.metadata)

    @property
    def base(self) -> str:
        """The directory or name of the model that it belongs to. InputError if the file lacks it."""
        base = self.config.get("base_model_name_or_path")
        if not isinstance(base, str) or not base:
            raise InputError(
                f"{self.directory / ADAPTER_CONFIG}: base_model_name_or_path is missing; name the model: "
                "bothways merge ADAPTER --base MODEL, or bothways.load(MODEL, adapter=...)"
            )

        revision = self.config.get("revision")
        has_revision = isinstance(revision, str) and bool(revision)
        if has_revision and "@" not in base and not Path(base).exists():
            return f"{base}@{revision}"  # of the hub
        return base

    @property
    def described(self) -> dict[str, Any]:
        """The entry "adapter" of bothways.json; empty for an adapter written by peft."""
        return get_object(self.metadata, "adapter", self.directory / METADATA_FILE)

    def own_tensors(self) -> dict[str, Array]:
        """The tensors by our names; none without their file."""
        file = self.directory / OWN_WEIGHTS
        return dict(open_safetensors(file)) if file.exists() else {}

    def peft_tensors(self, family: FamilySpec) -> tuple[dict[str, Array], str]:
        """The tensors of peft's file by Hugging Face's names of their modules, `.lora_A` or the like behind them; and
        the prefix that these names have but the file lacks, since it is of an encoder alone."""
        file = self.directory / PEFT_WEIGHTS
        if not file.exists():
            raise MissingFile(f"{file}: not found; save the adapter again, as safetensors")

        arrays = self._without_wrappers(open_safetensors(file))
        broken = [name for name, value in arrays.items() if value.dtype.kind != "f" or not is_finite(value)]
        if broken:
            raise not_finite_error(file, broken)
        if any(name.startswith(family.prefix) for name in arrays):
            return arrays, ""

        # Modules of heads have no prefix in any file.
        heads: set[str] = set()
        for table in family.head_names.values():
            heads.update(hf_name.split(".")[0] for hf_name in table.values())
        prefixed: dict[str, Array] = {}
        for name, value in arrays.items():
            is_of_head = name.split(".")[0] in heads
            prefixed[name if is_of_head else family.prefix + name] = value
        return prefixed, family.prefix

    def _without_wrappers(self, tensors: Mapping[str, Array]) -> dict[str, Array]:
        """The tensors without the names of peft's own modules. InputError if two have the same name then."""
        arrays: dict[str, Array] = {}
        for stored_name in sorted(tensors, key=lambda name: ".modules_to_save." in name):
            value = tensors[stored_name]
            name = stored_name.removeprefix(PREFIX).replace(".base_layer.", ".")
            if ".original_module." in name or name.endswith(BUFFERS):
                continue  # modules_to_save replaces them

            # bias="all" stores the biases of a head twice; those in modules_to_save come last.
            without_adapter = re.sub(r"\.modules_to_save\.\w+\.", ".", name)
            name = without_adapter if without_adapter in arrays else name.replace(".modules_to_save.", ".")
            lora = LORA_PART.fullmatch(name)
            if lora is not None:
                name = f"{lora[1]}.{lora[2]}"
            if name in arrays and not np.array_equal(arrays[name], value):
                raise self.unused_error([stored_name])
            arrays[name] = value
        return arrays

    def unused_error(self, names: list[str]) -> InputError:
        return InputError(
            f"{self.directory}: no part of the model uses {shorten(sorted(names))}; pass the model that the adapter "
            "was trained on, or merge it with peft"
        )

    def scale(self, name: str, rank: int) -> float:
        """alpha / rank of a module. InputError if the config has no number, or another rank."""
        file = self.directory / ADAPTER_CONFIG
        alpha = self._value("alpha_pattern", "lora_alpha", name)
        stated = self._value("rank_pattern", "r", name)
        if not isinstance(alpha, int | float) or isinstance(alpha, bool) or not math.isfinite(alpha):
            raise InputError(f"{file}: lora_alpha or alpha_pattern of {name} ({alpha!r:.40}) must be a number")
        if stated != rank:
            raise InputError(
                f"{file}: r or rank_pattern of {name} is {stated!r:.40}, its tensors have {rank}; save it again"
            )
        divisor = math.sqrt(rank) if self.config.get("use_rslora") else rank
        return float(alpha) / divisor

    def _value(self, patterns: str, default: str, name: str) -> Any:
        """The value of the first pattern that matches the end of a module's name, else the value of all modules."""
        file = self.directory / ADAPTER_CONFIG
        for pattern, value in get_object(self.config, patterns, file).items():
            try:
                if matches_end(pattern, name):
                    return value
            except PatternError as error:
                raise InputError(f"{file}: {patterns} {pattern!r:.60}: {error}; write out the modules") from None
        return self.config.get(default, DEFAULT_SCALE)


def find_adapter(place: Path) -> AdapterFiles | None:
    """The adapter in a directory, or the model of a run; None if it is something else."""
    for candidate in (place, place / "model"):
        if (candidate / ADAPTER_CONFIG).is_file() and not (candidate / CONFIG).exists():
            return AdapterFiles.open(Directory(candidate))
    return None
