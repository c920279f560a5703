"""LoRA in the file layout of peft, both ways: it reads ours over transformers' models, and we read its own."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

import bothways
from bothways.base.errors import InputError
from bothways.cli.commands import merge
from bothways.model.adapters.attach import attach, with_merged
from bothways.model.adapters.files import AdapterFiles
from bothways.model.adapters.install import install
from bothways.model.adapters.spec import AdapterSpec
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.changes.new_head import pooling_config
from bothways.model.checkpoint.checkpoint import unread_warning
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.checkpoint.directory import Directory
from bothways.model.families import FAMILIES
from bothways.model.model import Model
from bothways.settings import Merge
from bothways.text.batch import Batch

peft = pytest.importorskip("peft")
pytestmark = [
    pytest.mark.usefixtures("global_seed"),  # compares what torch draws
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # of transformers, about peft's own calls
    pytest.mark.filterwarnings("ignore:Unexpected keyword arguments"),  # of peft, which names our "readers"
    pytest.mark.filterwarnings("ignore:The following"),  # of peft, patterns of the other family
]
IDS = [[2, 5, 6, 7, 8, 3], [2, 9, 10, 3], [2, 11, 5, 12, 13, 14, 6, 3]]
NAMES = {"bert": "Bert", "roberta": "Roberta", "distilbert": "DistilBert", "modernbert": "ModernBert"}
TARGETS = {
    "bert": ["query", "value", "intermediate.dense"],
    "roberta": ["key", "attention.output.dense"],
    "distilbert": ["q_lin", "v_lin", "lin2"],
    "modernbert": ["Wqkv", "Wi", "Wo"],
}


def disturb(module, names=("lora", "classifier", "pooler", "head.", "pre_classifier")):
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, value in module.named_parameters():
            if any(part in name for part in names):
                value.add_(0.1 * torch.randn(value.shape, generator=generator))


def theirs(model, ids):
    with torch.no_grad():
        return torch.stack([model(input_ids=torch.tensor([one])).logits[0] for one in ids])


def batch_of(ids):
    flat = torch.tensor([token for one in ids for token in one])
    positions = torch.cat([torch.arange(len(one)) for one in ids])
    return Batch(flat, torch.zeros_like(flat), positions, torch.tensor([len(one) for one in ids]))


def ours(model, ids):
    """Scores of texts by a model or a checkpoint's."""
    model, batch = getattr(model, "model", model), batch_of(ids)
    with torch.no_grad():
        return model.text_scores("classes", model.text_states(model(batch), batch))


@pytest.fixture
def base_of(make_peer, tmp_path):
    """A directory with an encoder of transformers (with a classification head of its own), and that model."""

    def make(family):
        peer = make_peer(f"{NAMES[family]}ForSequenceClassification", num_labels=3, attn_implementation="eager")
        peer.save_pretrained(tmp_path / "base")
        return tmp_path / "base", peer

    return make


@pytest.mark.parametrize("family", NAMES)
def test_peft_reads_our_file(family, base_of, tmp_path):
    base, peer = base_of(family)
    loaded = checkpoint.load(base)
    spec = AdapterSpec("lora", rank=4, alpha=6.0, base=str(base))
    install(loaded.model, spec, FAMILIES[family])
    disturb(loaded.model)
    checkpoint.save(loaded, tmp_path / "adapter")
    read = peft.PeftModel.from_pretrained(peer, tmp_path / "adapter").eval()
    scores = ours(loaded.model, IDS)
    assert (scores - ours(checkpoint.load(base).model, IDS)).abs().max() > 0.05
    assert torch.allclose(theirs(read, IDS), scores, atol=1e-5)
    again = checkpoint.load(tmp_path / "adapter")
    assert again.model.adapter is None and torch.allclose(ours(again.model, IDS), scores, atol=1e-5)


