"""BigBird (Zaheer 2020): BERT with attention to neighbouring, first, last and random blocks."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bothways.model.config import EncoderConfig, RandomBlocksConfig
from bothways.model.families.bert import BERT
from bothways.model.families.spec import architectures


def read_config(hf_config: Mapping[str, Any]) -> dict[str, Any]:
    blocks = RandomBlocksConfig(size=hf_config.get("block_size", 64), num_random=hf_config.get("num_random_blocks", 3))
    return {"sparse_attention": blocks if hf_config.get("attention_type", "block_sparse") == "block_sparse" else None}


def write_config(config: EncoderConfig) -> dict[str, Any]:
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
    read_config=read_config,
    write_config=write_config,
    pairs="none",
    max_length=4096,
    new_config=lambda config: config.replace(
        hidden_act="gelu_tanh", deep_heads=True, pooler_dropout=True, sparse_attention=RandomBlocksConfig()
    ),
)
