"""Plain BERTs by another vocabulary or size, with the files of their published repositories: config.json with the keys
and sizes it has there, weights under the names of their time, a vocab.txt. The models here are small and random."""

import json
import shutil

import pytest
import torch
import transformers

import bothways
from bothways.model.checkpoint.model_files import read_family
from bothways.model.families import FAMILIES

PLAIN = {
    "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768,
    "initializer_range": 0.02, "intermediate_size": 3072, "max_position_embeddings": 512, "num_attention_heads": 12,
    "num_hidden_layers": 12, "type_vocab_size": 2,
}  # fmt: skip
NAMED = {"model_type": "bert", "layer_norm_eps": 1e-12, "pad_token_id": 0}
POOLER = {
    "directionality": "bidi", "pooler_fc_size": 768, "pooler_num_attention_heads": 12, "pooler_num_fc_layers": 3,
    "pooler_size_per_head": 128, "pooler_type": "first_token_transform",
}  # fmt: skip
LARGE = {"hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": 24}
TINY = {"cell": {}, "emb_size": 312, "pre_trained": "", "structure": [], "training": ""}
CONFIGS = {
    "SciBERT": PLAIN | {"vocab_size": 31090},  # names no type
    "BioBERT": PLAIN | NAMED | {"vocab_size": 28996, "architectures": ["BertModel"]},
    "SpanBERT": PLAIN | {"vocab_size": 28996, "directionality": "bidi"},
    "MiniLM": PLAIN | NAMED | {"hidden_size": 384, "intermediate_size": 1536, "vocab_size": 30522},
    "TinyBERT": PLAIN | TINY
    | {"model_type": "bert", "hidden_size": 312, "intermediate_size": 1200, "num_hidden_layers": 4}
    | {"vocab_size": 30522},
    "multilingual": PLAIN | NAMED | POOLER | {"vocab_size": 119547, "architectures": ["BertForMaskedLM"]},
    "Chinese": PLAIN | NAMED | POOLER | {"vocab_size": 21128, "architectures": ["BertForMaskedLM"]},
    "whole words": PLAIN | NAMED | LARGE | {"vocab_size": 28996, "architectures": ["BertForMaskedLM"]},
}  # fmt: skip
SMALL = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3, "max_position_embeddings": 64}
OLD = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_published_config_is_read_with_nothing_unknown(name):
    family = read_family(CONFIGS[name], "config.json")
    config, unknown = family.parse_config(CONFIGS[name], "config.json")
    assert family is FAMILIES["bert"] and not unknown
    assert (config.vocab_size, config.hidden_size) == (CONFIGS[name]["vocab_size"], CONFIGS[name]["hidden_size"])


@pytest.mark.parametrize("cased", [False, True])
@pytest.mark.parametrize("name", CONFIGS)
def test_a_repository_of_its_files_loads_and_works(name, cased, tokenizer, tmp_path, global_seed):
    config = CONFIGS[name] | SMALL | {"num_attention_heads": 3, "vocab_size": len(tokenizer)}
    torch.manual_seed(0)
    peer = transformers.BertForMaskedLM(transformers.BertConfig(**config)).eval()
    old = {}
    for key, value in peer.state_dict().items():
        for new, before in OLD.items():
            key = key.replace(new, before)
        old[key] = value
    torch.save(old, tmp_path / "pytorch_model.bin")
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in tokenizer.tokens), encoding="utf-8")
    if cased:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}))
    model = bothways.load(tmp_path, dtype="float32", device="cpu")
    text = "The cat sat on the [MASK]."
    theirs = transformers.BertTokenizer.from_pretrained(tmp_path)
    inputs = theirs(text, return_tensors="pt")
    assert model.tokenizer.encode(text, allow_special=True).ids == inputs["input_ids"][0].tolist()
    with torch.no_grad():
        scores = peer(**inputs).logits[0, inputs["input_ids"][0].tolist().index(theirs.mask_token_id)]
    best = scores.softmax(0).topk(3)
    (fills,) = model.fill(text, top=3)
    assert [one.score for one in fills] == pytest.approx(best.values.tolist(), rel=1e-4)
    assert [one.token for one in fills] == theirs.convert_ids_to_tokens(best.indices.tolist())
    model.save(tmp_path / "saved")
    shutil.rmtree(tmp_path / "saved")
