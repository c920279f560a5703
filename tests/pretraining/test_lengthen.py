"""Converting a BERT or RoBERTa to a Longformer."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers

from bothways.errors import InputError
from bothways.log import messages_to
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.changes.lengthen import (
    copy_to_global_projections,
    global_projections_are_copies,
    lengthen,
)
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.config import GlobalTokensConfig
from bothways.settings import Pretrain
from bothways.text.batch import Batch
from bothways.text.tokenizer.tokenizer import Tokenizer
from bothways.text.tokenizer.wordpiece import SPECIAL_TOKENS
from bothways.training.pretraining import pretrain


def of(family, make_model, tokenizer, heads=None, **changes):
    return Checkpoint(make_model(family, heads, **changes), tokenizer, model_type=family)


def one_text(length):
    ids = np.random.default_rng(length).integers(5, 97, length)
    return Batch.from_arrays(ids, np.zeros_like(ids), np.array([length]))


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_a_text_that_one_window_holds_is_read_as_before(family, make_model, tokenizer):
    short = of(family, make_model, tokenizer)
    with messages_to(pytest.fail):
        long = lengthen(short, 200, 128)
    assert long.model_type == "longformer" and long.model.config.max_position_embeddings == 200
    assert long.model.config.sparse_attention == GlobalTokensConfig(separator=tokenizer.sep_id)
    with torch.no_grad():
        for length in (1, 7, 60):
            batch = one_text(length)
            assert float((long.model(batch) - short.model(batch)).abs().max()) < 1e-5


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_positions_repeat_and_global_maps_start_as_copies_of_local_ones(family, make_model, tokenizer):
    short = of(family, make_model, tokenizer)
    with messages_to(pytest.fail):
        long = lengthen(short, 150, 8).model
    old, new = short.model.encoder.embeddings.positions.weight, long.encoder.embeddings.positions.weight
    first, number = short.model.config.position_offset, short.model.config.max_position_embeddings
    began = long.config.position_offset
    assert began == long.config.pad_token_id + 1 and len(new) == began + 150
    for place in (0, 1, number - 1, number, number + 5, 149):
        assert torch.equal(new[began + place], old[first + place % number])
    for layer in long.encoder.layers:
        attention = layer.attention
        stacked = torch.cat([attention.global_query.weight, attention.global_key_value.weight])
        assert torch.equal(stacked, attention.qkv.weight)


def test_transformers_reads_it_and_computes_the_same(make_model, tokenizer, tmp_path):
    with messages_to(pytest.fail):
        long = lengthen(of("bert", make_model, tokenizer, {"masked_words": 0}), 150, 8)
    checkpoint.save(long, tmp_path / "long")
    peer = transformers.LongformerForMaskedLM.from_pretrained(tmp_path / "long").eval()
    batch = one_text(143)
    with torch.no_grad():
        ours, theirs = long.model.word_scores(long.model(batch)), peer(batch.input_ids[None]).logits[0]
    assert float((ours - theirs).abs().max()) < 1e-5


def test_positions_begin_behind_the_tokenizer_s_padding_as_transformers_counts_them(make_model, tokenizer, tmp_path):
    moved = [
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[PAD]",
        *[token for token in tokenizer.tokens if token not in SPECIAL_TOKENS[:4]],
    ]
    other = Tokenizer({token: index for index, token in enumerate(moved)})
    short = of("bert", make_model, other, {"masked_words": 0})
    assert (short.model.config.pad_token_id, other.pad_id) == (0, 3)
    with messages_to(pytest.fail):
        long = lengthen(short, 150, 8)
    checkpoint.save(long, tmp_path / "long")
    peer = transformers.LongformerForMaskedLM.from_pretrained(tmp_path / "long").eval()
    ids = np.random.default_rng(0).integers(5, 97, 143)
    ids[::9] = other.unknown_id
    batch = Batch.from_arrays(ids, np.zeros_like(ids), np.array([143]))
    with torch.no_grad():
        ours, theirs = long.model.word_scores(long.model(batch)), peer(batch.input_ids[None]).logits[0]
    assert float((ours - theirs).abs().max()) < 1e-5


def test_a_head_without_a_counterpart_is_dropped_and_logged(make_model, tokenizer):
    messages = []
    short = of("bert", make_model, tokenizer, {"masked_words": 0, "next_sentence": 2})
    with messages_to(messages.append):
        assert set(lengthen(short, 150, 8).model.num_outputs) == {"masked_words"}
    assert len(messages) == 1 and "next_sentence" in messages[0]


@pytest.mark.parametrize(
    ("family", "length", "window", "line"),
    [
        ("bert", 64, 8, r"length \(64\) .*\b64 tokens"),
        ("bert", 5000, 8, "at most 4096"),
        ("bert", 128, 7, r"lengthen \(7\) .*\beven"),
        ("bert", 128, 256, r"lengthen \(256\) .*\b2 to length \(128\)"),
        ("electra", 128, 8, "BERT or RoBERTa"),
        ("modernbert", 128, 8, "BERT or RoBERTa"),
        ("deberta", 128, 8, "BERT or RoBERTa"),
        ("longformer", 128, 8, "BERT or RoBERTa"),
    ],
)
def test_impossible_conversions_are_a_one_line_error(family, length, window, line, make_model, tokenizer):
    with pytest.raises(InputError, match=line):
        lengthen(of(family, make_model, tokenizer), length, window)


@pytest.mark.slow
def test_pre_training_continues_with_longer_texts(make_model, tokenizer, tmp_path):
    checkpoint.save(of("bert", make_model, tokenizer, {"masked_words": 0}), tmp_path / "start")
    (tmp_path / "text.txt").write_text(
        "\n\n".join("the cat sat on the mat. " * 30 for _ in range(30)), encoding="utf-8"
    )
    settings = Pretrain(
        corpus=(tmp_path / "text.txt",),
        out=tmp_path / "run",
        from_checkpoint=tmp_path / "start",
        max_length=200,
        lengthen=16,
        steps=3,
        batch_tokens=1000,
        dtype="float32",
    )
    result = pretrain.run(settings)
    with messages_to(pytest.fail):
        made = checkpoint.load(result.model)
    assert made.model_type == "longformer" and made.model.config.max_position_embeddings == 200
    old, new = (one.model.encoder.layers[0].attention for one in (checkpoint.load(tmp_path / "start"), made))
    assert not torch.equal(old.qkv.weight, new.qkv.weight) and global_projections_are_copies(made.model)
    with pytest.raises(InputError, match=r"length \(64\)"):
        pretrain.run(replace(settings, max_length=64, out=tmp_path / "short"))
    assert not (tmp_path / "short").exists()
    with pytest.raises(InputError, match="needs --from"):
        replace(settings, from_checkpoint=None, tokenizer=tmp_path / "start")


@pytest.mark.slow
@pytest.mark.parametrize("start", ["none", "untrained maps", "maps of their own"])
def test_untrained_global_maps_are_copies_of_the_local_ones(start, make_model, tokenizer, tmp_path):
    own = make_model("longformer", {"masked_words": 0}, max_position_embeddings=128)
    if start == "untrained maps":
        copy_to_global_projections(own)
    checkpoint.save(Checkpoint(own, tokenizer, model_type="longformer"), tmp_path / "start")
    (tmp_path / "text.txt").write_text("\n\n".join("the cat sat on the mat. " * 9 for _ in range(30)), encoding="utf-8")
    settings = Pretrain(
        corpus=(tmp_path / "text.txt",),
        out=tmp_path / "run",
        max_length=64,
        steps=2,
        batch_tokens=500,
        dtype="float32",
        pairs="none",
        **(
            {"tokenizer": tmp_path / "start", "family": "longformer", "model": "tiny"}
            if start == "none"
            else {"from_checkpoint": tmp_path / "start"}
        ),
    )
    made = checkpoint.load(pretrain.run(settings).model).model
    assert global_projections_are_copies(made) == (start != "maps of their own")
    if start == "maps of their own":
        maps = [model.encoder.layers[0].attention.global_query.weight for model in (own, made)]
        assert torch.equal(*maps)
