"""Configs: rejected values, reading other libraries' files, and writing back."""

import json

import pytest

from bothways.base.errors import InputError
from bothways.base.log import messages_to
from bothways.model.checkpoint import checkpoint
from bothways.model.config import SIZES, EncoderConfig, GlobalTokensConfig, RandomBlocksConfig, RelativePositionsConfig
from bothways.model.families import FAMILIES


@pytest.mark.parametrize(
    ("field", "value", "choices"),
    [
        ("hidden_act", "gleu", ["'gelu'", "'gelu_tanh'", "'relu'", "'silu'"]),
        ("position_embedding", "rotery", ["'learned'", "'rotary'"]),
        ("norm", "Post", ["'post'", "'pre'"]),
        ("feed_forward", "geglu", ["'plain'", "'gated'"]),
    ],
)
def test_a_typo_is_refused_with_the_choices(field, value, choices):
    with pytest.raises(InputError) as refused:
        EncoderConfig(**{field: value})
    assert all(part in str(refused.value) for part in (field, repr(value), *choices))


@pytest.mark.parametrize(
    "field",
    ["vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"],
)
@pytest.mark.parametrize("value", [0, -3])
def test_a_size_below_one_is_refused(field, value):
    with pytest.raises(InputError, match=rf"{field} \({value}\) .*at least 1"):
        EncoderConfig(**{field: value})


def test_heads_must_divide_the_hidden_size():
    with pytest.raises(InputError, match=r"hidden_size \(25\) .*num_attention_heads \(3\)"):
        EncoderConfig(hidden_size=25, num_attention_heads=3)
    assert EncoderConfig(hidden_size=24, num_attention_heads=3).head_size == 8


@pytest.mark.parametrize(
    ("field", "value"),
    [("num_hidden_layers", 10**9), ("vocab_size", 2**31 + 1), ("type_vocab_size", -1), ("attention_window", -1)]
    + [("layer_norm_eps", value) for value in (10**400, float("nan"), float("inf"), -float("inf"))],
)
def test_a_number_that_no_encoder_has_is_refused(field, value):
    with pytest.raises(InputError, match=rf"{field} \(.*\) must be at (least|most)"):
        EncoderConfig(**{field: value})


def test_rotary_positions_need_pairs():
    with pytest.raises(InputError, match="even head size.* 7"):
        EncoderConfig(hidden_size=21, num_attention_heads=3, position_embedding="rotary")


def test_changes_are_checked_too():
    config = EncoderConfig()
    assert config.replace(hidden_size=120).hidden_size == 120 and config.hidden_size == 768
    with pytest.raises(InputError, match="norm 'prae'"):
        config.replace(norm="prae")


def test_every_nth_layer_from_the_first_sees_the_whole_text():
    config = EncoderConfig(attention_window=7, full_attention_every=3)
    assert [config.layer_window(index) for index in range(8)] == [0, 7, 7, 0, 7, 7, 0, 7]
    assert EncoderConfig().layer_window(5) == 0


def test_named_sizes_are_the_published_ones():
    """Parameters with the poolers, in millions (Turc 2019, table 1: 4.4, 11.3, 29.1, 41.7, 110.1; BERT-large 335)."""
    import torch

    from bothways.model.model import Model

    millions = {}
    for name, config in SIZES.items():
        with torch.device("meta"):
            model = Model(config, pooler=True)
        millions[name] = round(sum(value.numel() for value in model.parameters()) / 1e6, 1)
    assert millions == {"tiny": 4.4, "mini": 11.2, "small": 28.8, "medium": 41.4, "base": 109.5, "large": 335.1}


