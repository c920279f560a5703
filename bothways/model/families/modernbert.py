"""ModernBERT (Warner 2024): rotary positions, pre-norm, gated feed-forward, windows in most layers."""

from collections.abc import Mapping
from typing import Any

from bothways.base.errors import InputError
from bothways.model.config import EncoderConfig
from bothways.model.families.spec import ACTIVATION_NAMES, ACTIVATIONS, FamilySpec, architectures

DEFAULT_WINDOW = 128
DEFAULT_EVERY = 3
LONG = 512  # tokens; shorter texts are as fast without windows
# The kinds of layers, each with the key of its rotary base in older files, and the base of the published models.
ROPE_KINDS = {
    "full_attention": ("global_rope_theta", 160_000.0),
    "sliding_attention": ("local_rope_theta", 10_000.0),
}
POOLINGS = {"cls": "first", "mean": "mean"}
AXES: dict[str, Any] = {  # in which the family differs from BERT
    "type_vocab_size": 0,
    "position_embedding": "rotary",
    "norm": "pre",
    "feed_forward": "gated",
    "linear_bias": False,
    "norm_bias": False,
    "head_bias": False,
    "layer_norm_eps": 1e-5,
    "pooler_act": "gelu",
    "pooler_norm": True,
}
CLASSES = {
    "output": "classifier",
    "pooler.dense": "head.dense",
    "pooler.norm": "head.norm",
}
NO_DROPOUT = {
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "classifier_dropout": 0.0,
}


def read_rotary_bases(hf_config: Mapping[str, Any]) -> tuple[float, float]:
    """The bases of layers with full attention, and of layers with windows. InputError for scaled ones, and for a key
    that is not read."""
    if hf_config.get("rope_scaling"):
        raise InputError(f"rope_scaling {hf_config['rope_scaling']!r:.60} is not supported (null is)")

    rope = hf_config.get("rope_parameters")
    if not isinstance(rope, dict | None) or {*(rope or {})} - {*ROPE_KINDS}:
        kinds = " and ".join(ROPE_KINDS)
        raise InputError(f"rope_parameters={rope!r:.60} is not supported; use an object for each of {kinds}")
    full, sliding = (
        _read_base(kind, (rope or {}).get(kind), hf_config, old_key, default)
        for kind, (old_key, default) in ROPE_KINDS.items()
    )
    return full, sliding


def _read_base(kind: str, parameters: Any, hf_config: Mapping[str, Any], old_key: str, default: float) -> float:
    """The base of one kind of layers, from its object or, in older files, from a key of its own."""
    parameters = {} if parameters is None else parameters
    if not isinstance(parameters, dict):
        raise InputError(f"rope_parameters of {kind} ({parameters!r:.60}) must be an object")
    rope_type = parameters.get("rope_type", parameters.get("type", "default"))
    if rope_type != "default":
        raise InputError(f"rope_type {rope_type!r:.60} of {kind} is not supported ('default' is)")
    others = {*parameters} - {"rope_theta", "rope_type", "type"}
    if others:
        raise InputError(f"rope_parameters of {kind} have {min(others)!r:.60}, which is not supported; leave it out")

    key = "rope_theta" if "rope_theta" in parameters else old_key
    base = parameters.get("rope_theta", hf_config.get(old_key, default))
    if not isinstance(base, int | float) or isinstance(base, bool) or not 1 < base < float("inf"):
        raise InputError(f"{key}={base!r:.60} of {kind} must be a number above 1")
    return float(base)


