"""Families for long texts: BigBird (Zaheer 2020), BERT with attention to neighbouring, first, last and random blocks;
Longformer (Beltagy 2020), RoBERTa with window attention and a few global tokens."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bothways.base.errors import InputError
from bothways.model.config import EncoderConfig, GlobalTokensConfig, RandomBlocksConfig
from bothways.model.families.bert import BERT, LAYER, ROBERTA, read_roberta, write_roberta
from bothways.model.families.spec import architectures


def read_big_bird(hf_config: Mapping[str, Any]) -> dict[str, Any]:
    blocks = RandomBlocksConfig(size=hf_config.get("block_size", 64), num_random=hf_config.get("num_random_blocks", 3))
    return {"sparse_attention": blocks if hf_config.get("attention_type", "block_sparse") == "block_sparse" else None}


def write_big_bird(config: EncoderConfig) -> dict[str, Any]:
    blocks = config.sparse_attention
    if not isinstance(blocks, RandomBlocksConfig):
        return {"attention_type": "original_full"}
    return {"attention_type": "block_sparse", "block_size": blocks.size, "num_random_blocks": blocks.num_random}


BIG_BIRD = replace(
    BERT,
    model_type="big_bird",
    defaults={"hidden_act": "gelu_tanh", "pooler_dropout": True, "deep_heads": True, "max_position_embeddings": 4096},
    supported_values={
        "attention_type": ("block_sparse", "original_full"),
        "rescale_embeddings": (False,),
        "use_bias": (True,),
    },
    ignored_keys=frozenset({"block_size", "num_random_blocks", "gradient_checkpointing", "is_encoder_decoder"}),
    parameter_names={**BERT.parameter_names, "pooler.dense": "pooler"},
    head_names={
        **BERT.head_names,
        "classes": {"output": "classifier.out_proj", "pooler.dense": "classifier.dense"},
        "spans": {
            "output": "qa_classifier.qa_outputs",
            "feed_forward.inner": "qa_classifier.intermediate.dense",
            "feed_forward.output": "qa_classifier.output.dense",
            "norm": "qa_classifier.output.LayerNorm",
        },
    },
    architectures={**architectures("BigBird"), frozenset({"masked_words", "next_sentence"}): "BigBirdForPreTraining"},
    read_config=read_big_bird,
    write_config=write_big_bird,
    pairs="none",
    max_length=4096,
    new_config=lambda config: config.replace(
        hidden_act="gelu_tanh", deep_heads=True, pooler_dropout=True, sparse_attention=RandomBlocksConfig()
    ),
)


# --- Longformer -------------------------------------------------------------------------------------------------------

DEFAULT_WINDOW = 512


def read_longformer(hf_config: Mapping[str, Any]) -> dict[str, Any]:
    """attention_window counts both sides together; it is one size for all layers, or a list of sizes."""
    window = hf_config.get("attention_window", DEFAULT_WINDOW)
    windows = window if isinstance(window, list) else [window]
    if len(set(windows)) != 1:
        raise InputError(
            f"attention_window={window!r:.60} with different sizes is not supported; use one size for all layers"
        )
    if not isinstance(windows[0], int) or windows[0] < 2 or windows[0] % 2:
        raise InputError(f"attention_window={window!r:.60} is not supported; use an even number of tokens")
    separator = hf_config.get("sep_token_id", 2)
    if not isinstance(separator, int) or separator < 0:
        raise InputError(f"sep_token_id={separator!r:.60} is not supported; use the id of the separator")
    return {
        **read_roberta(hf_config),
        "attention_window": windows[0] // 2,
        "full_attention_every": 0,
        "sparse_attention": GlobalTokensConfig(separator=separator),
    }


def write_longformer(config: EncoderConfig) -> dict[str, Any]:
    assert isinstance(config.sparse_attention, GlobalTokensConfig)
    windows = [2 * config.attention_window] * config.num_hidden_layers
    return {**write_roberta(config), "attention_window": windows, "sep_token_id": config.sparse_attention.separator}


LONGFORMER = replace(
    ROBERTA,
    model_type="longformer",
    prefix="longformer.",
    defaults={
        **ROBERTA.defaults,
        "attention_window": DEFAULT_WINDOW // 2,
        "full_attention_every": 0,
        "sparse_attention": GlobalTokensConfig(separator=2),
    },
    parameter_names={
        **ROBERTA.parameter_names,
        "layers.{}.attention.global_query": f"{LAYER}attention.self.query_global",
        "layers.{}.attention.global_key_value": tuple(
            f"{LAYER}attention.self.{part}_global" for part in ("key", "value")
        ),
    },
    architectures=architectures("Longformer"),
    ignored_keys=frozenset(
        {"attention_window", "attention_mode", "gradient_checkpointing", "ignore_attention_mask", "onnx_export"}
    ),
    read_config=read_longformer,
    write_config=write_longformer,
    max_length=4096,
    new_config=lambda config: ROBERTA.new_config(config).replace(
        attention_window=DEFAULT_WINDOW // 2,
        full_attention_every=0,
        sparse_attention=GlobalTokensConfig(separator=config.pad_token_id),
    ),
)