# --- their keys -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "key", "value"),
    [
        ("bert", "position_embedding_type", "relative_key"),
        ("bert", "is_decoder", True),
        ("bert", "add_cross_attention", True),
        ("bert", "pruned_heads", {"0": [1]}),
        ("bert", "quantization_config", {"bits": 4}),
        ("bert", "hidden_act", "mish"),
        ("distilbert", "activation", "swishy"),
        ("electra", "position_embedding_type", "relative_key_query"),
        ("electra", "hidden_act", "relu"),
        ("roberta", "hidden_act", "gelu_new"),
        ("roberta", "position_embedding_type", "relative_key"),
        ("xlm-roberta", "is_decoder", True),
        ("albert", "inner_group_num", 2),
        ("albert", "embedding_size", 768),
        ("modernbert", "rope_scaling", {"type": "yarn", "factor": 4.0}),
        ("modernbert", "rope_parameters", {"full_attention": {"rope_type": "linear", "factor": 2.0}}),
        ("modernbert", "rope_parameters", {"full_attention": {"rope_theta": 1e4, "factor": 2.0}}),
        ("modernbert", "rope_parameters", {"full_attention": {"rope_theta": None}}),
        ("modernbert", "rope_parameters", {"sliding_attention": {"rope_theta": "1e4"}}),
        ("modernbert", "rope_parameters", {"sliding_attention": 3}),
        ("modernbert", "rope_parameters", {"rope_theta": 1e4, "rope_type": "default"}),
        ("modernbert", "rope_parameters", [1e4]),
        ("modernbert", "sliding_window", 4),
        ("modernbert", "sliding_window", "64"),
        ("modernbert", "local_attention", None),
        ("modernbert", "rope_theta", 5e5),
        ("bert", "rope_theta", 1e4),
        ("roberta", "rotary_emb_base", 1000),
        ("xlm-roberta", "sliding_window", 128),
        ("electra", "logit_scale", 2.0),
        ("distilbert", "use_alibi", True),
        ("deberta-v2", "qk_layernorm", True),
        ("albert", "embedding_multiplier", 12),
        ("modernbert", "layer_types", ["full_attention", "full_attention", "sliding_attention", "full_attention"]),
        ("modernbert", "mlp_bias", True),
        ("modernbert", "classifier_pooling", "last"),
        ("modernbert", "decoder_bias", False),
        ("modernbert", "classifier_activation", "relu"),
        ("longformer", "attention_window", [8, 16]),
        ("longformer", "attention_window", 7),
        ("longformer", "hidden_act", "relu"),
        ("big_bird", "rescale_embeddings", True),
        ("big_bird", "use_bias", False),
        ("big_bird", "attention_type", "blocks"),
        ("deberta", "relative_attention", False),
        ("deberta", "pos_att_type", ["c2c"]),
        ("deberta", "talking_head", True),
        ("deberta", "embedding_size", 16),
        ("deberta-v2", "pooler_dropout", 0.1),
        ("deberta-v2", "conv_act", "selu"),
        ("deberta-v2", "legacy", False),
    ],
)
def test_a_key_that_changes_the_result_is_refused_by_name(family, key, value):
    theirs = FAMILIES[family].to_hf_config(EncoderConfig(**FAMILIES[family].defaults))
    with pytest.raises(InputError) as refused:
        FAMILIES[family].parse_config({**theirs, key: value}, "some/config.json")
    line = str(refused.value)
    assert line.startswith("some/config.json: ") and "\n" not in line
    assert (key if key != "rope_parameters" else "rope_") in line


@pytest.mark.parametrize(
    ("family", "unused"),
    [("bert", {"rope_scaling": None, "sliding_window": None, "use_alibi": False, "logit_scale": 1.0, "a_new_key": 7}),
     ("modernbert", {"initializer_cutoff_factor": 3.0, "sliding_window": 0, "rope_scaling": None})],
)  # fmt: skip
def test_a_key_that_says_that_it_is_not_used_changes_nothing(family, unused):
    theirs = FAMILIES[family].to_hf_config(EncoderConfig(**FAMILIES[family].defaults))
    parsed, _ = FAMILIES[family].parse_config({**theirs, **unused}, "some/config.json")
    assert parsed == FAMILIES[family].parse_config(theirs, "some/config.json")[0]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [({"rope_parameters": None}, (160_000.0, 10_000.0)),
     ({"rope_parameters": None, "global_rope_theta": 500, "local_rope_theta": 40.0}, (500.0, 40.0)),
     ({"rope_parameters": {"full_attention": {"rope_theta": 70}}, "local_rope_theta": 40}, (70.0, 40.0))],
)  # fmt: skip
def test_rotary_bases_are_read_from_new_and_old_keys(keys, expected):
    theirs = FAMILIES["modernbert"].to_hf_config(EncoderConfig(**FAMILIES["modernbert"].defaults))
    config, _ = FAMILIES["modernbert"].parse_config({**theirs, **keys}, "some/config.json")
    assert (config.rotary_theta, config.rotary_theta_window) == expected


