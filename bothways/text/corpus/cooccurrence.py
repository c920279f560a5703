"""Word vectors from co-occurrence counts: factorized positive PMI, to initialize embeddings.

Sources: Levy & Goldberg 2014, section 3; square root of the singular values: Levy 2015, section 3.3. An encoder
initialized with these vectors starts with similar tokens close together. Counting takes seconds, while learning this by
training takes millions of tokens: after 0.4 M tokens the perplexity is 608 instead of 1,006 (docs/LOG.md).

Letters: T tokens, V vocabulary entries, E embedding size.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from bothways.base.rng import Purpose, generator
from bothways.text.batching import token_batches
from bothways.text.corpus.sentence_pairs import ranges
from bothways.text.corpus.token_store import TokenStore

WINDOW = 4  # tokens on each side; a token at distance d counts 1/d
MOST_TOKENS = 1 << 24  # tokens to count; vectors of 33 M and of 104 M were about equal (docs/LOG.md)
BLOCK = 1 << 22  # tokens counted at a time
SMOOTHING = 0.75  # power of the contexts' frequencies (Levy 2015, section 3.2)
OVERSAMPLING = 16  # of the randomized factorization (Halko 2011, algorithm 4.4)
ROUNDS = 2  # of its subspace iteration

Vectors = NDArray[np.float32]


def word_vectors(
    store: TokenStore,
    documents: np.ndarray,
    vocab_size: int,
    size: int,
    *,
    seed: int,
) -> Vectors:
    """A vector for each vocabulary entry, [V, E], with mean 0 and standard deviation 1 over all elements.

    store: the token store.
    documents: indices of the documents to count. Above MOST_TOKENS, a random sample of them is counted.
    vocab_size: number of entries. Entries that do not occur in the documents get 0.
    size: elements of a vector.
    seed: of the sample and the factorization.
    """
    draws = generator(seed, Purpose.EXTRAS, 1)
    # Each pair is counted in its order, and then in both.
    counts_VV = sparse.csr_matrix((vocab_size, vocab_size), dtype=np.float32)
    for ids_T in _token_blocks(store, draws.permutation(documents)):
        counts_VV = counts_VV + _count_pairs(ids_T, vocab_size)
    counts_VV = counts_VV + counts_VV.T

    factors_VE = _factors(_ppmi(counts_VV), size, draws)
    deviation = float(factors_VE.std())
    return factors_VE / deviation if deviation else factors_VE


def _token_blocks(store: TokenStore, documents: np.ndarray) -> Iterator[np.ndarray]:
    """The tokens of these documents in blocks of BLOCK tokens, up to MOST_TOKENS."""
    bounds = store.sentences[store.documents]
    sizes = np.diff(bounds)[documents]
    documents = documents[sizes.cumsum() - sizes < MOST_TOKENS]

    for rows in token_batches(range(len(documents)), sizes, BLOCK):
        selected = np.sort(documents[rows])
        ids_T = store.ids[ranges(bounds[selected], bounds[selected + 1])]
        for start in range(0, len(ids_T), BLOCK):  # a document may be longer than a block
            yield ids_T[start : start + BLOCK].astype(np.int32)


def _count_pairs(ids_T: np.ndarray, vocab_size: int) -> sparse.csr_matrix:
    """Weighted counts of each token before each other token within the window. [V, V]"""
    if len(ids_T) < 2:
        return sparse.csr_matrix((vocab_size, vocab_size), dtype=np.float32)

    distances = range(1, min(WINDOW, len(ids_T) - 1) + 1)
    first = np.concatenate([ids_T[:-distance] for distance in distances])
    second = np.concatenate([ids_T[distance:] for distance in distances])
    weights = np.concatenate([np.full(len(ids_T) - distance, 1 / distance, np.float32) for distance in distances])
    return sparse.coo_matrix((weights, (first, second)), (vocab_size, vocab_size)).tocsr()


def _ppmi(counts_VV: sparse.csr_matrix) -> sparse.csr_matrix:
    """Positive pointwise mutual information: max(0, log(p(a, b) / (p(a) p(b))))."""
    counts = counts_VV.tocoo()
    sums_V = np.asarray(counts_VV.sum(axis=1), np.float64).ravel()
    contexts_V = sums_V**SMOOTHING
    contexts_V /= contexts_V.sum() or 1.0

    information = np.log(counts.data / (sums_V[counts.row] * contexts_V[counts.col]))
    is_positive = information > 0
    values = information[is_positive].astype(np.float32)
    rows = counts.row[is_positive]
    columns = counts.col[is_positive]
    return sparse.csr_matrix((values, (rows, columns)), counts_VV.shape)


def _factors(matrix_VV: sparse.csr_matrix, size: int, draws: np.random.Generator) -> Vectors:
    """U sqrt(S) of the largest singular values by randomized SVD, padded with zero columns. [V, size]"""
    vocab_size = matrix_VV.shape[0]
    basis = draws.standard_normal((vocab_size, min(vocab_size, size + OVERSAMPLING)), np.float32)
    for _ in range(ROUNDS):
        basis, _ = np.linalg.qr(matrix_VV @ (matrix_VV.T @ basis))

    left, values, _ = np.linalg.svd((matrix_VV.T @ basis).T, full_matrices=False)
    factors = (basis @ left) * np.sqrt(values)

    padded = np.zeros((vocab_size, size), np.float32)
    padded[:, : min(size, factors.shape[1])] = factors[:, :size]
    return padded
