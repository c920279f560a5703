"""ALBERT (Lan 2020): a narrow token table, layers that share their weights, and the order of two sentences in place of
the next one."""

from collections.abc import Mapping
from typing import Any

from bothways.config import EncoderConfig
from bothways.errors import InputError
from bothways.families.bert import EMBEDDINGS, FIELDS
from bothways.families.spec import Variant, architectures

LAYER = "encoder.albert_layer_groups.{}.albert_layers.0."


def read(theirs: Mapping[str, Any]) -> dict[str, Any]:
    narrow, wide = theirs.get("embedding_size", 128), theirs.get("hidden_size")
    if narrow == wide:
        raise InputError(
            f"embedding_size={narrow} as wide as hidden_size is not supported for albert (a narrower one is)"
        )
    return {"layer_groups": theirs.get("num_hidden_groups", 1)}


def write(config: EncoderConfig) -> dict[str, Any]:
    # transformers wants a number for the rate, where ours may be that of the layers.
    return {
        "num_hidden_groups": config.own_layers, "inner_group_num": 1, "classifier_dropout_prob": config.head_dropout,
    }  # fmt: skip


ALBERT = Variant(
    model_type="albert",
    pairs="order",
    prefix="albert.",
    fields={**FIELDS, "embedding_size": "embedding_size", "classifier_dropout": "classifier_dropout_prob"},
    axes={
        "num_attention_heads": 64,
        "intermediate_size": 16384,
        "embedding_size": 128,
        "layer_groups": 1,
        "hidden_act": "gelu_tanh",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "classifier_dropout": 0.1,
    },
    supported={"inner_group_num": (1,)},
    harmless=frozenset(
        {"num_hidden_groups", "net_structure_type", "gap_size", "num_memory_blocks", "down_scale_factor"}
    ),
    names={
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
    heads={
        "masked_words": {
            "transform": "predictions.dense",
            "norm": "predictions.LayerNorm",
            "bias": "predictions.bias",
        },
        "next_sentence": {"output": "sop_classifier.classifier"},
        "classes": {"output": "classifier"},
        "tokens": {"output": "classifier"},
        "spans": {"output": "qa_outputs"},
    },
    architectures={
        **architectures("Albert"),
        frozenset({"masked_words", "next_sentence"}): "AlbertForPreTraining",
    },
    read=read,
    write=write,
    new=lambda config: config.changed(
        embedding_size=min(128, config.hidden_size // 2), layer_groups=1, hidden_act="gelu_tanh"
    ),
)
