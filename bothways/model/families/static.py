"""Static vectors (Tulkens 2024, model2vec): a vector for each token, whose mean is the vector of a text; no layers."""

from bothways.model.families.spec import FamilySpec

STATIC = FamilySpec(
    model_type="static",
    prefix="",
    config_keys={
        "vocab_size": "vocab_size",
        "hidden_size": "hidden_size",
        "num_hidden_layers": "num_hidden_layers",
        "max_position_embeddings": "max_position_embeddings",
        "hidden_act": "hidden_act",
        "hidden_dropout_prob": "hidden_dropout_prob",
        "classifier_dropout": "classifier_dropout",
        "initializer_range": "initializer_range",
        "pad_token_id": "pad_token_id",
    },
    defaults={
        "num_hidden_layers": 0,
        "num_attention_heads": 1,
        "intermediate_size": 1,
        "attention_probs_dropout_prob": 0.0,
        "max_position_embeddings": 1 << 20,  # no text is too long, but a window has an end
        "type_vocab_size": 0,
        "position_embedding": "none",
        "pooling": "mean",
        "pooler_act": "none",
    },
    parameter_names={
        "embeddings.words": "embedding",
        "embeddings.counts_V": "counts",
    },
    head_names={"classes": {"output": "classifier"}},
    architectures={
        frozenset(): "StaticModel",
        frozenset({"classes"}): "StaticForSequenceClassification",
    },
)
