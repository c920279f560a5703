"""New models start with attention to neighbouring tokens, in every family that supports it."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from bothways.model.attention import Attention
from bothways.model.config import SIZES
from bothways.model.families import FAMILIES
from bothways.model.layout import Bucketed
from bothways.model.local_init import OFFSETS, initialize_locally
from bothways.model.model import Model, initialize
from bothways.text.batch import Batch

pytestmark = pytest.mark.usefixtures("global_seed")  # builds models, whose layers draw

LENGTH, AT = 40, 20


@pytest.fixture
def attention_of(monkeypatch):
    """A model's attention weights by layer, [N, S, S] each."""

    def weights(model):
        kept = []

        def attend(self, q_TND, k_TND, v_TND, *, bias=None, **options):
            scores_NSS = torch.einsum("snd,tnd->nst", q_TND, k_TND) / math.sqrt(q_TND.shape[-1])
            if bias is not None:
                scores_NSS = scores_NSS + bias(q_TND.transpose(0, 1)[:, None], k_TND.transpose(0, 1)[:, None])[:, 0]
            kept.append(scores_NSS.softmax(-1))
            return torch.einsum("nst,tnd->snd", kept[-1], v_TND)

        monkeypatch.setattr(Bucketed, "attend", attend)
        ids = np.random.default_rng(3).integers(5, 997, LENGTH)
        with torch.no_grad():
            model.eval()(Batch.from_arrays(ids, np.zeros_like(ids), np.array([LENGTH])))
        return kept

    return weights


def begun(family, *, local, **sizes):
    config = SIZES["mini"].replace(max_position_embeddings=LENGTH + 1, vocab_size=997, **sizes)
    model = Model(FAMILIES[family].new_config(config), {"masked_words": 0})
    initialize(model, config.initializer_range, torch.Generator().manual_seed(5))
    assert not local or initialize_locally(model)
    return model


@pytest.mark.parametrize("family", ["bert", "albert", "distilbert", "electra", "roberta", "modernbert", "deberta"])
def test_heads_look_at_the_neighbours_they_begin_with(family, attention_of):
    near, far = (
        attention_of(begun(family, local=local))[-1][:, AT, AT - 4 : AT + 5].sum(-1) for local in (True, False)
    )
    assert (far < 0.4).all()  # 9 of 40 places, by chance 0.23
    assert (near > 0.45).all()


def test_each_head_has_an_offset_of_its_own(attention_of):
    places = torch.arange(LENGTH) - AT
    for weights_S, offset in zip(attention_of(begun("modernbert", local=True))[0][:, AT], OFFSETS, strict=False):
        assert abs(float((weights_S * (abs(places - offset) < 3)) @ places.float()) - offset) < 1


def test_a_family_without_a_place_for_it_is_left_as_it_is():
    config = FAMILIES["modernbert"].new_config(SIZES["tiny"]).replace(linear_bias=False, vocab_size=97)
    model = Model(config)
    initialize(model, 0.02, torch.Generator().manual_seed(1))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert not initialize_locally(model)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_only_attention_positions_and_the_head_begin_otherwise():
    plain, local = begun("bert", local=False), begun("bert", local=True)
    changed = {name for name, value in plain.state_dict().items() if not torch.equal(value, local.state_dict()[name])}
    parts = ("attention.qkv.weight", "embeddings.positions.weight", "embeddings.words.weight", "segments.weight")
    parts += ("attention.output.weight", "masked_words.transform.weight", "masked_words.norm.weight")
    assert changed and all(name.endswith(parts) for name in changed)
    assert any(isinstance(part, Attention) and isinstance(part.qkv, nn.Linear) for part in local.modules())


@pytest.mark.parametrize("family", ["bert", "albert", "electra", "roberta", "modernbert", "deberta"])
def test_the_most_probable_words_of_a_mask_are_its_neighbours(family):
    """Before any training, with distinct word vectors; a word's own vector is nearest to itself."""
    model, places = begun(family, local=True).eval(), []
    model.encoder.embeddings.words.weight.data[4] = 0  # a mask, whose own vector has no information
    for seed in range(8):
        ids = np.random.default_rng(seed).integers(5, 997, LENGTH)
        ids[AT] = 4
        with torch.no_grad():
            states_SH = model(Batch.from_arrays(ids, np.zeros_like(ids), np.array([LENGTH])))
            scores_V = model.word_scores(states_SH[AT : AT + 1])[0]
        order_V = scores_V.argsort(descending=True).argsort()
        places += order_V[torch.from_numpy(ids[[AT - 2, AT - 1, AT + 1, AT + 2]])].tolist()
    by_distance = family in ("modernbert", "deberta")  # positions that are added to words blur where a head looks
    assert np.mean(places) < (10 if by_distance else 400), places  # of 997; by chance 498
