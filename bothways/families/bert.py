"""BERT (Devlin 2018): the default of every config field; also MiniLM, SciBERT and others."""

from bothways.families.spec import FamilySpec, architectures

FIELDS = {
    name: name
    for name in (
        "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size max_position_embeddings"
        " type_vocab_size hidden_act hidden_dropout_prob attention_probs_dropout_prob classifier_dropout"
        " initializer_range layer_norm_eps pad_token_id"
    ).split()
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
        "classes": {"output": "classifier"},
        "tokens": {"output": "classifier"},
        "spans": {"output": "qa_outputs"},
    },
    architectures={
        **architectures("Bert"),
        frozenset({"masked_words", "next_sentence"}): "BertForPreTraining",
        frozenset({"next_sentence"}): "BertForNextSentencePrediction",
    },
)