@pytest.mark.parametrize("key", ["global_rope_theta", "local_rope_theta"])
@pytest.mark.parametrize("value", [None, 0, -5.0, "10000", True, float("inf")])
def test_a_rotary_base_that_is_no_number_is_refused_by_its_old_key_too(key, value):
    theirs = FAMILIES["modernbert"].to_hf_config(EncoderConfig(**FAMILIES["modernbert"].defaults))
    with pytest.raises(InputError, match=key):
        FAMILIES["modernbert"].parse_config({**theirs, "rope_parameters": None, key: value}, "some/config.json")


def test_a_key_that_is_harmless_in_one_family_is_so_with_any_value():
    """Configs of models that follow ModernBERT have such keys for other programs."""
    theirs = FAMILIES["modernbert"].to_hf_config(EncoderConfig(**FAMILIES["modernbert"].defaults))
    parsed = FAMILIES["modernbert"].parse_config({**theirs, "position_embedding_type": "sans_pos"}, "some/config.json")
    assert parsed == FAMILIES["modernbert"].parse_config(theirs, "some/config.json")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_config_that_lacks_its_sizes_is_refused(family):
    theirs = FAMILIES[family].to_hf_config(EncoderConfig(**FAMILIES[family].defaults))
    for field in ("vocab_size", "hidden_size", "num_hidden_layers"):
        key = FAMILIES[family].config_keys[field]
        with pytest.raises(InputError, match=rf"config\.json: .*{key}"):
            FAMILIES[family].parse_config({name: value for name, value in theirs.items() if name != key}, "config.json")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("value", ["many", 2.5, [3], True])
def test_a_size_that_is_no_whole_number_is_refused(family, value):
    theirs = FAMILIES[family].to_hf_config(EncoderConfig(**FAMILIES[family].defaults))
    with pytest.raises(InputError, match=r"config\.json: .*hidden_size"):
        FAMILIES[family].parse_config({**theirs, FAMILIES[family].config_keys["hidden_size"]: value}, "config.json")


def test_a_position_that_is_no_number_is_one_clear_line():
    theirs = FAMILIES["roberta"].to_hf_config(EncoderConfig(**FAMILIES["roberta"].defaults))
    with pytest.raises(InputError, match=r"config\.json: .*wrong type"):
        FAMILIES["roberta"].parse_config({**theirs, "pad_token_id": "one"}, "config.json")
    config, _ = FAMILIES["roberta"].parse_config({**theirs, "pad_token_id": None}, "config.json")
    assert config.position_offset == 2


@pytest.mark.parametrize(
    ("family", "key", "value"),
    [
        ("longformer", "sep_token_id", None),
        ("longformer", "attention_window", None),
        ("modernbert", "local_attention", 1),
        ("modernbert", "local_attention", 0),
        ("big_bird", "block_size", 0),
        ("big_bird", "block_size", 4.0),
        ("big_bird", "num_random_blocks", -2),
        ("big_bird", "num_random_blocks", None),
        ("deberta-v2", "conv_kernel_size", 2),
        ("deberta-v2", "conv_kernel_size", "3"),
        ("deberta-v2", "conv_kernel_size", None),
        ("deberta-v2", "position_buckets", 1),
        ("deberta-v2", "position_buckets", 256.0),
        ("deberta", "max_relative_positions", 16.0),
        ("deberta", "max_relative_positions", None),
    ],
)
def test_an_axis_out_of_its_range_is_one_clear_line(family, key, value):
    axes = {
        **FAMILIES[family].defaults,
        **({"attention_window": 4, "full_attention_every": 3} if family == "modernbert" else {}),
    }
    theirs = FAMILIES[family].to_hf_config(EncoderConfig(**axes))
    with pytest.raises(InputError) as refused:
        FAMILIES[family].parse_config({**theirs, key: value}, "config.json")
    assert str(refused.value).startswith("config.json: ") and "\n" not in str(refused.value)
    if key in ("sep_token_id", "local_attention"):
        assert f"{key}={value}" in str(refused.value)


@pytest.mark.parametrize("rate", [-0.1, 1.0, 7, "some"])
def test_a_dropout_rate_outside_its_range_is_refused(rate):
    for field in ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"):
        with pytest.raises(InputError, match=field):
            EncoderConfig(**{field: rate})