def read_window(hf_config: Mapping[str, Any]) -> int:
    """Tokens that one sees on either side: half of `local_attention`, or `sliding_window`, if a file has that."""
    half = hf_config.get("sliding_window")
    whole = hf_config.get("local_attention", DEFAULT_WINDOW if half is None else None)
    for name, value in (("local_attention", whole), ("sliding_window", half)):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
            raise InputError(f"{name}={value!r:.60} is not supported; use a whole number of tokens")
    if whole is None:
        if half is None:
            raise InputError("local_attention=None is not supported; use at least 2 tokens")
        return int(half)
    if half is not None and whole // 2 != half:
        raise InputError(f"sliding_window={half} is not half of local_attention={whole}; leave one of them out")
    return int(whole // 2)


def read_config(hf_config: Mapping[str, Any]) -> dict[str, Any]:
    """The layers with windows are a list or a period, the rotary bases a table or two numbers."""
    theta, theta_window = read_rotary_bases(hf_config)

    every = hf_config.get("global_attn_every_n_layers") or DEFAULT_EVERY
    kinds = hf_config.get("layer_types")
    if kinds:
        full_layers = [index for index, kind in enumerate(kinds) if kind == "full_attention"]
        every = full_layers[1] if len(full_layers) > 1 else len(kinds)
        if full_layers != list(range(0, len(kinds), every)):
            raise InputError(
                f"layer_types with full attention at {full_layers!r:.60} is not supported; "
                "use every n-th layer from the first"
            )

    biases = {hf_config.get("attention_bias", False), hf_config.get("mlp_bias", False)}
    if len(biases) != 1:
        raise InputError("attention_bias and mlp_bias must be equal; set both or neither")

    activation = hf_config.get("classifier_activation", "gelu")
    if activation != hf_config.get("hidden_activation", "gelu"):
        raise InputError("classifier_activation and hidden_activation must be equal")
    pooling = hf_config.get("classifier_pooling", "cls")
    if pooling not in POOLINGS:
        raise InputError(f"classifier_pooling={pooling!r:.60} is not supported; use {' or '.join(POOLINGS)}")
    if not (window := read_window(hf_config)) and every > 1:
        raise InputError(f"local_attention={hf_config.get('local_attention')!r:.60} is not supported; use at least 2")
    return {
        "attention_window": window,
        "full_attention_every": every,
        "rotary_theta": theta,
        "rotary_theta_window": theta_window,
        "linear_bias": biases.pop(),
        "pooling": POOLINGS[pooling],
        "pooler_act": ACTIVATIONS.get(activation, activation),
    }


def write_config(config: EncoderConfig) -> dict[str, Any]:
    kinds = []
    for index in range(config.num_hidden_layers):
        kinds.append("sliding_attention" if config.layer_window(index) else "full_attention")
    return {
        "local_attention": 2 * config.attention_window,
        "layer_types": kinds,
        "global_attn_every_n_layers": config.full_attention_every,
        "rope_parameters": {
            "full_attention": {"rope_theta": config.rotary_theta, "rope_type": "default"},
            "sliding_attention": {"rope_theta": config.rotary_theta_window, "rope_type": "default"},
        },
        "attention_bias": config.linear_bias,
        "mlp_bias": config.linear_bias,
        "embedding_dropout": config.hidden_dropout_prob,
        "classifier_pooling": {ours: name for name, ours in POOLINGS.items()}[config.pooling],
        "classifier_activation": ACTIVATION_NAMES[config.hidden_act],
        "classifier_dropout": config.head_dropout,
    }


def new_config(config: EncoderConfig) -> EncoderConfig:
    """The config of a new model: with biases, which local initialization needs (model/local_init.py), and with windows
    only if it reads long texts."""
    return config.replace(
        **{**AXES, "linear_bias": True},
        attention_window=DEFAULT_WINDOW // 2,
        full_attention_every=DEFAULT_EVERY if config.max_position_embeddings > LONG else 1,
    )


MODERNBERT = FamilySpec(
    model_type="modernbert",
    prefix="model.",
    config_keys={
        "vocab_size": "vocab_size",
        "hidden_size": "hidden_size",
        "num_hidden_layers": "num_hidden_layers",
        "num_attention_heads": "num_attention_heads",
        "intermediate_size": "intermediate_size",
        "max_position_embeddings": "max_position_embeddings",
        "hidden_act": "hidden_activation",
        "hidden_dropout_prob": "mlp_dropout",
        "attention_probs_dropout_prob": "attention_dropout",
        "initializer_range": "initializer_range",
        "layer_norm_eps": "norm_eps",
        "norm_bias": "norm_bias",
        "classifier_dropout": "classifier_dropout",
        "head_bias": "classifier_bias",
        "pad_token_id": "pad_token_id",
    },
    defaults={**AXES, **NO_DROPOUT, "intermediate_size": 1152, "max_position_embeddings": 8192},
    supported_values={"decoder_bias": (True,)},
    ignored_keys=frozenset(
        {
            "attention_bias",
            "mlp_bias",
            "local_attention",
            "global_attn_every_n_layers",
            "layer_types",
            "rope_parameters",
            "rope_scaling",
            "global_rope_theta",
            "local_rope_theta",
            "sliding_window",
            "embedding_dropout",
            "classifier_activation",
            "classifier_pooling",
            "deterministic_flash_attn",
            "initializer_cutoff_factor",
            "reference_compile",
            "repad_logits_with_grad",
            "sparse_pred_ignore_index",
            "sparse_prediction",
            "position_embedding_type",
        }
    ),
    parameter_names={
        "embeddings.words": "embeddings.tok_embeddings",
        "embeddings.norm": "embeddings.norm",
        "final_norm": "final_norm",
        "layers.{}.attention_norm": "layers.{}.attn_norm",
        "layers.{}.attention.qkv": "layers.{}.attn.Wqkv",
        "layers.{}.attention.output": "layers.{}.attn.Wo",
        "layers.{}.feed_forward_norm": "layers.{}.mlp_norm",
        "layers.{}.feed_forward.inner": "layers.{}.mlp.Wi",
        "layers.{}.feed_forward.output": "layers.{}.mlp.Wo",
    },
    head_names={
        "masked_words": {"transform": "head.dense", "norm": "head.norm", "bias": "decoder.bias"},
        **dict.fromkeys(("classes", "tokens", "spans"), CLASSES),
    },
    architectures=architectures("ModernBert"),
    read_config=read_config,
    write_config=write_config,
    max_length=8192,
    supports_mean_pooling=True,
    new_config=new_config,
)
