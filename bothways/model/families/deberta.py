"""DeBERTa (He 2021), and versions 2 and 3 (He 2021b): relative positions in every attention score.

All layers share one table of distances; the embeddings contain no absolute positions.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bothways.base.errors import InputError
from bothways.model.config import EncoderConfig, RelativePositionsConfig
from bothways.model.families.bert import BERT, EMBEDDINGS, FIELDS, LAYER, LAYERS, OUTPUTS
from bothways.model.families.spec import ACTIVATION_NAMES, ACTIVATIONS, FamilySpec, architectures

NEW: dict[str, Any] = {  # of new models
    "type_vocab_size": 0,
    "position_embedding": "none",
    "pooler_act": "gelu",
    "layer_norm_eps": 1e-7,
}
BUCKETS = 256
SELF = f"{LAYER}attention.self."


def read_config(hf_config: Mapping[str, Any], *, joint: bool) -> dict[str, Any]:
    family = "deberta" if joint else "deberta-v2"
    if not hf_config.get("relative_attention"):
        raise InputError(f"relative_attention=False is not supported for {family} (True is)")

    terms = hf_config.get("pos_att_type") or []
    terms = tuple(terms.split("|") if isinstance(terms, str) else terms)
    if not terms or not {*terms} <= {"c2p", "p2c"}:
        raise InputError(f"pos_att_type={hf_config.get('pos_att_type')!r:.60} is not supported; use c2p, p2c or both")

    max_distance = hf_config.get("max_relative_positions", -1)
    activation = hf_config.get("pooler_hidden_act", "gelu")
    if hf_config.get("embedding_size", hf_config.get("hidden_size")) != hf_config.get("hidden_size"):
        raise InputError(f"embedding_size other than hidden_size is not supported for {family}")
    relative = RelativePositionsConfig(
        max_distance=max_distance if max_distance > 0 else hf_config.get("max_position_embeddings", 512),
        buckets=max(0, hf_config.get("position_buckets", -1)) if not joint else 0,
        terms=tuple(term for term in ("c2p", "p2c") if term in terms),
        shared=bool(hf_config.get("share_att_key")) and not joint,
        joint=joint,
        norm="layer_norm" in str(hf_config.get("norm_rel_ebd", "none")).lower() and not joint,
        kernel=hf_config.get("conv_kernel_size", 0) if not joint else 0,
        kernel_act=hf_config.get("conv_act", "tanh"),
    )
    return {
        "relative_positions": relative,
        "position_embedding": "learned" if hf_config.get("position_biased_input", True) else "none",
        "pooler_act": ACTIVATIONS.get(activation, activation),
    }


def write_config(config: EncoderConfig) -> dict[str, Any]:
    relative = config.relative_positions
    assert relative is not None
    more = {
        "position_buckets": relative.buckets or -1,
        "share_att_key": relative.shared,
        "norm_rel_ebd": "layer_norm" if relative.norm else "none",
        **({"conv_kernel_size": relative.kernel, "conv_act": relative.kernel_act} if relative.kernel else {}),
    }
    return {
        "relative_attention": True,
        "max_relative_positions": relative.max_distance,
        "pos_att_type": list(relative.terms),
        "position_biased_input": config.position_embedding == "learned",
        "pooler_hidden_act": ACTIVATION_NAMES.get(config.pooler_act, config.pooler_act),
        "pooler_hidden_size": config.hidden_size,
        "pooler_dropout": 0.0,
        **({} if relative.joint else more),
    }


DEBERTA = FamilySpec(
    model_type="deberta",
    prefix="deberta.",
    config_keys={**FIELDS, "classifier_dropout": "cls_dropout"},
    defaults={
        "type_vocab_size": 0,
        "layer_norm_eps": 1e-7,
        "pooler_act": "gelu",
        "relative_positions": RelativePositionsConfig(max_distance=512, joint=True),
    },
    supported_values={
        "legacy": (True,),
        "talking_head": (False,),
        "pooler_dropout": (0, 0.0),
        "conv_groups": (1,),
        "conv_act": ("tanh", "gelu", "relu"),
        "z_steps": (0, None),
    },
    ignored_keys=frozenset(
        {
            "relative_attention",
            "max_relative_positions",
            "pos_att_type",
            "position_biased_input",
            "pooler_hidden_act",
            "pooler_hidden_size",
            "embedding_size",
            "padding_idx",
        }
    ),
    parameter_names={
        **EMBEDDINGS,
        **LAYERS,
        "layers.{}.attention.qkv": f"{SELF}in_proj",
        "layers.{}.attention.query_bias": f"{SELF}q_bias",
        "layers.{}.attention.value_bias": f"{SELF}v_bias",
        "layers.{}.attention.position_key": f"{SELF}pos_proj",
        "layers.{}.attention.position_query": f"{SELF}pos_q_proj",
        "shared.distances.table": "encoder.rel_embeddings",
    },
    head_names={
        "masked_words": BERT.head_names["masked_words"],
        **OUTPUTS,
        "classes": {"output": "classifier", "pooler.dense": "pooler.dense"},
    },
    architectures=architectures("Deberta"),
    read_config=lambda hf_config: read_config(hf_config, joint=True),
    write_config=write_config,
    objective="enhanced",
    new_config=lambda config: config.replace(
        **NEW, relative_positions=RelativePositionsConfig(max_distance=config.max_position_embeddings, joint=True)
    ),
)
DEBERTA_V2 = replace(
    DEBERTA,
    model_type="deberta-v2",
    defaults={
        **DEBERTA.defaults,
        "num_attention_heads": 24,
        "intermediate_size": 6144,
        "relative_positions": RelativePositionsConfig(max_distance=512),
    },
    # transformers has no class for version 3's task. The names are ours: the published head (mask_predictions) is a
    # different function, which adds [CLS]'s state and a norm.
    head_names={
        **DEBERTA.head_names,
        "replaced_tokens": {"transform": "replaced_tokens.dense", "output": "replaced_tokens.classifier"},
    },
    ignored_keys=DEBERTA.ignored_keys | {"position_buckets", "share_att_key", "norm_rel_ebd", "conv_kernel_size"},
    parameter_names={
        **EMBEDDINGS,
        **LAYERS,
        "layers.{}.attention.qkv": tuple(f"{SELF}{part}_proj" for part in ("query", "key", "value")),
        "layers.{}.attention.position_key": f"{SELF}pos_key_proj",
        "layers.{}.attention.position_query": f"{SELF}pos_query_proj",
        "layers.{}.convolution": "encoder.conv.conv",
        "layers.{}.convolution_norm": "encoder.conv.LayerNorm",
        "shared.distances.table": "encoder.rel_embeddings",
        "shared.distances.norm": "encoder.LayerNorm",
    },
    architectures={**architectures("DebertaV2"), frozenset({"replaced_tokens"}): "DebertaV2Model"},
    read_config=lambda hf_config: read_config(hf_config, joint=False),
    objective="replaced",
    new_config=lambda config: config.replace(
        **NEW,
        relative_positions=RelativePositionsConfig(
            max_distance=config.max_position_embeddings, buckets=BUCKETS, shared=True, norm=True
        ),
    ),
)
