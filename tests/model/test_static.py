"""Static vectors as an encoder without layers: the vectors of linear/static_vectors.py, and what it refuses."""

import numpy as np
import pytest
import torch

import bothways
from bothways.base.errors import InputError
from bothways.inference.backends.encoder import EncoderBackend
from bothways.model.checkpoint import checkpoint
from bothways.model.config import EncoderConfig
from bothways.model.linear.static_vectors import StaticVectors, VectorTable, read_static, write_static
from bothways.model.static import StaticEncoder
from bothways.pretrained import DEFAULT
from bothways.text.batch import Batch

LONG = " ".join(f"the {number} cats and dogs of page {number * 7}, sat by the river." for number in range(50))
HUGE = f"{LONG} " * 8
TEXTS = [
    "the cat sat on the mat",
    "",
    "a dog ran, and ran!",
    "\U0001f98a",
    "[CLS] mat [SEP] [UNK]",
    "Ünïted 東京 12.5",
    LONG,
]


@pytest.fixture
def static(tokenizer):
    rows_VH = np.random.default_rng(3).normal(size=(len(tokenizer), 12)).astype(np.float32)
    return lambda normalize: StaticVectors(tokenizer, VectorTable(rows_VH), unknown=[1], normalize=normalize)


def vectors_by_torch(directory, texts):
    """The vectors of texts by the encoder, and its checkpoint."""
    loaded = checkpoint.load(directory, static=True)
    backend = EncoderBackend(loaded, device="cpu", dtype="float32")
    return backend.text_vectors(texts, "auto", {}), loaded


def unit(vectors_NH):
    return vectors_NH / np.maximum(np.linalg.norm(vectors_NH, axis=1, keepdims=True), 1e-30)


@pytest.mark.parametrize("packed", [False, True])
def test_the_encoder_computes_the_vectors_of_length_1(static, tmp_path, packed):
    write_static(static(True), tmp_path / "static", packed=packed)
    vectors, loaded = vectors_by_torch(tmp_path / "static", TEXTS)
    np.testing.assert_allclose(unit(vectors), read_static(tmp_path / "static").embed(TEXTS), rtol=0, atol=1e-6)
    assert not vectors[[1, 3]].any()
    assert (loaded.pooling, loaded.normalized, loaded.model.config.is_static) == ("mean", True, True)


def test_the_encoder_computes_the_mean_of_the_tokens_that_count(static, tmp_path):
    write_static(static(False), tmp_path / "static")
    vectors, loaded = vectors_by_torch(tmp_path / "static", TEXTS)
    np.testing.assert_allclose(vectors, read_static(tmp_path / "static").embed(TEXTS), rtol=0, atol=1e-6)
    assert not loaded.normalized


def test_the_packaged_vectors_are_computed_alike():
    vectors, _ = vectors_by_torch("bothways-en-static", TEXTS)
    np.testing.assert_allclose(
        unit(vectors),
        bothways.load("bothways-en-static").embed(TEXTS),
        rtol=0,
        atol=1e-6,
    )


def test_a_text_of_thousands_of_tokens_is_read_whole(static, tokenizer, tmp_path):
    write_static(static(False), tmp_path / "static")
    vectors, _ = vectors_by_torch(tmp_path / "static", [HUGE])
    assert len(tokenizer.ids(HUGE)) > 5_000

    # Sums of so many numbers in float32 differ by their order.
    np.testing.assert_allclose(vectors, read_static(tmp_path / "static").embed([HUGE]), rtol=0, atol=2e-5)


def test_a_text_has_the_same_vector_in_any_batch_and_rows(static, tokenizer, tmp_path):
    write_static(static(True), tmp_path / "static")
    model = checkpoint.load(tmp_path / "static", static=True).model
    batch = Batch.from_encodings(tokenizer.encode_many(TEXTS))
    with torch.inference_mode():
        states_TH = model(batch)
        means_NH = model.text_states(states_TH, batch)
        rows_R = torch.tensor([2, 0, 5])
        assert torch.equal(model(batch, rows_R=rows_R), states_TH[rows_R])
        for number, encoding in enumerate(tokenizer.encode_many(TEXTS)):
            alone = Batch.from_encodings([encoding])
            assert torch.equal(model.text_states(model(alone), alone)[0], means_NH[number])


def test_tokens_that_do_not_count_are_not_trained(static, tokenizer, tmp_path):
    write_static(static(True), tmp_path / "static")
    encoder = checkpoint.load(tmp_path / "static", static=True).model.encoder
    assert isinstance(encoder, StaticEncoder)
    batch = Batch.from_encodings(tokenizer.encode_many(TEXTS))
    encoder(batch).square().sum().backward()
    gradient_VH = encoder.embeddings.words.weight.grad
    assert gradient_VH is not None and gradient_VH.any()
    assert not gradient_VH[[tokenizer.cls_id, tokenizer.sep_id, tokenizer.unknown_id]].any()


def test_all_else_names_the_way_out(static, tmp_path):
    write_static(static(True), tmp_path / "static")
    for path in (tmp_path / "static", "bothways-en-static"):
        with pytest.raises(InputError, match=r"no encoder; they embed texts.*name an encoder, such as bothways-en"):
            checkpoint.load(path)


def test_only_a_table_has_no_layers():
    with pytest.raises(InputError, match=r"num_hidden_layers \(0\) must be at least 1"):
        EncoderConfig(num_hidden_layers=0)
    assert not checkpoint.load(DEFAULT).model.config.is_static