@pytest.mark.parametrize("model_type", FAMILIES)
def test_our_config_written_in_their_keys_reads_back_the_same(model_type):
    family = FAMILIES[model_type]
    sizes = {"vocab_size": 97, "hidden_size": 24, "num_hidden_layers": 7, "num_attention_heads": 3}
    more = {"intermediate_size": 40, "max_position_embeddings": 61, "initializer_range": 0.03, "pad_token_id": 4}
    rates = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3, "hidden_act": "gelu_tanh"}
    special = {
        "bert": {"type_vocab_size": 3, "layer_norm_eps": 1e-7, "classifier_dropout": 0.4},
        "albert": {"embedding_size": 16, "num_layer_groups": 3, "classifier_dropout": 0.4},
        "electra": {"embedding_size": 16, "type_vocab_size": 3, "hidden_act": "gelu"},
        "roberta": {"type_vocab_size": 1, "position_offset": 5, "hidden_act": "gelu"},
        "xlm-roberta": {"position_offset": 5, "hidden_act": "gelu"},
        "bothways-oneway": {"direction": "forward", "classifier_dropout": 0.4},
        "distilbert": {"classifier_dropout": 0.4},
        "longformer": {
            "position_offset": 5,
            "hidden_act": "gelu",
            "attention_window": 6,
            "sparse_attention": GlobalTokensConfig(separator=7),
        },
        "big_bird": {"sparse_attention": RandomBlocksConfig(size=16, num_random=2), "type_vocab_size": 3},
        "deberta": {
            "relative_positions": RelativePositionsConfig(max_distance=33, joint=True, terms=("p2c",)),
            "pooler_act": "gelu_tanh",
        },
        "deberta-v2": {"position_embedding": "none", "pooler_act": "gelu"}
        | {
            "relative_positions": RelativePositionsConfig(max_distance=61, buckets=12, shared=True, norm=True, kernel=3)
        },
        "static": {
            "num_hidden_layers": 0,
            "num_attention_heads": 1,
            "intermediate_size": 1,
            "attention_probs_dropout_prob": 0.0,
        },
        "modernbert": {"pooler_act": "gelu_tanh", "pooling": "mean", "classifier_dropout": 0.4}
        | {"attention_window": 5, "full_attention_every": 2, "rotary_theta": 700.0, "rotary_theta_window": 30.0},
    }[model_type]
    config = EncoderConfig(**{**family.defaults, **sizes, **more, **rates, **special})
    written = json.loads(json.dumps(family.to_hf_config(config)))
    assert family.parse_config(written, "x") == (config, {})


def test_harmless_keys_are_dropped_and_unknown_ones_kept_and_logged_once(make_peer, tmp_path):
    make_peer("BertModel").save_pretrained(tmp_path / "theirs")
    file = tmp_path / "theirs" / "config.json"
    harmless = {"use_cache": False, "transformers_version": "4.0", "gradient_checkpointing": True}
    unknown = {"my_experiment": {"run": 7}, "a_note": "häuslich"}
    file.write_text(json.dumps({**json.loads(file.read_text()), **harmless, **unknown}))
    messages = []
    with messages_to(messages.append):
        loaded = checkpoint.load(tmp_path / "theirs")
    assert len(messages) == 1 and "a_note, my_experiment" in messages[0] and "use_cache" not in messages[0]
    checkpoint.save(loaded, tmp_path / "ours")
    written = json.loads((tmp_path / "ours" / "config.json").read_text(encoding="utf-8"))
    assert {key: written.get(key) for key in unknown} == unknown
    assert not set(written) & set(harmless)
    messages.clear()
    with messages_to(messages.append):
        assert checkpoint.load(tmp_path / "ours").extra == unknown
    assert len(messages) == 1


def test_a_config_of_theirs_has_nothing_unknown(make_peer, tmp_path):
    for architecture in ("BertForPreTraining", "DistilBertModel", "ElectraModel", "ModernBertModel"):
        make_peer(architecture).save_pretrained(tmp_path / architecture)
        messages = []
        with messages_to(messages.append):
            assert checkpoint.load(tmp_path / architecture).extra == {}
        assert messages == []
