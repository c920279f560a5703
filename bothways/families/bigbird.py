"""BigBird (Zaheer 2020): BERT whose blocks of tokens see their neighbours, the first, the last and some at random."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bothways.axes import RandomBlocks
from bothways.config import EncoderConfig
from bothways.families.bert import BERT
from bothways.families.spec import architectures


def read(theirs: Mapping[str, Any]) -> dict[str, Any]:
    far = RandomBlocks(size=theirs.get("block_size", 64), number=theirs.get("num_random_blocks", 3))
    return {"far": far if theirs.get("attention_type", "block_sparse") == "block_sparse" else None}


def write(config: EncoderConfig) -> dict[str, Any]:
    if not isinstance(config.far, RandomBlocks):
        return {"attention_type": "original_full"}
    return {
        "attention_type": "block_sparse", "block_size": config.far.size, "num_random_blocks": config.far.number
    }  # fmt: skip


BIG_BIRD = replace(
    BERT,
    model_type="big_bird",
    axes={
        "hidden_act": "gelu_tanh",
        "pooler_dropout": True,
        "layers_in_heads": True,
        "max_position_embeddings": 4096,
    },
    supported={
        "attention_type": ("block_sparse", "original_full"),
        "rescale_embeddings": (False,),
        "use_bias": (True,),
    },
    harmless=frozenset({"block_size", "num_random_blocks", "gradient_checkpointing", "is_encoder_decoder"}),
    names={**BERT.names, "pooler.dense": "pooler"},
    heads={
        **BERT.heads,
        "classes": {"output": "classifier.out_proj", "pooler.dense": "classifier.dense"},
        "spans": {
            "output": "qa_classifier.qa_outputs",
            "feed_forward.inner": "qa_classifier.intermediate.dense",
            "feed_forward.output": "qa_classifier.output.dense",
            "norm": "qa_classifier.output.LayerNorm",
        },
    },
    architectures={
        **architectures("BigBird"),
        frozenset({"masked_words", "next_sentence"}): "BigBirdForPreTraining",
    },
    read=read,
    write=write,
    pairs="none",
    longest=4096,
    new=lambda config: config.changed(
        hidden_act="gelu_tanh", layers_in_heads=True, pooler_dropout=True, far=RandomBlocks()
    ),
)
