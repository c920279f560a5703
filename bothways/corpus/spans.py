"""Spans of words to be hidden (Joshi 2020, section 3.1). Letters: W words, in R runs between special tokens."""

import numpy as np

from bothways.rng import uniform

CONTINUE, LONGEST = 0.8, 10  # a span goes on with another word this often, up to so many: 3.8 words on average


def draw_spans(words_R: np.ndarray, keys_W: np.ndarray, rate: float) -> np.ndarray:
    """Of each word the one whose draws made the span it stands in, -1 where it stands in none. [W]

    words_R: how many words stand together. Each of them draws the length of a span. In their order these are taken
    until the rate's share of the words is used, the last one just so often that the share is met on average. Shuffled
    among the words left over, the spans lie anywhere with equal chance and never over each other.
    """
    length_W, _, _, take_W, place_W = uniform(keys_W, 5)
    run_W, words_W = np.repeat(np.arange(len(words_R)), words_R), np.repeat(words_R, words_R)
    first_W, number_W = np.repeat(words_R.cumsum() - words_R, words_R), np.arange(len(run_W))
    # The geometric distribution up to LONGEST, by its inverse.
    sizes_W = 1 + (np.log1p(-length_W * (1 - CONTINUE**LONGEST)) / np.log(CONTINUE)).astype(np.int64)
    before_W = sizes_W.cumsum() - sizes_W
    before_W -= before_W[first_W]
    sizes_W = np.minimum(sizes_W, words_W - before_W)
    taken_W = take_W * sizes_W < rate * words_W - before_W
    # The spans taken, and as many words of their own as make up the rest.
    items_R = words_R - np.bincount(run_W, taken_W * (sizes_W - 1), len(words_R)).astype(np.int64)
    sizes_W = np.where(taken_W, sizes_W, number_W - first_W < items_R[run_W])
    order = np.argsort(run_W + place_W)
    return np.repeat(np.where(taken_W, number_W, -1)[order], sizes_W[order])