@pytest.mark.parametrize("kind", ["plain", "rank-stabilized", "alpha of one map"])
@pytest.mark.parametrize("family", NAMES)
def test_we_read_the_file_of_peft(family, kind, base_of, tmp_path):
    base, peer = base_of(family)
    kinds = {"rank-stabilized": {"use_rslora": True}, "alpha of one map": {"alpha_pattern": {TARGETS[family][1]: 3}}}
    options = kinds.get(kind, {})
    config = peft.LoraConfig(task_type="SEQ_CLS", r=5, lora_alpha=7, target_modules=TARGETS[family], **options)
    trained = peft.get_peft_model(peer, config).eval()
    disturb(trained, ("lora", "modules_to_save"))
    expected = theirs(trained, IDS)
    trained.save_pretrained(tmp_path / "adapter")
    loaded = with_merged(checkpoint.load(base), tmp_path / "adapter")
    assert loaded.labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    assert (expected - ours(checkpoint.load(base).model, IDS)).abs().max() > 0.02
    assert torch.allclose(ours(loaded.model, IDS), expected, atol=1e-5)


def test_we_read_lora_of_an_encoder_alone(make_peer, tokenizer, tmp_path):
    peer = make_peer("BertModel", attn_implementation="eager")
    peer.save_pretrained(tmp_path / "base")
    tokenizer.save(tmp_path / "base", 64)
    config = peft.LoraConfig(task_type="FEATURE_EXTRACTION", r=2, target_modules="all-linear")
    trained = peft.get_peft_model(peer, config).eval()
    disturb(trained, ("lora",))
    trained.save_pretrained(tmp_path / "adapter")
    model = bothways.load(tmp_path / "base", adapter={"a": tmp_path / "adapter"}, dtype="float32").adapter("a")
    ids = tokenizer.encode("the cat sat").ids
    with torch.no_grad():
        expected = trained(input_ids=torch.tensor([ids])).last_hidden_state[0].mean(0)
    assert torch.allclose(
        torch.as_tensor(model.embed("the cat sat", pooling="mean", normalize=False)), expected, atol=1e-5
    )


def test_lora_of_vectors_is_read_by_peft(make_peer, tokenizer, tmp_path):
    peer = make_peer("BertModel", attn_implementation="eager")
    peer.save_pretrained(tmp_path / "base")
    loaded = checkpoint.load(tmp_path / "base")
    install(loaded.model, AdapterSpec("lora", rank=2, base=str(tmp_path / "base")), FAMILIES["bert"])
    disturb(loaded.model, ("lora",))
    checkpoint.save(Checkpoint(loaded.model, tokenizer, pooling="mean"), tmp_path / "adapter")
    read = peft.PeftModel.from_pretrained(peer, tmp_path / "adapter").eval()
    ids = [[2, 5, 6, 7, 3]]
    with torch.no_grad():
        expected = read(input_ids=torch.tensor(ids)).last_hidden_state[0]
    assert torch.allclose(loaded.model(batch_of(ids)), expected, atol=1e-5)


# --- every tensor and every setting -----------------------------------------------------------------------------------

KINDS = {
    "all biases": {"bias": "all"},
    "biases beside LoRA": {"bias": "lora_only"},
    "layer norms": {"modules_to_save": ["LayerNorm", "sa_layer_norm", "output_layer_norm"]},
    "a part of a layer": {"modules_to_save": ["key", "k_lin"], "bias": "all"},
    "token table": {"modules_to_save": ["word_embeddings"]},
    "LoRA of tables": {"target_modules": ["word_embeddings", "position_embeddings"], "alpha_pattern": {"word.*": 3}},
    "patterns": {
        "rank_pattern": {"1.attention.self.query": 2, "layer.1.*": 3},
        "alpha_pattern": {r"self\.quer": 50, r".*\.(query|q_lin)": 4, "value": 2, "v_lin": 2},
    },
    "anchored pattern": {"alpha_pattern": {"^bert.encoder.layer.0.attention.self.query": 30}, "use_rslora": True},
    "start of A": {"init_lora_weights": "gaussian", "lora_dropout": 0.1, "exclude_modules": ["none"]},
}


