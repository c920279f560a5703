"""BERT (Devlin 2018): the default of every config field; also MiniLM, SciBERT and others. And the families with its
layers: DistilBERT, ELECTRA, RoBERTa, XLM-RoBERTa and one-way BERT."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bothways.model.config import EncoderConfig
from bothways.model.families.spec import FamilySpec, architectures

FIELDS = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_hidden_layers": "num_hidden_layers",
    "num_attention_heads": "num_attention_heads",
    "intermediate_size": "intermediate_size",
    "max_position_embeddings": "max_position_embeddings",
    "type_vocab_size": "type_vocab_size",
    "hidden_act": "hidden_act",
    "hidden_dropout_prob": "hidden_dropout_prob",
    "attention_probs_dropout_prob": "attention_probs_dropout_prob",
    "classifier_dropout": "classifier_dropout",
    "initializer_range": "initializer_range",
    "layer_norm_eps": "layer_norm_eps",
    "pad_token_id": "pad_token_id",
}
LAYER = "encoder.layer.{}."
LAYERS: dict[str, str | tuple[str, ...]] = {
    "layers.{}.attention.qkv": tuple(f"{LAYER}attention.self.{part}" for part in ("query", "key", "value")),
    "layers.{}.attention.output": f"{LAYER}attention.output.dense",
    "layers.{}.attention_norm": f"{LAYER}attention.output.LayerNorm",
    "layers.{}.feed_forward.inner": f"{LAYER}intermediate.dense",
    "layers.{}.feed_forward.output": f"{LAYER}output.dense",
    "layers.{}.feed_forward_norm": f"{LAYER}output.LayerNorm",
}
EMBEDDINGS = {
    "embeddings.words": "embeddings.word_embeddings",
    "embeddings.positions": "embeddings.position_embeddings",
    "embeddings.segments": "embeddings.token_type_embeddings",
    "embeddings.norm": "embeddings.LayerNorm",
}
OUTPUTS = {
    "classes": {"output": "classifier"},
    "tokens": {"output": "classifier"},
    "spans": {"output": "qa_outputs"},
}

BERT = FamilySpec(
    model_type="bert",
    supports_mean_layer=True,
    pairs="next",
    prefix="bert.",
    config_keys=FIELDS,
    ignored_keys=frozenset({"cell", "emb_size", "pre_trained", "structure", "training"}),  # TinyBERT
    parameter_names={**EMBEDDINGS, **LAYERS, "pooler.dense": "pooler.dense"},
    head_names={
        "masked_words": {
            "transform": "cls.predictions.transform.dense",
            "norm": "cls.predictions.transform.LayerNorm",
            "bias": "cls.predictions.bias",
        },
        "next_sentence": {"output": "cls.seq_relationship"},
        **OUTPUTS,
    },
    architectures={
        **architectures("Bert"),
        frozenset({"masked_words", "next_sentence"}): "BertForPreTraining",
        frozenset({"next_sentence"}): "BertForNextSentencePrediction",
    },
)


# --- DistilBERT (Sanh 2019): half of BERT's layers, no segments, no pooler, other parameter names ---------------------

HALF_LAYER = "transformer.layer.{}."

DISTILBERT = FamilySpec(
    model_type="distilbert",
    prefix="distilbert.",
    config_keys={
        "vocab_size": "vocab_size",
        "hidden_size": "dim",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "intermediate_size": "hidden_dim",
        "max_position_embeddings": "max_position_embeddings",
        "hidden_act": "activation",
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
        "classifier_dropout": "seq_classif_dropout",
        "initializer_range": "initializer_range",
        "pad_token_id": "pad_token_id",
    },
    defaults={"type_vocab_size": 0, "layer_norm_eps": 1e-12, "pooler_act": "relu"},
    write_config=lambda config: {"seq_classif_dropout": config.head_dropout},  # transformers needs a number
    new_config=lambda config: config.replace(type_vocab_size=0, pooler_act="relu"),
    ignored_keys=frozenset({"qa_dropout", "sinusoidal_pos_embds", "tie_weights_"}),
    parameter_names={
        "embeddings.words": "embeddings.word_embeddings",
        "embeddings.positions": "embeddings.position_embeddings",
        "embeddings.norm": "embeddings.LayerNorm",
        "layers.{}.attention.qkv": tuple(f"{HALF_LAYER}attention.{part}_lin" for part in "qkv"),
        "layers.{}.attention.output": f"{HALF_LAYER}attention.out_lin",
        "layers.{}.attention_norm": f"{HALF_LAYER}sa_layer_norm",
        "layers.{}.feed_forward.inner": f"{HALF_LAYER}ffn.lin1",
        "layers.{}.feed_forward.output": f"{HALF_LAYER}ffn.lin2",
        "layers.{}.feed_forward_norm": f"{HALF_LAYER}output_layer_norm",
    },
    head_names={
        "masked_words": {"transform": "vocab_transform", "norm": "vocab_layer_norm", "bias": "vocab_projector.bias"},
        **OUTPUTS,
        "classes": {"output": "classifier", "pooler.dense": "pre_classifier"},
    },
    architectures=architectures("DistilBert"),
)


# --- ELECTRA (Clark 2020): BERT with smaller embeddings, trained to detect replaced tokens ----------------------------

ELECTRA = FamilySpec(
    model_type="electra",
    objective="replaced",
    prefix="electra.",
    config_keys={**FIELDS, "embedding_size": "embedding_size"},
    defaults={
        "num_attention_heads": 4,
        "intermediate_size": 1024,
        "embedding_size": 128,
        "pooler_act": "gelu",
        "pooler_dropout": True,
    },
    supported_values={"hidden_act": ("gelu",)},  # transformers' heads use gelu whatever the layers use
    ignored_keys=frozenset({"summary_activation", "summary_last_dropout", "summary_type", "summary_use_proj"}),
    parameter_names={**EMBEDDINGS, **LAYERS, "embeddings.widen": "embeddings_project"},
    head_names={
        "masked_words": {
            "transform": "generator_predictions.dense",
            "norm": "generator_predictions.LayerNorm",
            "bias": "generator_lm_head.bias",
        },
        "replaced_tokens": {
            "transform": "discriminator_predictions.dense",
            "output": "discriminator_predictions.dense_prediction",
        },
        **OUTPUTS,
        "classes": {"output": "classifier.out_proj", "pooler.dense": "classifier.dense"},
    },
    new_config=lambda config: config.replace(
        embedding_size=min(128, config.hidden_size // 2),
        pooler_act="gelu",
        pooler_dropout=True,
    ),
    architectures={**architectures("Electra"), frozenset({"replaced_tokens"}): "ElectraForPreTraining"},
)


# --- RoBERTa (Liu 2019), XLM-RoBERTa (Conneau 2020): BERT with one segment and shifted positions ----------------------


def read_roberta(hf_config: Mapping[str, Any]) -> dict[str, Any]:
    padding = hf_config.get("pad_token_id")
    positions = hf_config.get("max_position_embeddings")
    if padding is None:
        padding = 1
    if positions is None:
        positions = 512
    # Positions are counted from behind the padding's id.
    first = padding + 1
    return {
        "position_offset": first,
        "max_position_embeddings": positions - first,
    }


def write_roberta(config: EncoderConfig) -> dict[str, Any]:
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
        **OUTPUTS,
        "classes": {"output": "classifier.out_proj", "pooler.dense": "classifier.dense"},
    },
    architectures=architectures("Roberta"),
    read_config=read_roberta,
    write_config=write_roberta,
    new_config=lambda config: config.replace(
        type_vocab_size=1,
        position_offset=config.pad_token_id + 1,
        pooler_dropout=True,
    ),
)
XLM_ROBERTA = replace(
    ROBERTA,
    model_type="xlm-roberta",
    architectures={heads: f"XLM{name}" for heads, name in ROBERTA.architectures.items()},
)


# --- one-way BERT: left to right (Radford 2018), or two one-way halves (Peters 2018); our own model_type --------------

UNSUPPORTED_HEADS = {"next_sentence", "spans"}  # they read [CLS], which attends to nothing before it


def backward_names(names: Mapping[str, str | tuple[str, ...]]) -> dict[str, str | tuple[str, ...]]:
    """The names of the layers of the backward half, by the names of a layer."""

    def renamed(name: str) -> str:
        return name.replace("encoder.layer.", "encoder.back.")

    result: dict[str, str | tuple[str, ...]] = {}
    for module, hf_name in names.items():
        if isinstance(hf_name, str):
            result[f"back.{module}"] = renamed(hf_name)
        else:
            result[f"back.{module}"] = tuple(renamed(part) for part in hf_name)
    return result


ONE_WAY: FamilySpec = replace(
    BERT,
    model_type="bothways-oneway",
    pairs="none",
    config_keys={**FIELDS, "direction": "direction", "embedding_size": "embedding_size"},
    parameter_names={**BERT.parameter_names, **backward_names(LAYERS)},
    head_names={name: table for name, table in BERT.head_names.items() if name not in UNSUPPORTED_HEADS},
    architectures={
        heads: name.replace("Bert", "BothwaysOneWay")
        for heads, name in BERT.architectures.items()
        if not heads & UNSUPPORTED_HEADS
    },
)
