"""Arithmetic of segments, ranges of the token store: many at once, where a loop over sentences would take minutes."""

import numpy as np

from bothways.corpus.store import TokenStore


def ranges(starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The whole numbers of each range, one range after another."""
    sizes = ends - starts
    return np.repeat(starts - sizes.cumsum() + sizes, sizes) + np.arange(sizes.sum())


def random_integers(uniform: np.ndarray, number: np.ndarray | int) -> np.ndarray:
    """0, 1, ... number - 1, each as likely."""
    return (uniform * number).astype(np.int64)


def chunk_starts(used_S: np.ndarray) -> np.ndarray:
    """Which sentences begin chunks, if a chunk that begins with a sentence uses so many. [C]"""
    chunks, at, used = [], 0, used_S.tolist()
    while at < len(used):
        chunks.append(at)
        at += used[at]
    return np.array(chunks, np.int64)


def random_segments(
    store: TokenStore, others: np.ndarray, first_R: np.ndarray, sizes_R: np.ndarray, uniform_R: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Start and end of so many tokens from a random sentence of another document on, or else of its last ones.

    first_R: the first sentences of the documents that must not be drawn.
    """
    first_O, counts_O = store.documents[others], store.documents[others + 1] - store.documents[others]
    ends_O = counts_O.cumsum()
    own_R = np.searchsorted(first_O, first_R)
    rank_R = random_integers(uniform_R, ends_O[-1] - counts_O[own_R])
    rank_R += np.where(rank_R >= ends_O[own_R] - counts_O[own_R], counts_O[own_R], 0)
    other_R = np.searchsorted(ends_O, rank_R, "right")
    drawn_R = first_O[other_R] + rank_R - ends_O[other_R] + counts_O[other_R]
    stops_R = store.sentences[first_O[other_R] + counts_O[other_R]]
    fitting_R = np.searchsorted(store.sentences, stops_R - sizes_R, "right") - 1
    starts_R = store.sentences[np.maximum(np.minimum(drawn_R, fitting_R), first_O[other_R])]
    return starts_R, np.minimum(starts_R + sizes_R, stops_R)


def trim_pairs(
    starts_2C: np.ndarray, ends_2C: np.ndarray, room_C: np.ndarray, uniform_2C: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Both segments of each pair within its room: the longer gives way first, at its two ends in random proportion."""
    one_C, two_C = sizes_2C = ends_2C - starts_2C
    most_2C = np.stack([np.maximum(room_C - two_C, (room_C + 1) // 2), np.maximum(room_C - one_C, room_C // 2)])
    kept_2C = np.minimum(sizes_2C, most_2C)
    starts_2C = starts_2C + random_integers(uniform_2C, sizes_2C - kept_2C + 1)
    return starts_2C, starts_2C + kept_2C
