"""What a published encoder family is to Bothways: config keys and parameter names, read both ways."""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from bothways.config import EncoderConfig
from bothways.errors import InputError

# Keys of any Hugging Face config that say nothing about the result: written by tools, or about generation.
HARMLESS = frozenset(
    "_name_or_path architectures attn_implementation _attn_implementation bos_token_id chunk_size_feed_forward"
    " cls_token_id directionality do_sample dtype eos_token_id finetuning_task gradient_checkpointing id2label"
    " is_encoder_decoder keys_to_ignore_at_inference label2id model_type num_labels output_attentions"
    " output_hidden_states output_past return_dict sep_token_id tie_word_embeddings tokenizer_class torch_dtype"
    " torchscript transformers_version use_bfloat16 use_cache pooler_fc_size pooler_num_attention_heads"
    " pooler_num_fc_layers pooler_size_per_head pooler_type".split()
)
# Keys that change the result, with the only values whose result we compute.
SUPPORTED: dict[str, tuple[Any, ...]] = {
    "add_cross_attention": (False, None),
    "is_decoder": (False, None),
    "position_embedding_type": ("absolute", None),
    "problem_type": ("single_label_classification", "multi_label_classification", "regression", None),
    "pruned_heads": ({}, None),
    "quantization_config": (None,),
}
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
}


KINDS = {  # what their classes for our heads are called
    "masked_words": "MaskedLM",
    "classes": "SequenceClassification",
    "tokens": "TokenClassification",
    "spans": "QuestionAnswering",
}


def architectures(name: str) -> dict[frozenset[str], str]:
    """The classes that every family has."""
    return {frozenset(): f"{name}Model", **{frozenset({head}): f"{name}For{kind}" for head, kind in KINDS.items()}}


@dataclass(frozen=True)
class Variant:
    """One family, as data.

    fields: our config field -> their config key. axes: config fields the family fixes, or begins with where its config
    is silent. supported: further keys with the values we compute. harmless: further keys without meaning here. names:
    our module -> theirs (several are stacked, in order), `{}` for the layer's number. heads: the same for each head,
    and for the pooler where it is called otherwise beside that head. architectures: heads -> transformers' class.
    read: what of a config needs more than a new name, their config -> our fields; write: the way back. new: what a new
    model has in place of a BERT's axes of the same size. objective, pairs: what its paper trains it on. longest: tokens
    that a new model reads at most. pools_means: whether their head for classes can read the mean of the tokens.
    """

    model_type: str
    prefix: str
    fields: Mapping[str, str]
    names: Mapping[str, str | tuple[str, ...]]
    heads: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    architectures: Mapping[frozenset[str], str] = field(default_factory=dict)
    axes: Mapping[str, Any] = field(default_factory=dict)
    supported: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    harmless: frozenset[str] = frozenset()
    read: Callable[[Mapping[str, Any]], dict[str, Any]] = lambda theirs: {}
    write: Callable[[EncoderConfig], dict[str, Any]] = lambda config: {}
    new: Callable[[EncoderConfig], EncoderConfig] = lambda config: config
    objective: Literal["masked", "enhanced", "replaced"] = "masked"
    longest: int = 512
    pools_means: bool = False
    pairs: Literal["next", "order", "none"] = "none"

    def config(self, theirs: Mapping[str, Any], source: object) -> tuple[EncoderConfig, dict[str, Any]]:
        """Our config, and the keys nobody knows (to be kept and written back). InputError names what is unsupported."""
        for key, values in {**SUPPORTED, **self.supported}.items():
            if key in theirs and theirs[key] not in values and key not in self.harmless:
                raise InputError(
                    f"{source}: {key}={theirs[key]!r:.60} is not supported for {self.model_type} ({values[0]!r} is)"
                )
        ours = {name: theirs[key] for name, key in self.fields.items() if theirs.get(key) is not None}
        if "hidden_act" in ours:
            act, known = ours["hidden_act"], ", ".join(ACTIVATIONS)
            if not isinstance(act, str) or act not in ACTIVATIONS:
                raise InputError(f"{source}: {self.fields['hidden_act']}={act!r:.60} is not supported; {known} are")
            ours["hidden_act"] = ACTIVATIONS[act]
        if missing := {"vocab_size", "hidden_size", "num_hidden_layers"} - set(ours):
            keys = ", ".join(sorted(self.fields[name] for name in missing))
            raise InputError(f"{source}: lacks {keys}; it is not a whole {self.model_type} config")
        expected = set(self.fields.values()) | HARMLESS | set(SUPPORTED) | set(self.supported) | self.harmless
        extra = {key: value for key, value in theirs.items() if key not in expected}
        try:
            config = EncoderConfig(**{**self.axes, **ours, **self.read(theirs)})
        except InputError as error:
            raise InputError(f"{source}: {error}") from None
        except (TypeError, AttributeError, LookupError, ValueError, OverflowError, RecursionError) as error:
            raise InputError(f"{source}: a value of another type than {self.model_type} has ({error!s:.100})") from None
        return config, extra

    def config_json(self, config: EncoderConfig) -> dict[str, Any]:
        """Our config by their keys."""
        theirs = {key: getattr(config, name) for name, key in self.fields.items()}
        names = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
        theirs[self.fields["hidden_act"]] = names[config.hidden_act]
        return {"model_type": self.model_type, **theirs, **self.write(config)}

    def parameters(self, ours: str, heads: Collection[str]) -> tuple[str, ...]:
        """Their names for one of our parameters (`encoder.layers.3.attention.qkv.weight`); several are stacked.

        heads: those of the model.
        """
        if head := re.match(r"heads\.(\w+)\.(.+)", ours):
            return _translate(self.heads.get(head[1], {}), head[2], "")
        if ours.startswith("pooler."):
            for table in (self.heads.get(name, {}) for name in heads):
                if own := _translate(table, ours, ""):
                    return own
        return _translate(self.names, ours.removeprefix("encoder."), self.prefix)


def _translate(
    table: Mapping[str, str] | Mapping[str, str | tuple[str, ...]], ours: str, prefix: str
) -> tuple[str, ...]:
    number = re.search(r"\.(\d+)\.", ours)
    shape = ours.replace(f".{number[1]}.", ".{}.", 1) if number else ours
    module, _, parameter = shape.rpartition(".")
    theirs, suffix = (table[shape], "") if shape in table else (table.get(module), f".{parameter}")
    if theirs is None:
        return ()
    several = (theirs,) if isinstance(theirs, str) else theirs
    return tuple(prefix + name.format(number[1] if number else "") + suffix for name in several)
