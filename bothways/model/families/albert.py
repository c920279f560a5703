"""ALBERT (Lan 2020): factorized embeddings, shared layers, sentence order prediction."""

from collections.abc import Mapping
from typing import Any

from bothways.base.errors import InputError
from bothways.model.config import EncoderConfig
from bothways.model.families.bert import EMBEDDINGS, FIELDS, OUTPUTS
from bothways.model.families.spec import FamilySpec, architectures

LAYER = "encoder.albert_layer_groups.{}.albert_layers.0."


def read_config(hf_config: Mapping[str, Any]) -> dict[str, Any]:
    embedding = hf_config.get("embedding_size", 128)
    if embedding == hf_config.get("hidden_size"):
        raise InputError(
            f"embedding_size={embedding} equal to hidden_size is not supported for albert (a smaller one is)"
        )
    return {"num_layer_groups": hf_config.get("num_hidden_groups", 1)}


def write_config(config: EncoderConfig) -> dict[str, Any]:
    # transformers needs a number, even if ours is None (the layers' rate).
    return {
        "num_hidden_groups": config.num_unique_layers,
        "inner_group_num": 1,
        "classifier_dropout_prob": config.head_dropout,
    }


ALBERT = FamilySpec(
    model_type="albert",
    pairs="order",
    prefix="albert.",
    config_keys={**FIELDS, "embedding_size": "embedding_size", "classifier_dropout": "classifier_dropout_prob"},
    defaults={
        "num_attention_heads": 64,
        "intermediate_size": 16384,
        "embedding_size": 128,
        "num_layer_groups": 1,
        "hidden_act": "gelu_tanh",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "classifier_dropout": 0.1,
    },
    supported_values={"inner_group_num": (1,)},
    ignored_keys=frozenset(
        {
            "num_hidden_groups",
            "net_structure_type",
            "gap_size",
            "num_memory_blocks",
            "down_scale_factor",
        }
    ),
    parameter_names={
        **EMBEDDINGS,
        "embeddings.widen": "encoder.embedding_hidden_mapping_in",
        "layers.{}.attention.qkv": tuple(f"{LAYER}attention.{part}" for part in ("query", "key", "value")),
        "layers.{}.attention.output": f"{LAYER}attention.dense",
        "layers.{}.attention_norm": f"{LAYER}attention.LayerNorm",
        "layers.{}.feed_forward.inner": f"{LAYER}ffn",
        "layers.{}.feed_forward.output": f"{LAYER}ffn_output",
        "layers.{}.feed_forward_norm": f"{LAYER}full_layer_layer_norm",
        "pooler.dense": "pooler",
    },
    head_names={
        "masked_words": {"transform": "predictions.dense", "norm": "predictions.LayerNorm", "bias": "predictions.bias"},
        "next_sentence": {"output": "sop_classifier.classifier"},
        **OUTPUTS,
    },
    architectures={**architectures("Albert"), frozenset({"masked_words", "next_sentence"}): "AlbertForPreTraining"},
    read_config=read_config,
    write_config=write_config,
    new_config=lambda config: config.replace(
        embedding_size=min(128, config.hidden_size // 2),
        num_layer_groups=1,
        hidden_act="gelu_tanh",
    ),
)
