"""How good predictions are. Standard scores come from scikit-learn; intervals and spreads are here."""

import math
from collections.abc import Sequence

import numpy as np


def classification(gold: Sequence[str], predicted: Sequence[str]) -> dict[str, float]:
    """accuracy, macro-averaged F1, and the accuracy of always naming the commonest gold label."""
    from sklearn.metrics import accuracy_score, f1_score

    commonest = max(gold.count(label) for label in set(gold)) / len(gold)
    return {
        "accuracy": float(accuracy_score(gold, predicted)),
        "f1_macro": float(f1_score(gold, predicted, average="macro", zero_division=0)),
        "majority": commonest,
    }


def interval(successes: float, trials: float, z: float = 1.96) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927)."""
    if not trials:
        return 0.0, 1.0
    share = successes / trials
    middle = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return middle - half, middle + half


def perplexity(mean_loss: float) -> float:
    """exp of a mean cross-entropy in nats; capped where it would overflow."""
    return math.exp(min(mean_loss, 700.0))


def unigram_shares(counts_V: np.ndarray) -> np.ndarray:
    """How likely each word is by its count, none impossible (add-one smoothing)."""
    shares_V: np.ndarray = (counts_V + 1) / (counts_V.sum() + len(counts_V))
    return shares_V


def unigram_loss(counts_V: np.ndarray, targets_M: np.ndarray) -> float:
    """Mean cross-entropy in nats of guessing by how often each word stands in the training text."""
    return float(-np.log(unigram_shares(counts_V)[targets_M]).mean())


def spread(scores: Sequence[float]) -> tuple[float, float]:
    """Mean and sample standard deviation; 0 for a single score, which has none."""
    return float(np.mean(scores)), float(np.std(scores, ddof=1)) if len(scores) > 1 else 0.0
