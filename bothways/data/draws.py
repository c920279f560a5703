"""Random numbers that depend on where they stand, never on what was drawn before: counter-based (Philox, Salmon 2011).

`at` names the place: an epoch, an example, a purpose. The same seed and place give the same numbers in any order, in
any process.
"""

from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """What a draw is for, so that no two uses share numbers."""

    MASK = 1
    PAIRS = 2
    ORDER = 3
    DROPOUT = 4
    HELD_OUT = 5


def generator(seed: int, purpose: Purpose, *at: int) -> np.random.Generator:
    """Numpy's generator for one place; at most three numbers."""
    first, second, third = (*at, 0, 0, 0)[:3]
    key = np.array([seed, purpose], np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=np.array([0, first, second, third], np.uint64)))


def seed_of(seed: int, purpose: Purpose, *at: int) -> int:
    """One number below 2^62 for a generator of another kind (torch's)."""
    return int(generator(seed, purpose, *at).integers(1 << 62))
