"""Specification of an encoder family: how config keys, parameters and classes map to Hugging Face's."""

import re
from collections.abc import Callable, Collection, Container, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from bothways.base.errors import InputError
from bothways.model.config import EncoderConfig

# Keys of any Hugging Face config that do not change the result: written by tools, or about text generation.
IGNORED_KEYS = frozenset(
    {
        "_name_or_path",
        "architectures",
        "attn_implementation",
        "_attn_implementation",
        "bos_token_id",
        "chunk_size_feed_forward",
        "cls_token_id",
        "directionality",
        "do_sample",
        "dtype",
        "eos_token_id",
        "finetuning_task",
        "gradient_checkpointing",
        "id2label",
        "is_encoder_decoder",
        "keys_to_ignore_at_inference",
        "label2id",
        "mask_token_id",
        "model_type",
        "num_labels",
        "output_attentions",
        "output_hidden_states",
        "output_past",
        "return_dict",
        "sep_token_id",
        "tie_word_embeddings",
        "tokenizer_class",
        "torch_dtype",
        "torchscript",
        "transformers_version",
        "use_bfloat16",
        "use_cache",
        "pooler_fc_size",
        "pooler_num_attention_heads",
        "pooler_num_fc_layers",
        "pooler_size_per_head",
        "pooler_type",
    }
)
# Keys that change the result, with the only values that Bothways computes.
SUPPORTED_VALUES: dict[str, tuple[Any, ...]] = {
    "add_cross_attention": (False, None),
    "is_decoder": (False, None),
    "position_embedding_type": ("absolute", None),
    "problem_type": ("single_label_classification", "multi_label_classification", "regression", None),
    "pruned_heads": ({}, None),
    "quantization_config": (None,),
}
# Parts of the names of keys that change the numbers of a model in some family or library. An unknown key with such a
# part is refused, unless its value says that it is not used; other unknown keys are kept with a warning.
TELLING = re.compile(
    r"rope|rotary|alibi|sliding|window|scaling|softcap|multiplier|(?<!initializer)_factor$|logit_scale|"
    r"embed(ding)?_scale|qk_(layer)?norm|(pre|post)_(layer)?norm|norm_(first|before)|parallel_|relative_"
)
# Hugging Face's name -> ours. The first name of each of ours is the one that is written.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "gelu_python": "gelu",
    "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "swish": "silu",
}
# Ours -> Hugging Face's; reversed, so that the first name stays.
ACTIVATION_NAMES = {ours: name for name, ours in reversed(ACTIVATIONS.items())}
CLASS_SUFFIXES = {  # head -> the end of transformers' class name, after "For"
    "masked_words": "MaskedLM",
    "classes": "SequenceClassification",
    "tokens": "TokenClassification",
    "spans": "QuestionAnswering",
}
ParameterNames = Mapping[str, str | tuple[str, ...]]  # our module or parameter -> Hugging Face's, see FamilySpec


def architectures(name: str) -> dict[frozenset[str], str]:
    """The classes that transformers has for every family: heads -> class name.

    name: the name of the family in the names of its classes, such as "Bert".
    """
    classes = {frozenset({head}): f"{name}For{suffix}" for head, suffix in CLASS_SUFFIXES.items()}
    return {frozenset(): f"{name}Model", **classes}


