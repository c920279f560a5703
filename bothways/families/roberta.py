"""RoBERTa (Liu 2019) and XLM-RoBERTa (Conneau 2020): BERT's layers; positions begin behind the padding's entry, classes
have a pooler of their own, and there are no segments to speak of."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bothways.config import EncoderConfig
from bothways.families.bert import EMBEDDINGS, FIELDS, LAYERS
from bothways.families.spec import Variant, architectures


def read(theirs: Mapping[str, Any]) -> dict[str, Any]:
    padding, positions = (theirs.get(key) for key in ("pad_token_id", "max_position_embeddings"))
    first = (1 if padding is None else padding) + 1
    return {"first_position": first, "max_position_embeddings": (512 if positions is None else positions) - first}


def write(config: EncoderConfig) -> dict[str, Any]:
    return {"max_position_embeddings": config.max_position_embeddings + config.first_position}


ROBERTA = Variant(
    model_type="roberta",
    prefix="roberta.",
    fields=FIELDS,
    axes={"pad_token_id": 1, "pooler_dropout": True},
    supported={"hidden_act": ("gelu",)},  # the head for words has gelu, whatever the layers have
    names={**EMBEDDINGS, **LAYERS, "pooler.dense": "pooler.dense"},
    heads={
        "masked_words": {"transform": "lm_head.dense", "norm": "lm_head.layer_norm", "bias": "lm_head.bias"},
        "classes": {"output": "classifier.out_proj", "pooler.dense": "classifier.dense"},
        "tokens": {"output": "classifier"},
        "spans": {"output": "qa_outputs"},
    },
    architectures=architectures("Roberta"),
    read=read,
    write=write,
    new=lambda config: config.changed(type_vocab_size=1, first_position=config.pad_token_id + 1, pooler_dropout=True),
)
XLM_ROBERTA = replace(
    ROBERTA,
    model_type="xlm-roberta",
    architectures={heads: f"XLM{name}" for heads, name in ROBERTA.architectures.items()},
)
