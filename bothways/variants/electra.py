"""ELECTRA (Clark 2020): BERT's layers over a narrow token table, and no pooler."""

from bothways.variants.bert import EMBEDDINGS, FIELDS, LAYERS
from bothways.variants.variant import Variant

ELECTRA = Variant(
    model_type="electra",
    prefix="electra.",
    fields={**FIELDS, "embedding_size": "embedding_size"},
    harmless=frozenset({"summary_activation", "summary_last_dropout", "summary_type", "summary_use_proj"}),
    names={**EMBEDDINGS, **LAYERS, "embeddings.widen": "embeddings_project"},
    heads={
        "masked_words": {
            "transform": "generator_predictions.dense",
            "norm": "generator_predictions.LayerNorm",
            "bias": "generator_lm_head.bias",
        }
    },
    architectures={frozenset(): "ElectraModel", frozenset({"masked_words"}): "ElectraForMaskedLM"},
)