def train(peer, task="SEQ_CLS", **options):
    """An adapter of peft in which every trainable parameter has another value."""
    options = {"r": 4, "lora_alpha": 6, "target_modules": ["query", "value", "q_lin", "v_lin"], **options}
    trained = peft.get_peft_model(peer, peft.LoraConfig(task_type=task, **options)).eval()
    disturb(trained, [name for name, value in trained.named_parameters() if value.requires_grad])
    return trained


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        *(("bert", kind) for kind in KINDS),
        *(("distilbert", kind) for kind in ("all biases", "layer norms", "patterns")),
        ("roberta", "all biases"),
    ],
)
def test_every_tensor_and_pattern_of_a_file_of_peft_counts(family, kind, base_of, tmp_path):
    base, peer = base_of(family)
    before = checkpoint.load(base)
    train(peer, **KINDS[kind]).save_pretrained(tmp_path / "adapter")
    again = type(peer).from_pretrained(base, attn_implementation="eager")
    expected = theirs(peft.PeftModel.from_pretrained(again, tmp_path / "adapter").eval(), IDS)
    assert torch.allclose(ours(with_merged(checkpoint.load(base), tmp_path / "adapter"), IDS), expected, atol=1e-5)
    assert (expected - ours(before.model, IDS)).abs().max() > 0.02


def test_merged_files_of_peft_compute_the_same(base_of, tokenizer, tmp_path):
    base, peer = base_of("bert")
    tokenizer.save(base, 64)
    trained = train(peer, bias="all", modules_to_save=["LayerNorm"])
    trained.save_pretrained(tmp_path / "adapter")
    merge(Merge(adapter=tmp_path / "adapter", base=base, out=tmp_path / "merged"))
    assert torch.allclose(ours(checkpoint.load(tmp_path / "merged").model, IDS), theirs(trained, IDS), atol=1e-5)


def test_the_model_that_an_adapter_is_for_does_not_change(base_of, tmp_path):
    base, peer = base_of("bert")
    train(peer, bias="all", modules_to_save=["word_embeddings"]).save_pretrained(tmp_path / "adapter")
    loaded = checkpoint.load(base)
    before = {name: value.clone() for name, value in loaded.model.state_dict().items()}
    attach(loaded, Directory(tmp_path / "adapter"))
    assert all(torch.equal(value, before[name]) for name, value in loaded.model.state_dict().items())


@pytest.mark.parametrize("task", ["TOKEN_CLS", None])
def test_a_head_of_tokens_stays_one_of_tokens(task, make_peer, tmp_path):
    peer = make_peer("BertForTokenClassification", num_labels=3)
    peer.save_pretrained(tmp_path / "base")
    train(peer, task, modules_to_save=["classifier"], bias="all").save_pretrained(tmp_path / "adapter")
    model = with_merged(checkpoint.load(tmp_path / "base"), tmp_path / "adapter").model
    assert model.num_outputs == {"tokens": 3}
    assert torch.equal(model.heads["tokens"].output.weight, peer.classifier.modules_to_save["default"].weight)


def test_masked_words_keep_their_trained_biases_and_their_tied_table(make_peer, tmp_path):
    peer = make_peer("BertForMaskedLM", attn_implementation="eager")
    peer.save_pretrained(tmp_path / "base")
    trained = train(peer, None, bias="all")
    trained.save_pretrained(tmp_path / "adapter")
    model = with_merged(checkpoint.load(tmp_path / "base"), tmp_path / "adapter").model
    with torch.no_grad():
        scores = model.word_scores(model(batch_of(IDS[:1])))
    assert torch.allclose(scores, theirs(trained, IDS[:1])[0], atol=1e-5)
    other = make_peer("BertForMaskedLM")
    train(other, None, modules_to_save=["word_embeddings"]).save_pretrained(tmp_path / "untied")
    with pytest.raises(InputError, match="output embeddings"):
        with_merged(checkpoint.load(tmp_path / "base"), tmp_path / "untied")


