"""Span masking: random spans of words (SpanBERT, Joshi 2020, section 3.1).

Letters: W words, in R runs between special tokens.
"""

import numpy as np

from bothways.rng import uniform

CONTINUE, LONGEST = 0.8, 10  # probability of one more word, and most words of a span: 3.8 words on average


def draw_spans(words_R: np.ndarray, keys_W: np.ndarray, rate: float) -> np.ndarray:
    """For each word, the index of the word whose draws made its span; -1 outside spans. [W]

    words_R: the number of words in each run. Every word draws a span length. These spans are taken in order until
    `rate` of the words is covered; the last one is taken with the probability that makes the rate exact on average.
    Shuffling the spans with the remaining words places them uniformly and without overlap.
    """
    length_W, _, _, take_W, order_W = uniform(keys_W, 5)
    run_W, words_W = np.repeat(np.arange(len(words_R)), words_R), np.repeat(words_R, words_R)
    first_W, number_W = np.repeat(words_R.cumsum() - words_R, words_R), np.arange(len(run_W))
    # The geometric distribution up to LONGEST, by its inverse.
    sizes_W = 1 + (np.log1p(-length_W * (1 - CONTINUE**LONGEST)) / np.log(CONTINUE)).astype(np.int64)
    before_W = sizes_W.cumsum() - sizes_W
    before_W -= before_W[first_W]
    sizes_W = np.minimum(sizes_W, words_W - before_W)
    taken_W = take_W * sizes_W < rate * words_W - before_W
    # The spans taken, and single words for the rest.
    items_R = words_R - np.bincount(run_W, taken_W * (sizes_W - 1), len(words_R)).astype(np.int64)
    sizes_W = np.where(taken_W, sizes_W, number_W - first_W < items_R[run_W])
    order = np.argsort(run_W + order_W)
    return np.repeat(np.where(taken_W, number_W, -1)[order], sizes_W[order])
