"""ELECTRA (Clark 2020): BERT's layers over a narrow token table; finds replaced tokens; classes have a pooler of their
own."""

from bothways.families.bert import EMBEDDINGS, FIELDS, LAYERS
from bothways.families.spec import Variant, architectures

ELECTRA = Variant(
    model_type="electra",
    objective="replaced",
    prefix="electra.",
    fields={**FIELDS, "embedding_size": "embedding_size"},
    axes={
        "num_attention_heads": 4,
        "intermediate_size": 1024,
        "embedding_size": 128,
        "pooler_act": "gelu",
        "pooler_dropout": True,
    },
    supported={"hidden_act": ("gelu",)},  # the heads have gelu, whatever the layers have
    harmless=frozenset({"summary_activation", "summary_last_dropout", "summary_type", "summary_use_proj"}),
    names={**EMBEDDINGS, **LAYERS, "embeddings.widen": "embeddings_project"},
    heads={
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
    new=lambda config: config.changed(
        embedding_size=min(128, config.hidden_size // 2), pooler_act="gelu", pooler_dropout=True
    ),
    architectures={
        **architectures("Electra"),
        frozenset({"replaced_tokens"}): "ElectraForPreTraining",
    },
)
