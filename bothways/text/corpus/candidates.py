"""Candidates: the words that the softmax of a micro-batch runs over, its labels and others drawn by their frequency.

Words are drawn without replacement and independently of each other (Poisson sampling, Hájek 1964), so that the
probability of each one to be drawn is known exactly. Letters: V vocabulary entries, K candidates, M masked tokens.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch

from bothways.base.rng import Purpose, make_keys, uniform
from bothways.text.batch import Batch

POWER = 0.75  # of the frequencies (Mikolov 2013, section 2.2)
UNSEEN = 0.1  # the weight of a word that the text lacks, added to all
# Half of the log of the probability. The whole log makes the sum over candidates an unbiased estimate of the sum over
# all words, but a noisy one: a rare word that was drawn stands for hundreds of others.
CORRECTION = 0.5
HALVINGS = 100  # of the interval that holds the rate; more than a float64 has digits


@dataclass(frozen=True, eq=False)
class CandidateRule:
    """How likely each word is to be a candidate.

    number: of words drawn, on average.
    probabilities_V: of each word to be drawn.
    corrections_V: what is taken off the score of each word, float32.
    """

    number: int
    probabilities_V: np.ndarray
    corrections_V: np.ndarray

    @staticmethod
    def from_frequencies(frequencies_V: np.ndarray, number: int) -> "CandidateRule":
        """Words are drawn by their count^0.75, `number` of them on average, at most all."""
        weights_V = frequencies_V.astype(np.float64) ** POWER + UNSEEN
        probabilities_V = inclusion_probabilities(weights_V, number)
        corrections_V = CORRECTION * np.log(probabilities_V)
        return CandidateRule(
            number=min(number, len(frequencies_V)),
            probabilities_V=probabilities_V,
            corrections_V=corrections_V.astype(np.float32),
        )


def inclusion_probabilities(weights_V: np.ndarray, number: int) -> np.ndarray:
    """Probabilities 1 - exp(-rate w) that sum to `number`; all are 1 if there are no more words. [V]"""
    if number >= len(weights_V):
        return np.ones(len(weights_V))

    # The sum grows with the rate. Where it is 1 / max(w) the sum is below V (1 - 1/e), and may be on either side.
    low = 0.0
    high = 1 / weights_V.max()
    while -np.expm1(-high * weights_V).sum() < number:
        high *= 2
    for _ in range(HALVINGS):
        rate = (low + high) / 2
        if -np.expm1(-rate * weights_V).sum() < number:
            low = rate
        else:
            high = rate

    probabilities_V: np.ndarray = -np.expm1(-high * weights_V)
    return probabilities_V


def draw_candidates(
    batch: Batch,
    rule: CandidateRule,
    *,
    seed: int,
    step: int,
    micro_batch: int,
) -> Batch:
    """The batch with candidates for its masked words: the labels and the words drawn.

    batch: a batch with labels, on the CPU.
    rule: the probability of each word.
    seed, step, micro_batch: on which alone the words drawn depend.
    """
    assert batch.masked_labels is not None
    labels_M = batch.masked_labels.numpy()

    keys = make_keys(seed, Purpose.CANDIDATES, step, micro_batch)
    draws_V = uniform(keys, len(rule.probabilities_V))[:, 0]
    is_candidate_V = draws_V < rule.probabilities_V
    is_candidate_V[labels_M] = True

    candidates_K = np.flatnonzero(is_candidate_V)
    index_V = is_candidate_V.cumsum() - 1
    return replace(
        batch,
        candidates=torch.from_numpy(candidates_K),
        candidate_corrections=torch.from_numpy(rule.corrections_V[candidates_K]),
        candidate_labels=torch.from_numpy(index_V[labels_M]),
    )