@dataclass(frozen=True)
class FamilySpec:
    """One encoder family, as data.

    model_type: the name of the family in config.json.
    prefix: the beginning of the names of the encoder's parameters in a Hugging Face model with a head, such as "bert.".
    config_keys: our config field -> Hugging Face's key.
    defaults: config fields that the family fixes, or uses where a config omits them.
    supported_values: further keys that change the result, with the values that are computed.
    ignored_keys: further keys that do not change the result.
    parameter_names: our module or parameter -> Hugging Face's, with `{}` for the layer's index. The parameters of a
    tuple of modules are stacked into one of ours, in order.
    head_names: head -> the same for the parts of the head, and for its pooler if the family calls it otherwise there.
    architectures: set of heads -> transformers' class.
    read_config: config fields that need more than renaming, Hugging Face's config -> ours; write_config: the inverse.
    new_config: the config of a new model, given BERT's config of the same size.
    objective: the pre-training task of the family's paper on tokens.
    pairs: the pre-training task of the paper on pairs of texts.
    max_length: the longest text, in tokens, that a new model can be pre-trained on.
    supports_mean_pooling: whether transformers' classification head can read the mean of the tokens.
    supports_mean_layer: whether one more layer can compute that mean (model/checkpoint/mean_layer.py). It needs layer
    norms with bias behind attention and feed-forward, and a head that reads the first token through a tanh layer.
    """

    model_type: str
    prefix: str
    config_keys: Mapping[str, str]
    parameter_names: ParameterNames
    head_names: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    architectures: Mapping[frozenset[str], str] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    supported_values: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    ignored_keys: frozenset[str] = frozenset()
    read_config: Callable[[Mapping[str, Any]], dict[str, Any]] = lambda hf_config: {}
    write_config: Callable[[EncoderConfig], dict[str, Any]] = lambda config: {}
    new_config: Callable[[EncoderConfig], EncoderConfig] = lambda config: config
    objective: Literal["masked", "enhanced", "replaced"] = "masked"
    pairs: Literal["next", "order", "none"] = "none"
    max_length: int = 512
    supports_mean_pooling: bool = False
    supports_mean_layer: bool = False

    def parse_config(self, hf_config: Mapping[str, Any], source: object) -> tuple[EncoderConfig, dict[str, Any]]:
        """Our config, and the unknown keys with their values, which are kept and written back.

        hf_config: the content of a config.json.
        source: the file, for messages.

        InputError names an unsupported value.
        """
        for key, values in {**SUPPORTED_VALUES, **self.supported_values}.items():
            if key in hf_config and hf_config[key] not in values and key not in self.ignored_keys:
                raise InputError(
                    f"{source}: {key}={hf_config[key]!r:.60} is not supported for {self.model_type} "
                    f"(supported: {values[0]!r})"
                )

        # A multiple-choice model has the parameters of a classifier: only the name of its class tells.
        classes = str(hf_config.get("architectures"))
        if "MultipleChoice" in classes:
            raise InputError(f"{source}: architectures={classes:.60} is not supported: no head chooses between texts")

        fields = {name: hf_config[key] for name, key in self.config_keys.items() if hf_config.get(key) is not None}
        if "hidden_act" in fields:
            activation = fields["hidden_act"]
            key = self.config_keys["hidden_act"]
            if not isinstance(activation, str) or activation not in ACTIVATIONS:
                known = ", ".join(ACTIVATIONS)
                raise InputError(f"{source}: {key}={activation!r:.60} is not supported (supported: {known})")
            fields["hidden_act"] = ACTIVATIONS[activation]

        missing = {"vocab_size", "hidden_size", "num_hidden_layers"} - set(fields)
        if missing:
            keys = ", ".join(sorted(self.config_keys[name] for name in missing))
            raise InputError(f"{source}: incomplete {self.model_type} config: {keys} missing")

        # Values come from a file: any of them may have any type.
        try:
            config = EncoderConfig(**{**self.defaults, **fields, **self.read_config(hf_config)})
        except InputError as error:
            raise InputError(f"{source}: {error}") from None
        except (TypeError, AttributeError, LookupError, ValueError, OverflowError, RecursionError) as error:
            raise InputError(
                f"{source}: a {self.model_type} config value has the wrong type ({error!s:.100})"
            ) from None

        return config, self._unknown_keys(hf_config, source)

    def _unknown_keys(self, hf_config: Mapping[str, Any], source: object) -> dict[str, Any]:
        """The keys that are not read. InputError for one that may change what a model computes."""
        read_keys = {*self.config_keys.values(), *IGNORED_KEYS, *self.ignored_keys}
        read_keys |= SUPPORTED_VALUES.keys() | self.supported_values.keys()
        unknown = {key: value for key, value in hf_config.items() if key not in read_keys}

        telling = [key for key, value in unknown.items() if TELLING.search(key) and not _is_unused(key, value)]
        if telling:
            key = min(telling)
            raise InputError(
                f"{source}: {key}={unknown[key]!r:.60} is not read for {self.model_type}, and may change what a model "
                "computes; use a model without it"
            )
        return unknown

    def to_hf_config(self, config: EncoderConfig) -> dict[str, Any]:
        """Our config under Hugging Face's keys."""
        hf_config = {key: getattr(config, name) for name, key in self.config_keys.items()}
        hf_config[self.config_keys["hidden_act"]] = ACTIVATION_NAMES[config.hidden_act]
        return {"model_type": self.model_type, **hf_config, **self.write_config(config)}

    def find_heads(self, tensors: Container[str], architecture: str) -> set[str]:
        """The heads that have a parameter in the file other than a pooler's.

        Some heads have the same names of parameters, such as classes and tokens in BERT. Of these the architecture
        decides; if it names none of them, the first.

        tensors: the names of the arrays in the file.
        architecture: `architectures` in the config, as text.
        """
        poolers: set[str] = set()
        for table in self.head_names.values():
            poolers.update(name for ours, name in table.items() if ours.startswith("pooler."))

        head_by_names: dict[frozenset[str], str] = {}
        for head, table in self.head_names.items():
            names = frozenset(
                name if ours == "bias" else f"{name}.weight" for ours, name in table.items() if name not in poolers
            )
            if not any(name in tensors for name in names):
                continue

            is_first = names not in head_by_names
            if is_first or f"For{CLASS_SUFFIXES.get(head)}" in architecture:
                head_by_names[names] = head
        return set(head_by_names.values())

    def hf_names(self, parameter: str, heads: Collection[str]) -> tuple[str, ...]:
        """Hugging Face's names of one of our parameters; several are stacked. () if the family has none.

        parameter: our name, such as `encoder.layers.3.attention.qkv.weight`.
        heads: the heads of the model.
        """
        head = re.match(r"heads\.(\w+)\.(.+)", parameter)
        if head:
            return _translate(self.head_names.get(head[1], {}), head[2], "")

        # Some families give the pooler another name for some heads.
        if parameter.startswith("pooler."):
            for name in heads:
                names = _translate(self.head_names.get(name, {}), parameter, "")
                if names:
                    return names
        return _translate(self.parameter_names, parameter.removeprefix("encoder."), self.prefix)


def _is_unused(key: str, value: Any) -> bool:
    """Whether a value leaves the numbers of a model alone: nothing, "off", or a factor of 1."""
    is_factor = re.search("factor|multiplier|scale", key) is not None
    return value in (None, False, {}, []) or (is_factor and value == 1 and value is not True)


def _translate(table: Mapping[str, str] | ParameterNames, parameter: str, prefix: str) -> tuple[str, ...]:
    """Hugging Face's names of a parameter, by a table; () if the table lacks it.

    table: see `FamilySpec.parameter_names`.
    parameter: our name.
    prefix: stands before each of the names.
    """
    index = re.search(r"\.(\d+)\.", parameter)
    pattern = parameter.replace(f".{index[1]}.", ".{}.", 1) if index else parameter

    # A table names a whole parameter, such as a bias of its own, or a module with weight and bias.
    suffix = ""
    names = table.get(pattern)
    if names is None:
        module, _, kind = pattern.rpartition(".")
        suffix = f".{kind}"
        names = table.get(module)
    if names is None:
        return ()

    if isinstance(names, str):
        names = (names,)
    layer = index[1] if index else ""
    return tuple(prefix + name.format(layer) + suffix for name in names)
