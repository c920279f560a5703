"""Random numbers that depend on where they stand, never on what was drawn before.

A place is named by numbers: an epoch, a text, a token. The same seed and place give the same numbers in any order, in
any process. Two forms: for many places at once a tree of hashes (SplitMix64, Steele 2014: each key seeds a sequence,
whose outputs are the keys below it); for one place numpy's own generator (Philox, Salmon 2011).
"""

from enum import IntEnum

import numpy as np

Whole = int | np.integer | np.ndarray  # numbers of places, at least 0
STEP = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio, odd


class Purpose(IntEnum):
    """What a draw is for, so that no two uses share numbers."""

    MASK = 1
    PAIRS = 2
    ORDER = 3
    DROPOUT = 4
    HELD_OUT = 5
    EXTRAS = 6  # weights of parts that only training needs
    BOOTSTRAP = 7
    FOLDS = 8
    WINDOWS = 9


def keys(seed: int, purpose: Purpose, *at: Whole) -> np.ndarray:
    """A key for each place; the numbers that name places broadcast together. uint64, of one dimension at least."""
    found = np.array([seed], np.uint64)
    for number in (purpose, *at):
        found = below(found, number)
    return found


def below(keys: np.ndarray, number: Whole) -> np.ndarray:
    """The key of place `number` (0, 1, ...) under each of these: output `number` of the sequence it seeds."""
    mixed: np.ndarray = keys + (np.array(number, np.uint64, ndmin=1) + np.uint64(1)) * STEP
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def uniforms(keys: np.ndarray, draws: int) -> np.ndarray:
    """Numbers in [0, 1) for each key, [draws, *keys.shape]; the first ones are the same however many are drawn."""
    numbers = np.arange(draws).reshape(-1, *(1,) * keys.ndim)
    return (below(keys, numbers) >> np.uint64(11)) * 2.0**-53


def generator(seed: int, purpose: Purpose, *at: int) -> np.random.Generator:
    """Numpy's generator for one place; at most three numbers."""
    first, second, third = (*at, 0, 0, 0)[:3]
    key = np.array([seed, purpose], np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=np.array([0, first, second, third], np.uint64)))


def seed_of(seed: int, purpose: Purpose, *at: int) -> int:
    """One number below 2^62 for a generator of another kind (torch's)."""
    return int(generator(seed, purpose, *at).integers(1 << 62))
