"""Counter-based random numbers: reproducible in any order, in any process.

Each draw has an address of integers, such as an epoch, a text and a token. The same seed and address give the same
numbers, whatever was drawn before. Vectorized draws use a tree of hashes (SplitMix64, Steele 2014): each key seeds a
sequence whose outputs are the keys below it. Single generators are NumPy's Philox (Salmon 2011).
"""

from __future__ import annotations  # numpy.random, which takes 10 ms, is imported by the first draw

from enum import IntEnum

import numpy as np

Index = int | np.integer | np.ndarray  # at least 0
STEP = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio, odd


class Purpose(IntEnum):
    """The purpose of a draw. Different purposes never share random numbers."""

    MASK = 1
    PAIRS = 2
    ORDER = 3
    DROPOUT = 4
    HELD_OUT = 5
    EXTRAS = 6  # weights of modules that only training needs
    BOOTSTRAP = 7
    FOLDS = 8
    WINDOWS = 9
    TEXTS = 10  # texts cut from passages, for distillation
    LABELS = 11  # texts to be labelled next
    SCOPE = 12  # training texts that tell what texts are like them
    NEGATIVES = 13  # passages of a query that a step reads
    CANDIDATES = 14  # words that the softmax of a micro-batch runs over


def make_keys(seed: int, purpose: Purpose, *indices: Index) -> np.ndarray:
    """A uint64 key for each address. The indices broadcast together; the result has at least one dimension."""
    keys = np.array([seed], np.uint64)
    for index in (purpose, *indices):
        keys = fold_in(keys, index)
    return keys


def fold_in(keys: np.ndarray, index: Index) -> np.ndarray:
    """The key at `index` (0, 1, ...) below each key: output `index` of the sequence that the key seeds."""
    mixed: np.ndarray = keys + (np.array(index, np.uint64, ndmin=1) + np.uint64(1)) * STEP
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def uniform(keys: np.ndarray, num_draws: int) -> np.ndarray:
    """Numbers in [0, 1) for each key, [num_draws, *keys.shape]. The first ones do not depend on `num_draws`."""
    indices = np.arange(num_draws).reshape(-1, *(1,) * keys.ndim)
    return (fold_in(keys, indices) >> np.uint64(11)) * 2.0**-53


def generator(seed: int, purpose: Purpose, *indices: int) -> np.random.Generator:
    """A NumPy generator for one address of at most three indices."""
    first, second, third = (*indices, 0, 0, 0)[:3]
    key = np.array([seed, purpose], np.uint64)
    counter = np.array([0, first, second, third], np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def derive_seed(seed: int, purpose: Purpose, *indices: int) -> int:
    """A seed below 2^62 for another library's generator, such as torch's."""
    return int(generator(seed, purpose, *indices).integers(1 << 62))
