"""Changes of a checkpoint: each gives one that is saved and read again with the same outputs, by transformers too."""

import json
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
import transformers

from bothways.base.errors import InputError
from bothways.model.adapters.install import install
from bothways.model.adapters.spec import AdapterSpec
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.changes import CHANGES
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.families import FAMILIES
from bothways.model.int8 import is_int8
from bothways.model.int8_training import candidates, observe
from bothways.text.batch import Batch

TEXTS = ["the cat sat on the mat", "a dog", "dogs ran and ran and sat on the mat , the cat"]
NEURONS = [[*range(0, 40, 2)], [*range(20)], [*range(20, 40)]]
KEPT = [[0, 1, 2]] * 3
EXAMPLES = {  # a change with its arguments
    "layers": {"layers": (0, 2)},
    "parts": {"layers": (0, 1, 2), "heads": KEPT, "neurons": NEURONS},
    "whole-heads": {},
    "vocabulary": {"words": dict.fromkeys("the cat sat on mat a dog dogs ran and ,".split(), 1)},
    "width": {"hidden_size": 16, "intermediate_size": 24},
    "new-head": {"head": "tokens", "labels": ("x", "y"), "seed": 3},
    "heads": {"heads": {"masked_words": 0}, "dropout": 0.0, "seed": 3},
    "encoder": {},
    "pack": {"layer_bits": 8},
}
SIZES = {"width": (3, 16, 24), "layers": (2, 24, 40), "parts": (3, 24, 20)}


@pytest.fixture
def source(make_model, tokenizer):
    model = make_model("bert", {"masked_words": 0}, pooler=False)
    return Checkpoint(model, tokenizer, model_type="bert", pooling="mean")


def batch_of(loaded, texts=TEXTS):
    return Batch.from_encodings(loaded.need_tokenizer().encode_many(texts))


def hidden(loaded, texts=TEXTS):
    with torch.no_grad():
        return loaded.model.eval()(batch_of(loaded, texts))


def read_by_transformers(directory, loaded):
    """Hidden states of each text, from transformers."""
    peer, report = transformers.AutoModel.from_pretrained(
        directory, add_pooling_layer=False, attn_implementation="eager", output_loading_info=True
    )
    assert not report["missing_keys"] and not report["mismatched_keys"]
    encodings = loaded.need_tokenizer().encode_many(TEXTS)
    with torch.no_grad():
        return torch.cat([peer.eval()(torch.tensor([one.ids])).last_hidden_state[0] for one in encodings])


def test_every_change_has_an_example_here_or_a_test_of_its_own():
    assert {*CHANGES} == {*EXAMPLES, "int8", "merge"}


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_changed_checkpoint_is_saved_and_read_again_by_both_libraries(name, source, tmp_path):
    before = {key: value.clone() for key, value in source.model.state_dict().items()}
    batches = {"batches": [batch_of(source)]} if name == "width" else {}
    changed = CHANGES[name](source, **EXAMPLES[name], **batches)
    checkpoint.save(changed, tmp_path / "changed")
    config, read = changed.model.config, checkpoint.load(tmp_path / "changed")
    assert json.loads((tmp_path / "changed" / "config.json").read_text())["model_type"] == changed.model_type
    assert read.model.config == config and read.model.num_outputs == changed.model.num_outputs
    assert torch.equal(hidden(read), hidden(changed))
    expected = SIZES.get(name, (3, 24, 40))
    assert (config.num_hidden_layers, config.hidden_size, config.intermediate_size) == expected
    theirs = read_by_transformers(tmp_path / "changed", changed)
    assert torch.allclose(hidden(changed), theirs, atol=1e-5 * max(1.0, float(theirs.abs().max())))
    assert source.model.state_dict().keys() == before.keys()
    assert all(torch.equal(value, before[key]) for key, value in source.model.state_dict().items())


@pytest.mark.parametrize("name", ["whole-heads", "vocabulary", "heads", "encoder", "pack"])
def test_these_changes_keep_the_states_of_texts(name, source):
    changed = CHANGES[name](source, **EXAMPLES[name])
    most = float((hidden(changed) - hidden(source)).abs().max())
    assert most < 0.3 if name == "pack" else most < 1e-6  # 4 bits of words, 8 of layers


def test_a_change_to_int8_is_saved_and_read_again(source, tmp_path):
    with torch.no_grad():
        forms = candidates(source.model, observe(source.model, lambda: source.model(batch_of(source))))
    changed = CHANGES["int8"](source, {name: one.linear for name, one in forms.items()})
    checkpoint.save(changed, tmp_path / "int8")
    read = checkpoint.load(tmp_path / "int8")
    assert is_int8(read.model) and not is_int8(source.model) and torch.equal(hidden(read), hidden(changed))
    with pytest.raises(InputError, match="int8"):
        CHANGES["int8"](changed, {})


def test_a_merged_adapter_is_saved_and_read_again(make_model, tokenizer, tmp_path):
    base = Checkpoint(make_model("bert", {"classes": 2}), tokenizer, labels=("x", "y"))
    checkpoint.save(base, tmp_path / "base")
    model = make_model("bert", {"classes": 2})
    install(model, AdapterSpec("lora", rank=3, base=str(tmp_path / "base")), FAMILIES["bert"])
    with torch.no_grad():
        for parameter in filter(lambda one: one.requires_grad, model.parameters()):
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    adapted = replace(base, model=model)
    checkpoint.save(adapted, tmp_path / "adapter")
    merged = CHANGES["merge"](base, tmp_path / "adapter")
    checkpoint.save(merged, tmp_path / "merged")
    read = checkpoint.load(tmp_path / "merged")
    assert torch.equal(hidden(read), hidden(merged)) and not torch.allclose(hidden(merged), hidden(base), atol=1e-2)
    assert torch.allclose(hidden(merged), hidden(adapted), atol=1e-5)
    assert torch.allclose(read_by_transformers(tmp_path / "merged", merged), hidden(merged), atol=1e-5)


def scale_words(source, factor):
    """Scale the vectors of all words."""
    model = deepcopy(source.model)
    model.encoder.embeddings.words.weight.data *= factor
    return replace(source, model=model)


def test_a_new_change_is_a_function_and_an_entry(source, tmp_path, monkeypatch):
    monkeypatch.setitem(CHANGES.entries, "scale", scale_words)
    changed = CHANGES["scale"](source, factor=2.0)
    checkpoint.save(changed, tmp_path / "scaled")
    assert torch.equal(hidden(checkpoint.load(tmp_path / "scaled")), hidden(changed))
    assert not torch.equal(hidden(changed), hidden(source))
