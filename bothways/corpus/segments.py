"""Vectorized arithmetic on segments, ranges of ids in the token store.

A Python loop over the sentences of a corpus would take minutes.
"""

import numpy as np

from bothways.corpus.store import TokenStore


def ranges(starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The integers of all ranges [start, end), concatenated."""
    sizes = ends - starts
    return np.repeat(starts - sizes.cumsum() + sizes, sizes) + np.arange(sizes.sum())


def random_integers(uniform: np.ndarray, bound: np.ndarray | int) -> np.ndarray:
    """Uniform integers in 0 ... bound - 1, from uniform numbers in [0, 1)."""
    return (uniform * bound).astype(np.int64)


def chunk_starts(used_S: np.ndarray) -> np.ndarray:
    """The first sentence of each chunk, if a chunk that starts at sentence s uses used_S[s] sentences. [C]"""
    starts, index, steps = [], 0, used_S.tolist()
    while index < len(steps):
        starts.append(index)
        index += steps[index]
    return np.array(starts, np.int64)


def random_segments(
    store: TokenStore, others: np.ndarray, first_R: np.ndarray, sizes_R: np.ndarray, uniform_R: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Start and end of segments of `sizes_R` tokens from a random sentence of another document.

    A sentence too close to the end of its document is replaced by the last one with enough tokens after it.
    others: the documents to draw from. first_R: the first sentences of the documents to exclude.
    """
    first_O, counts_O = store.documents[others], store.documents[others + 1] - store.documents[others]
    ends_O = counts_O.cumsum()
    excluded_R = np.searchsorted(first_O, first_R)
    rank_R = random_integers(uniform_R, ends_O[-1] - counts_O[excluded_R])
    rank_R += np.where(rank_R >= ends_O[excluded_R] - counts_O[excluded_R], counts_O[excluded_R], 0)
    other_R = np.searchsorted(ends_O, rank_R, "right")
    drawn_R = first_O[other_R] + rank_R - ends_O[other_R] + counts_O[other_R]
    stops_R = store.sentences[first_O[other_R] + counts_O[other_R]]
    fitting_R = np.searchsorted(store.sentences, stops_R - sizes_R, "right") - 1
    starts_R = store.sentences[np.maximum(np.minimum(drawn_R, fitting_R), first_O[other_R])]
    return starts_R, np.minimum(starts_R + sizes_R, stops_R)


def trim_pairs(
    starts_2C: np.ndarray, ends_2C: np.ndarray, room_C: np.ndarray, uniform_2C: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Trim both segments of each pair to `room_C` tokens together.

    The longer segment is trimmed first; the tokens to remove are divided at random between its two ends.
    """
    one_C, two_C = sizes_2C = ends_2C - starts_2C
    limit_2C = np.stack([np.maximum(room_C - two_C, (room_C + 1) // 2), np.maximum(room_C - one_C, room_C // 2)])
    trimmed_2C = np.minimum(sizes_2C, limit_2C)
    starts_2C = starts_2C + random_integers(uniform_2C, sizes_2C - trimmed_2C + 1)
    return starts_2C, starts_2C + trimmed_2C
