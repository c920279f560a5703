"""The shapes of the parameters of a model of BERT's layout, by our names."""

from collections.abc import Mapping

from bothways.model.config import NO_POOLER, NUM_OUTPUTS, POOLED_HEADS, EncoderConfig


def parameter_shapes(config: EncoderConfig, heads: Mapping[str, int], *, pooler: bool) -> dict[str, tuple[int, ...]]:
    """The parameters of a model of BERT's layout, by our names, matrices [out, in]."""
    size = config.embedding_size or config.hidden_size
    tables = {
        "words": config.vocab_size,
        "positions": config.position_offset + config.max_position_embeddings,
    }
    if config.type_vocab_size:
        tables["segments"] = config.type_vocab_size
    shapes: dict[str, tuple[int, ...]] = {}
    for name, rows in tables.items():
        shapes[f"encoder.embeddings.{name}.weight"] = (rows, size)
    if "masked_words" in heads:
        shapes["heads.masked_words.bias"] = (config.vocab_size,)

    for name, (outputs, inputs) in _linear_shapes(config, heads, pooler=pooler).items():
        shapes[f"{name}.weight"] = (outputs, inputs)
        shapes[f"{name}.bias"] = (outputs,)
    for name, length in _norm_sizes(config, heads).items():
        shapes[f"{name}.weight"] = (length,)
        shapes[f"{name}.bias"] = (length,)
    return shapes


def _linear_shapes(config: EncoderConfig, heads: Mapping[str, int], *, pooler: bool) -> dict[str, tuple[int, int]]:
    """The number of outputs and of inputs of each linear layer."""
    hidden = config.hidden_size
    inner = config.intermediate_size
    size = config.embedding_size or hidden
    attended = config.num_attention_heads * config.head_size

    shapes: dict[str, tuple[int, int]] = {}
    if size != hidden:
        shapes["encoder.embeddings.widen"] = (hidden, size)
    for index in range(config.num_unique_layers):
        layer = f"encoder.layers.{index}"
        shapes[f"{layer}.attention.qkv"] = (3 * attended, hidden)
        shapes[f"{layer}.attention.output"] = (hidden, attended)
        shapes[f"{layer}.feed_forward.inner"] = (inner, hidden)
        shapes[f"{layer}.feed_forward.output"] = (hidden, inner)

    needs_pooler = pooler or not heads.keys().isdisjoint(POOLED_HEADS)
    if needs_pooler and config.pooler_act not in NO_POOLER:
        shapes["pooler.dense"] = (hidden, hidden)

    for head, outputs in heads.items():
        if head == "masked_words":  # its last layer is the word table
            shapes[f"heads.{head}.transform"] = (size, hidden)
            continue
        if head == "replaced_tokens":
            shapes[f"heads.{head}.transform"] = (hidden, hidden)
        compares_pairs = head == "classes" and config.pooler_act == "pair"
        features = 4 * hidden if compares_pairs else hidden
        shapes[f"heads.{head}.output"] = (NUM_OUTPUTS.get(head, outputs), features)
    return shapes


def _norm_sizes(config: EncoderConfig, heads: Mapping[str, int]) -> dict[str, int]:
    size = config.embedding_size or config.hidden_size
    sizes = {"encoder.embeddings.norm": size}
    for index in range(config.num_unique_layers):
        sizes[f"encoder.layers.{index}.attention_norm"] = config.hidden_size
        sizes[f"encoder.layers.{index}.feed_forward_norm"] = config.hidden_size
    if "masked_words" in heads:
        sizes["heads.masked_words.norm"] = size
    return sizes
