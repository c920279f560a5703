"""DistilBERT (Sanh 2019): half of BERT's layers, no segments, no pooler, other parameter names."""

from bothways.families.spec import FamilySpec, architectures

LAYER = "transformer.layer.{}."

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
        "layers.{}.attention.qkv": tuple(f"{LAYER}attention.{part}_lin" for part in "qkv"),
        "layers.{}.attention.output": f"{LAYER}attention.out_lin",
        "layers.{}.attention_norm": f"{LAYER}sa_layer_norm",
        "layers.{}.feed_forward.inner": f"{LAYER}ffn.lin1",
        "layers.{}.feed_forward.output": f"{LAYER}ffn.lin2",
        "layers.{}.feed_forward_norm": f"{LAYER}output_layer_norm",
    },
    head_names={
        "masked_words": {"transform": "vocab_transform", "norm": "vocab_layer_norm", "bias": "vocab_projector.bias"},
        "classes": {"output": "classifier", "pooler.dense": "pre_classifier"},
        "tokens": {"output": "classifier"},
        "spans": {"output": "qa_outputs"},
    },
    architectures=architectures("DistilBert"),
)
