"""Static vectors of a small vocabulary, for tests."""

import numpy as np

from bothways.model.linear.static_vectors import StaticVectors, VectorTable
from bothways.text.tokenizer.tokenizer import Tokenizer

WORDS = "fee fees late invoice payment cat kitten sat mat the a of is paid report year annual".split()


def small_static(size: int = 8, seed: int = 0) -> StaticVectors:
    """Words with random vectors, of which fee and payment, cat and kitten are near each other."""
    tokens = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *WORDS,
        *(chr(code) for code in range(97, 123) if chr(code) != "a"),
    ]
    tokens += [f"##{chr(code)}" for code in range(97, 123)]
    rows = np.random.default_rng(seed).normal(size=(len(tokens), size)).astype(np.float32)
    place = {token: index for index, token in enumerate(tokens)}
    for word, other in (("payment", "fee"), ("fees", "fee"), ("kitten", "cat")):
        rows[place[word]] = rows[place[other]] + 0.1 * rows[place[word]]
    rows[1] = 0
    return StaticVectors(
        Tokenizer({token: index for index, token in enumerate(tokens)}), VectorTable(rows), unknown=[1]
    )
