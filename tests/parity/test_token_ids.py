"""The ids of special tokens in config.json: those of the tokenizer that is saved with the model, for every family."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers

from bothways import Tokenizer
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.config import EncoderConfig
from bothways.model.families import FAMILIES
from bothways.text.batch import Batch
from bothways.training.pretraining.initial_model import OUR_OWN, Initialization, new_model
from bothways.training.pretraining.objectives import build_objective
from tests.families import WITH_LAYERS

ROLES = ("bos", "eos", "pad", "cls", "sep", "mask")


@pytest.fixture(scope="module")
def shuffled(tokenizer):
    """A tokenizer whose special tokens have unusual ids: 3, 5, 7, 11 and 13."""
    others = [token for token in tokenizer.tokens if token not in tokenizer.special_tokens]
    for index, token in zip((3, 5, 7, 11, 13), tokenizer.special_tokens, strict=True):
        others.insert(index, token)
    return Tokenizer({token: index for index, token in enumerate(others)})


def new_checkpoint(family, tokenizer):
    """A model as pre-training would start it, with one small layer."""
    small = EncoderConfig(
        vocab_size=97, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40,
        max_position_embeddings=62, classifier_dropout=0.0,
    )  # fmt: skip
    config = FAMILIES[family].new_config(small)
    config = config.replace(direction="forward") if family == OUR_OWN else config
    start = Initialization(seed=0, dropout=0.0, word_vectors=False, local_init=False)
    data = SimpleNamespace(tokenizer=tokenizer, frequencies=np.ones(len(tokenizer)))
    return new_model(config, family, build_objective("masked"), start, data)


def token_ids(config):
    """The values of all keys that end in _token_id, without None."""
    return {key: value for key, value in config.items() if key.endswith("_token_id") and value is not None}


@pytest.mark.parametrize("family", WITH_LAYERS)
@pytest.mark.parametrize("kind", ["tokenizer", "shuffled"])
def test_transformers_reads_the_tokenizers_ids_of_a_new_model(family, kind, request, tmp_path):
    tokenizer = request.getfixturevalue(kind)
    start = new_checkpoint(family, tokenizer)
    checkpoint.save(start, tmp_path / "model")
    saved = json.loads((tmp_path / "model" / "config.json").read_text(encoding="utf-8"))
    if family in transformers.CONFIG_MAPPING:
        saved = transformers.AutoConfig.from_pretrained(tmp_path / "model").to_dict()
        theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
        ids = {f"{role}_token_id": getattr(theirs, f"{role}_token_id") for role in ROLES}
    else:
        ids = {f"{role}_token_id": getattr(tokenizer, f"{role}_id") for role in ROLES[2:]}
    assert saved["vocab_size"] == len(tokenizer) == 97
    assert token_ids(saved) == token_ids(ids)
    assert len(token_ids(saved)) == 4  # BERT's tokenizers have neither bos nor eos
    ours = checkpoint.load(tmp_path / "model")
    assert ours.model.config == start.model.config and not ours.extra


@pytest.mark.parametrize("family", WITH_LAYERS)
def test_without_a_tokenizer_no_id_is_beyond_the_vocabulary(family, tokenizer, tmp_path):
    whole = new_checkpoint(family, tokenizer)
    checkpoint.save(Checkpoint(whole.model, model_type=family), tmp_path / "model")
    saved = json.loads((tmp_path / "model" / "config.json").read_text(encoding="utf-8"))
    if family in transformers.CONFIG_MAPPING:
        saved = transformers.AutoConfig.from_pretrained(tmp_path / "model").to_dict()
    assert all(0 <= index < 97 for index in token_ids(saved).values())


@pytest.mark.parametrize("family", ["roberta", "longformer"])
def test_positions_start_behind_the_padding_of_the_tokenizer(family, shuffled, tmp_path):
    """So transformers computes the same hidden states."""
    start = new_checkpoint(family, shuffled)
    checkpoint.save(start, tmp_path / "model")
    ids = shuffled.encode("the cat sat").ids
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "model").eval()
    ours = checkpoint.load(tmp_path / "model").model
    batch = Batch.from_encodings([shuffled.encode("the cat sat")])
    with torch.inference_mode():
        expected = theirs(torch.tensor([ids]), output_hidden_states=True).hidden_states[-1][0]
        assert torch.allclose(ours.encoder(batch), expected, atol=1e-5)


def test_a_model_gets_the_padding_of_its_tokenizer_unless_its_positions_depend_on_it(make_model, shuffled, tmp_path):
    for family, padding in (("bert", shuffled.pad_id), ("roberta", 1)):
        checkpoint.save(Checkpoint(make_model(family), shuffled, model_type=family), tmp_path / family)
        saved = transformers.AutoConfig.from_pretrained(tmp_path / family)
        assert (saved.pad_token_id, saved.mask_token_id) == (padding, shuffled.mask_id)
