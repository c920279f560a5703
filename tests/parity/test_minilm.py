"""The published all-MiniLM-L6-v2 compared with `transformers` and `sentence-transformers`. soak/ reads more texts."""

import json

import numpy as np
import pytest
import torch
import transformers

import bothways
from bothways.text.batch import Batch

NUM_LINES = 60
LONGEST = 256  # the tokens that sentence-transformers reads with this model


@pytest.fixture(scope="module")
def exact(minilm_directory):
    return bothways.load(minilm_directory, dtype="float32", device="cpu")


@pytest.fixture(scope="module")
def lines(paragraphs, exact):
    """Paragraphs and their openings, of 2 to 256 tokens, unsorted."""
    texts = [text[: 9 * (index % 31 + 1) ** 2] if index % 2 else text for index, text in enumerate(paragraphs)]
    texts = ["", "a", *(text for text in texts if len(exact.tokenizer.encode(text)) <= LONGEST)][:NUM_LINES]
    lengths = {len(exact.tokenizer.encode(text)) for text in texts}
    assert len(texts) == NUM_LINES and len(lengths) > 30 and max(lengths) > 180
    return texts


@pytest.fixture(scope="module")
def sentence_transformer(minilm_directory):
    from sentence_transformers import SentenceTransformer

    transformers.logging.disable_progress_bar()
    return SentenceTransformer(str(minilm_directory), device="cpu")


def cosines(ours, theirs):
    return (ours * theirs).sum(1) / np.linalg.norm(ours, axis=1) / np.linalg.norm(theirs, axis=1)


@pytest.mark.slow
def test_hidden_states_of_mixed_lines_equal_transformers(exact, lines, minilm_directory):
    transformers.logging.disable_progress_bar()
    peer = transformers.AutoModel.from_pretrained(minilm_directory).eval()
    largest = 0.0
    for text, ours in zip(lines, exact.hidden_states(lines), strict=True):
        ids = exact.tokenizer.encode(text).ids
        with torch.no_grad():
            theirs = peer(torch.tensor([ids])).last_hidden_state[0].numpy()
        assert ours.shape == theirs.shape and ours.dtype == np.float32
        largest = max(largest, float(np.abs(ours - theirs).max()))
    assert largest < 2e-5


@pytest.mark.slow
def test_hidden_states_in_company_equal_those_alone(exact, lines):
    batch = Batch.from_encodings([exact.tokenizer.encode(text) for text in lines])
    with torch.inference_mode():
        together = exact.module(batch).split(batch.lengths.tolist())
    for ours, alone in zip(together[::7], (exact.hidden_states([text])[0] for text in lines[::7]), strict=True):
        assert np.abs(ours.numpy() - alone).max() < 2e-5


@pytest.mark.slow
def test_sentence_vectors_equal_sentence_transformers(exact, lines, sentence_transformer):
    theirs = sentence_transformer.encode(lines, show_progress_bar=False)
    ours = exact.embed(lines)
    assert ours.shape == (NUM_LINES, 384) and ours.dtype == np.float32
    assert cosines(ours, theirs).min() >= 0.99999
    assert np.abs(np.linalg.norm(ours, axis=1) - 1).max() < 1e-6


@pytest.mark.slow
def test_vectors_in_half_precision_point_the_same_way(exact, lines, minilm_directory):
    half, some = bothways.load(minilm_directory, dtype="bfloat16", device="cpu"), lines[::4]
    assert cosines(half.embed(some), exact.embed(some)).min() >= 0.999


@pytest.mark.slow
def test_a_saved_copy_loads_in_sentence_transformers(minilm_directory, lines, sentence_transformer, tmp_path):
    from sentence_transformers import SentenceTransformer

    transformers.logging.disable_progress_bar()
    bothways.load(minilm_directory, dtype="bfloat16", device="cpu").save(tmp_path / "copy")
    assert (tmp_path / "copy" / "modules.json").exists()
    assert json.loads((tmp_path / "copy" / "1_Pooling" / "config.json").read_text())["pooling_mode_mean_tokens"] is True
    copy = SentenceTransformer(str(tmp_path / "copy"), device="cpu")
    some = lines[::4]
    theirs = sentence_transformer.encode(some, show_progress_bar=False)
    assert np.array_equal(copy.encode(some, show_progress_bar=False), theirs)


@pytest.mark.slow
def test_a_saved_copy_loads_here_with_equal_vectors(exact, lines, tmp_path):
    exact.save(tmp_path / "copy")
    copy = bothways.load(tmp_path / "copy", dtype="float32", device="cpu")
    assert copy.checkpoint.pooling == "mean"
    np.testing.assert_allclose(copy.embed(lines[::4]), exact.embed(lines[::4]), rtol=0, atol=1e-6)


@pytest.mark.slow
def test_a_long_text_is_read_to_its_end(exact, paragraphs):
    long = " ".join(paragraphs[:12])
    assert len(exact.tokenizer.encode(long)) > 1000
    (rows,) = exact.hidden_states([long])
    assert rows.shape == (len(exact.tokenizer.encode(long)), 384)
    one, other = exact.embed([long, long[: len(long) // 2]])
    assert 0.5 < one @ other < 0.999
