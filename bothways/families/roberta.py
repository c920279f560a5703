"""RoBERTa (Liu 2019), XLM-RoBERTa (Conneau 2020): BERT with one segment and shifted positions."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bothways.config import EncoderConfig
from bothways.families.bert import EMBEDDINGS, FIELDS, LAYERS
from bothways.families.spec import FamilySpec, architectures


def read_config(hf_config: Mapping[str, Any]) -> dict[str, Any]:
    padding, positions = (hf_config.get(key) for key in ("pad_token_id", "max_position_embeddings"))
    first = (1 if padding is None else padding) + 1
    return {"position_offset": first, "max_position_embeddings": (512 if positions is None else positions) - first}


def write_config(config: EncoderConfig) -> dict[str, Any]:
    return {"max_position_embeddings": config.max_position_embeddings + config.position_offset}


ROBERTA = FamilySpec(
    model_type="roberta",
    supports_mean_layer=True,
    prefix="roberta.",
    config_keys=FIELDS,
    defaults={"pad_token_id": 1, "pooler_dropout": True},
    supported_values={"hidden_act": ("gelu",)},  # transformers' masked LM head uses gelu whatever the layers use
    parameter_names={**EMBEDDINGS, **LAYERS, "pooler.dense": "pooler.dense"},
    head_names={
        "masked_words": {"transform": "lm_head.dense", "norm": "lm_head.layer_norm", "bias": "lm_head.bias"},
        "classes": {"output": "classifier.out_proj", "pooler.dense": "classifier.dense"},
        "tokens": {"output": "classifier"},
        "spans": {"output": "qa_outputs"},
    },
    architectures=architectures("Roberta"),
    read_config=read_config,
    write_config=write_config,
    new_config=lambda config: config.replace(
        type_vocab_size=1, position_offset=config.pad_token_id + 1, pooler_dropout=True
    ),
)
XLM_ROBERTA = replace(
    ROBERTA,
    model_type="xlm-roberta",
    architectures={heads: f"XLM{name}" for heads, name in ROBERTA.architectures.items()},
)
