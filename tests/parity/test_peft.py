"""LoRA in the file layout of peft, both ways: it reads ours over transformers' models, and we read its own."""

import pytest
import torch

import bothways
from bothways.adapters.install import install
from bothways.adapters.spec import AdapterSpec
from bothways.checkpoint import checkpoint
from bothways.checkpoint.contents import Checkpoint
from bothways.families import FAMILIES

peft = pytest.importorskip("peft")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # of transformers, about peft's own calls
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


def ours(model, ids):
    """Scores of texts by a checkpoint's model."""
    from bothways.batch import Batch

    lengths = torch.tensor([len(one) for one in ids])
    flat = torch.tensor([token for one in ids for token in one])
    positions = torch.cat([torch.arange(len(one)) for one in ids])
    batch = Batch(flat, torch.zeros_like(flat), positions, lengths)
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
    loaded = checkpoint.load(base, adapter=tmp_path / "adapter")
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
    from bothways.batch import Batch

    flat = torch.tensor(ids[0])
    batch = Batch(flat, torch.zeros_like(flat), torch.arange(5), torch.tensor([5]))
    assert torch.allclose(loaded.model(batch), expected, atol=1e-5)
