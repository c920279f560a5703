"""Sparse matrices in numpy against scipy, bit by bit."""

import numpy as np
import pytest
from scipy.sparse import csr_array, hstack

from bothways.model.linear import sparse, tfidf
from bothways.model.linear.sparse import BLOCK, Csr, count_columns, expand, product_and_distance
from bothways.model.linear.static_vectors import BATCH, StaticVectors, VectorTable
from bothways.model.linear.tfidf import PROJECTED, Tfidf, project

RNG = np.random.default_rng(7)
WORDS = "the cat sat on mats while dogs chased it past oaks nine times and back a I Zürich naïve 3.5 isn't".split()


def random_csr(num_rows, width, *, whole=False):
    """A matrix whose columns are in any order within a row; a row in nine is empty."""
    sizes = RNG.integers(0, width, num_rows) * (RNG.random(num_rows) > 1 / 9)
    indices = [RNG.permutation(width)[:size] for size in sizes]
    data = RNG.integers(1, 5, sizes.sum()).astype(float) if whole else RNG.standard_normal(sizes.sum())
    return Csr(data, np.concatenate([*indices, np.zeros(0, np.int64)]), np.concatenate([[0], sizes.cumsum()]), width)


def assert_same(ours, theirs):
    assert ours.shape == theirs.shape
    for name in ("data", "indices", "indptr"):
        assert np.array_equal(getattr(ours, name), getattr(theirs, name)), name


@pytest.mark.parametrize("num_outputs", [1, 2, 3, 8, 29])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_dense_product_has_the_bits_of_scipy(num_outputs, dtype):
    matrix, dense_FC = random_csr(61, 307), RNG.standard_normal((num_outputs, 307)).T
    assert np.array_equal(matrix @ dense_FC.astype(dtype), matrix.to_scipy() @ dense_FC.astype(dtype))


def test_rows_columns_and_sums_have_the_bits_of_scipy():
    matrix, columns = random_csr(53, 211), np.flatnonzero(RNG.random(211) < 0.4)
    assert_same(matrix[5:17], matrix.to_scipy()[5:17])
    assert_same(matrix.columns(columns), matrix.to_scipy()[:, columns])
    assert np.array_equal(matrix.row_sums(), matrix.to_scipy().sum(1))
    other = random_csr(53, 17)
    assert_same(
        sparse.hstack([matrix, other, matrix]), hstack([one.to_scipy() for one in (matrix, other, matrix)], "csr")
    )


@pytest.mark.parametrize("num_rows", [0, 1, BLOCK + 9])
def test_products_of_counts_have_the_order_of_scipy(num_rows):
    left, right = random_csr(num_rows, 7, whole=True), random_csr(7, 31, whole=True)
    assert_same(expand(left, right), (left.to_scipy() @ right.to_scipy()).tocsr())


@pytest.mark.parametrize("in_order", [False, True])
def test_products_number_by_number_and_distances_have_the_bits_of_scipy(in_order):
    first, second = random_csr(41, 23), random_csr(41, 23)
    second.data[:50] = 0.25
    first.data[:50] = 0.25  # equal numbers leave nothing
    if in_order:
        first, second = (count_columns(one.indices, one.indptr, 23) for one in (first, second))
    product, distance = product_and_distance(first, second)
    assert_same(product, first.to_scipy() * second.to_scipy())
    assert_same(distance, abs(first.to_scipy() - second.to_scipy()))


def scipy_features(model, texts):
    """`Tfidf.__call__` by scipy."""

    def count(rows, vocabulary):
        rows = [[vocabulary[term] for term in terms if term in vocabulary] for terms in rows]
        ends = np.cumsum([0, *map(len, rows)])
        columns = np.array([column for row in rows for column in row], np.int64)
        counts = csr_array((np.ones(len(columns)), columns, ends), (len(rows), len(vocabulary)))
        counts.sum_duplicates()
        return counts

    chunks = {chunk: None for text in texts for chunk in text.lower().split()}
    chunks = {chunk: index for index, chunk in enumerate(chunks)}
    by_chunk = count(map(tfidf._character_ngrams, chunks), model.characters)
    by_text = count((text.lower().split() for text in texts), chunks)
    parts, counts = [], (count(map(tfidf._word_ngrams, texts), model.words), (by_text @ by_chunk).tocsr())
    for part, idf_F in zip(counts, np.split(model.idf_F, [len(model.words)]), strict=True):
        values, rows = (np.log(part.data) + 1) * idf_F[part.indices], np.repeat(range(len(texts)), np.diff(part.indptr))
        lengths = np.sqrt(np.bincount(rows, values**2, len(texts)))
        parts.append(csr_array((values / lengths[rows], part.indices, part.indptr), part.shape))
    return hstack(parts, format="csr")


def test_features_of_texts_and_pairs_have_the_bits_of_scipy():
    texts = [" ".join(RNG.choice(WORDS, RNG.integers(0, 40))) for _ in range(140)]
    model, learnt = Tfidf.learn(texts[:90], 300)
    assert_same(learnt, scipy_features(model, texts[:90]))
    first, second = scipy_features(model, texts[:70]), scipy_features(model, texts[70:])
    assert_same(model(texts[:70]), first)
    product, num_words = first * second, len(model.words)
    cosines = csr_array(np.stack([product[:, :num_words].sum(1), product[:, num_words:].sum(1)], 1))
    features = model.features(texts[:70], texts[70:])
    assert_same(features, hstack([first, second, product, abs(first - second), cosines], format="csr"))
    one_by_one = np.zeros((70, PROJECTED))
    groups, signs = projection(features.width)
    for row, column, value in zip(features.row_numbers, features.indices, features.data, strict=True):
        one_by_one[row, groups[column]] += value * signs[column]
    assert np.array_equal(project(features), one_by_one)


def projection(width):
    """The groups and signs of `project`: where each column goes alone."""
    alone = project(Csr(np.ones(width), np.arange(width), np.arange(width + 1), width))
    return abs(alone).argmax(1), alone.sum(1)


def test_static_vectors_of_many_texts_have_the_bits_of_a_sparse_product(tokenizer):
    rows_VH = RNG.standard_normal((len(tokenizer), 33)).astype(np.float32)
    vectors = StaticVectors(tokenizer, VectorTable(rows_VH), normalize=False)
    vectors.texts = 4 * BATCH
    texts = [" ".join(RNG.choice(WORDS, size)) for size in range(59)]
    ids = [tokenizer.ids(text) for text in texts]
    sizes = np.array([*map(len, ids)])
    counts = csr_array(
        (np.ones(sizes.sum(), np.float32), np.concatenate(ids).astype(int), np.cumsum([0, *sizes])),
        (len(ids), len(tokenizer)),
    )
    expected_NH = (counts @ rows_VH) / np.maximum(sizes, 1).astype(np.float32)[:, None]
    assert np.array_equal(vectors.embed(texts), expected_NH)
