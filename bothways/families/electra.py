"""ELECTRA (Clark 2020): BERT with smaller embeddings, trained to detect replaced tokens."""

from bothways.families.bert import EMBEDDINGS, FIELDS, LAYERS
from bothways.families.spec import FamilySpec, architectures

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
        "classes": {"output": "classifier.out_proj", "pooler.dense": "classifier.dense"},
        "tokens": {"output": "classifier"},
        "spans": {"output": "qa_outputs"},
    },
    new_config=lambda config: config.replace(
        embedding_size=min(128, config.hidden_size // 2), pooler_act="gelu", pooler_dropout=True
    ),
    architectures={
        **architectures("Electra"),
        frozenset({"replaced_tokens"}): "ElectraForPreTraining",
    },
)