def test_a_new_token_table_of_an_encoder_leaves_no_head_that_was_tied_to_the_old_one(make_peer, tmp_path):
    make_peer("BertForMaskedLM").save_pretrained(tmp_path / "base")
    train(make_peer("BertModel"), None, modules_to_save=["word_embeddings"]).save_pretrained(tmp_path / "adapter")
    assert with_merged(checkpoint.load(tmp_path / "base"), tmp_path / "adapter").model.num_outputs == {}


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Directories of a small model of transformers and of an adapter of peft for it."""
    import transformers

    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    peer = transformers.BertForSequenceClassification(transformers.BertConfig(vocab_size=16, **sizes))
    folder = tmp_path_factory.mktemp("stored")
    peer.save_pretrained(folder / "base")
    train(peer).save_pretrained(folder / "adapter")
    return folder


def load_changed(stored, folder, settings, tensors=()):
    """Load a copy of the adapter with these settings, and with these tensors added."""
    folder.mkdir()
    config = json.loads((stored / "adapter" / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps({**config, **settings}))
    state = load_file(stored / "adapter" / "adapter_model.safetensors")
    save_file({**state, **dict(tensors)}, folder / "adapter_model.safetensors")
    return with_merged(checkpoint.load(stored / "base"), folder)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("init_lora_weights", "pissa"),
        ("init_lora_weights", "pissa_niter_4"),
        ("init_lora_weights", "olora"),
        ("alora_invocation_tokens", [5, 6]),
        ("kasa_config", {"beta": 0.1}),
        ("use_dora", True),
        ("lora_bias", True),
        ("bias", "boft_only"),
        ("use_rslora", "yes"),
        ("a_key_of_next_year", 0.5),
        ("r", 5),
        ("rank_pattern", {"query": 5}),
        ("lora_alpha", float("nan")),
        ("alpha_pattern", {"query": "much"}),
        ("alpha_pattern", {"(": 2}),
        ("alpha_pattern", {"a{2}": 2}),
        ("alpha_pattern", {"(?=que)": 2}),
        ("alpha_pattern", [3]),
    ],
)
def test_a_setting_that_is_not_computed_is_named(name, value, stored, tmp_path):
    with pytest.raises(InputError, match=name):
        load_changed(stored, tmp_path / "changed", {name: value})


def test_settings_without_an_effect_are_read(stored, tmp_path):
    neutral = {"a_key_of_next_year": None, "layers_to_transform": [0], "peft_version": "99", "use_dora": False}
    assert load_changed(stored, tmp_path / "changed", neutral).labels == ("LABEL_0", "LABEL_1")


@pytest.mark.parametrize(("revision", "base"), [("v1", "owner/name@v1"), (None, "owner/name"), ("", "owner/name")])
def test_the_revision_of_a_model_on_the_hub_is_part_of_its_name(revision, base, tmp_path):
    config = {"base_model_name_or_path": "owner/name", "revision": revision}
    assert AdapterFiles(tmp_path, config, {}).base == base


@pytest.mark.parametrize(
    "name",
    [
        "bert.encoder.layer.0.attention.self.query.lora_magnitude_vector",
        "bert.encoder.layer.0.attention.self.query.lora_B.bias",
        "bert.encoder.layer.7.output.dense.bias",
        "bert.encoder.layer.0.attention.self.key.lora_C.weight",
        "bert.embeddings.LayerNorm.lora_A.weight",
        "score.weight",
    ],
)
def test_a_tensor_that_no_part_uses_is_named(name, stored, tmp_path):
    with pytest.raises(InputError, match=name.removesuffix(".weight")):
        load_changed(stored, tmp_path / "changed", {}, {f"base_model.model.{name}": torch.zeros(8)})


@pytest.mark.parametrize("value", [torch.full((8,), float("nan")), torch.zeros(9), torch.zeros(8, dtype=torch.int64)])
def test_a_broken_tensor_inside_the_encoder_is_named(value, stored, tmp_path):
    name = "bert.encoder.layer.0.output.dense.bias"
    with pytest.raises(InputError, match=name):
        load_changed(stored, tmp_path / "changed", {}, {f"base_model.model.{name}": value})


# --- our adapters, for peft -------------------------------------------------------------------------------------------


def save_adapter(base, head, folder, **config):
    """An adapter of ours with a head, trained for a model of transformers."""
    loaded = checkpoint.load(base)
    model = Model(loaded.model.config.replace(**config), head).eval()
    model.encoder = loaded.model.encoder
    install(model, AdapterSpec("lora", rank=2, base=str(base)), FAMILIES["bert"])
    disturb(model, ("lora", "heads", "pooler"))
    made = Checkpoint(model, labels=("a", "b", "c"))
    checkpoint.save(made, folder)
    return made, json.loads((folder / "adapter_config.json").read_text())


@pytest.mark.parametrize(("head", "kind"), [("tokens", "TokenClassification"), ("spans", "QuestionAnswering")])
def test_peft_reads_tags_and_answers_whole(head, kind, make_peer, tmp_path):
    peer = make_peer(f"BertFor{kind}", attn_implementation="eager", **({"num_labels": 3} if head == "tokens" else {}))
    peer.save_pretrained(tmp_path / "base")
    made, config = save_adapter(tmp_path / "base", {head: 3 if head == "tokens" else 2}, tmp_path / "adapter")
    read = peft.PeftModel.from_pretrained(peer, tmp_path / "adapter").eval()
    with torch.no_grad():
        scores = made.model.token_scores(head, made.model(batch_of(IDS[:1])))
        output = read(input_ids=torch.tensor(IDS[:1]))
    expected = output.logits[0] if head == "tokens" else torch.stack([output.start_logits[0], output.end_logits[0]], 1)
    assert torch.allclose(scores, expected, atol=1e-5)
    assert config["modules_to_save"] and "readers" not in config and unread_warning(made) is None


def test_a_head_that_peft_cannot_read_is_logged_and_its_encoder_is_read(make_peer, tmp_path):
    peer = make_peer("BertModel", attn_implementation="eager")
    peer.save_pretrained(tmp_path / "base")
    mean = pooling_config(checkpoint.load(tmp_path / "base").model.config, "bert", "mean")
    pooling = {"pooling": mean.pooling, "pooler_act": mean.pooler_act}
    made, config = save_adapter(tmp_path / "base", {"classes": 3}, tmp_path / "adapter", **pooling)
    assert config["readers"] == unread_warning(made) and "only Bothways the head" in config["readers"]
    assert config["task_type"] == "FEATURE_EXTRACTION"
    read = peft.PeftModel.from_pretrained(peer, tmp_path / "adapter").eval()
    with torch.no_grad():
        expected = read(input_ids=torch.tensor(IDS[:1])).last_hidden_state[0]
        assert torch.allclose(made.model(batch_of(IDS[:1])), expected, atol=1e-5)
    again = checkpoint.load(tmp_path / "adapter")
    assert again.labels == made.labels and torch.allclose(ours(again.model, IDS), ours(made.model, IDS), atol=1e-5)


def test_an_adapter_of_ours_that_peft_has_trained_further_is_not_read_in_part(make_peer, tmp_path):
    peer = make_peer("BertForTokenClassification", num_labels=3)
    peer.save_pretrained(tmp_path / "base")
    save_adapter(tmp_path / "base", {"tokens": 3}, tmp_path / "adapter")
    train(peer, "TOKEN_CLS", r=2, bias="all").save_pretrained(tmp_path / "adapter")
    with pytest.raises(InputError, match="r and lora_alpha differ"):
        with_merged(checkpoint.load(tmp_path / "base"), tmp_path / "adapter")
    made, _ = save_adapter(tmp_path / "base", {"tokens": 3}, tmp_path / "more")
    file = tmp_path / "more" / "adapter_model.safetensors"
    name = "bert.encoder.layer.0.output.LayerNorm.bias"
    save_file({**load_file(file), f"base_model.model.{name}": torch.zeros(made.model.config.hidden_size)}, file)
    with pytest.raises(InputError, match=name):
        checkpoint.load(tmp_path / "more")
