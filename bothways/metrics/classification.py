"""How good predictions are: classes, sets of labels, numbers; spreads, perplexity and calibration.

Scores of classes come from scikit-learn, loaded when first used. Letters: N texts, C labels, U values, V words.
"""

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from bothways.metrics.intervals import Interval, bootstrap, decision_intervals, mean_interval, wilson_interval

Label = TypeVar("Label", str, int)


def classification(
    gold: Sequence[Label], predicted: Sequence[Label], *, positive: Label | None = None
) -> dict[str, float]:
    """accuracy, F1 averaged over classes (macro) and over texts (micro), Matthews' correlation (0 where it is
    undefined), `majority`, the accuracy of always naming the commonest gold label, and with two classes `f1`.

    f1 is that of the class `positive`; where none is given and two stand in gold and predicted, of the last in order
    (1 of 0 and 1, "pos" of "neg" and "pos").
    """
    from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

    names = sorted(set(gold) | set(predicted))
    accuracy = float(accuracy_score(gold, predicted))
    scores = {
        "accuracy": accuracy,
        "f1_macro": float(f1_score(gold, predicted, average="macro", zero_division=0)),
        "f1_micro": accuracy,  # one label a text: what one class misses, another finds wrongly
        "matthews": float(matthews_corrcoef(gold, predicted)) if len(names) > 1 else 0.0,
        "majority": Counter(gold).most_common(1)[0][1] / len(gold),
    }
    if positive is None and len(names) == 2:
        positive = names[1]
    if positive is not None:
        by_class = f1_score(gold, predicted, labels=[positive], average=None, zero_division=0)
        scores["f1"] = float(by_class[0])
    return scores


def classification_intervals(
    gold: Sequence[Label], predicted: Sequence[Label], *, positive: Label | None = None
) -> dict[str, Interval]:
    """The 95 % intervals of `classification`'s scores; texts are independent."""
    names = sorted(set(gold) | set(predicted))
    if positive is None and len(names) == 2:
        positive = names[1]
    rows = range(len(gold))
    marks, given = (list(zip(rows, labels, strict=True)) for labels in (gold, predicted))
    found = decision_intervals(marks, given, np.arange(len(gold)), positive)
    accuracy = wilson_interval(sum(a == b for a, b in zip(gold, predicted, strict=True)), len(gold))
    f1 = {} if positive is None else {"f1": found["f1_positive"]}
    kept = {name: found[name] for name in ("f1_macro", "matthews")}
    return {"accuracy": accuracy, "f1_micro": accuracy, **kept, **f1}


def multi_label(
    gold: Sequence[Collection[str]], predicted: Sequence[Collection[str]], names: Sequence[str]
) -> dict[str, float]:
    """For texts with any number of the labels `names`: accuracy (a text's labels are all right and none is missing),
    F1 over all decisions (micro), averaged over labels (macro) and over texts (samples), and `majority`, the accuracy
    of always giving the commonest set of labels.

    A text without labels for which none is predicted is right: its F1 is 1. A label that neither has is left out.
    """
    gold_NC, predicted_NC = _indicators(gold, names), _indicators(predicted, names)
    right_NC, total_NC = 2 * (gold_NC & predicted_NC), gold_NC.astype(int) + predicted_NC
    used_C = total_NC.any(axis=0)
    return {
        "accuracy": float((gold_NC == predicted_NC).all(axis=1).mean()),
        "f1_micro": float(_ratio(right_NC.sum(), total_NC.sum())),
        "f1_macro": float(_ratio(right_NC.sum(axis=0), total_NC.sum(axis=0))[used_C].mean()) if used_C.any() else 1.0,
        "f1_samples": float(_ratio(right_NC.sum(axis=1), total_NC.sum(axis=1)).mean()),
        "majority": Counter(map(frozenset, gold)).most_common(1)[0][1] / len(gold),
    }


def multi_label_intervals(gold: Sequence[Collection[str]], predicted: Sequence[Collection[str]]) -> dict[str, Interval]:
    """The 95 % intervals of `multi_label`'s scores; texts are independent."""
    rows = range(len(gold))
    marks, given = ([(row, label) for row in rows for label in labels[row]] for labels in (gold, predicted))
    found = decision_intervals(marks, given, np.arange(len(gold)))
    both = [(set(a), set(b)) for a, b in zip(gold, predicted, strict=True)]
    samples = [2 * len(a & b) / len([*a, *b]) if a or b else 1.0 for a, b in both]
    return {
        "accuracy": wilson_interval(sum(a == b for a, b in both), len(both)),
        "f1_micro": found["f1"],
        "f1_macro": found["f1_macro"],
        "f1_samples": mean_interval(samples, rows),
    }


def _indicators(labels: Sequence[Collection[str]], names: Sequence[str]) -> np.ndarray:
    """[N, C], true where a text has a label."""
    place = {name: index for index, name in enumerate(names)}
    found_NC = np.zeros((len(labels), len(names)), bool)
    for row, given in enumerate(labels):
        found_NC[row, [place[name] for name in given]] = True
    return found_NC


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """part / whole; 1 where there is nothing to find and nothing found."""
    shares: np.ndarray = np.where(whole > 0, part, 1) / np.maximum(whole, 1)
    return shares


def regression(gold: Sequence[float] | np.ndarray, predicted: Sequence[float] | np.ndarray) -> dict[str, float]:
    """pearson, spearman (0 where one side is constant), mean_squared_error, mean_absolute_error, and `variance` of
    gold: the squared error of always guessing its mean."""
    gold_N, predicted_N = np.asarray(gold, float), np.asarray(predicted, float)
    return _number_scores(gold_N, predicted_N, _order(gold_N), _order(predicted_N))


def regression_intervals(gold: Sequence[float], predicted: Sequence[float]) -> dict[str, Interval]:
    """The 95 % intervals of `regression`'s correlations and errors; texts are independent."""
    gold_N, predicted_N = np.asarray(gold, float), np.asarray(predicted, float)
    columns = (gold_N, predicted_N, _order(gold_N), _order(predicted_N))  # sorted once, not for every resample

    def scores(drawn_N: np.ndarray) -> dict[str, float]:
        rows = np.repeat(np.arange(len(gold_N)), drawn_N)
        return _number_scores(*(column[rows] for column in columns))

    found = bootstrap(len(gold_N), scores)
    del found["variance"]
    return found


def _number_scores(
    gold_N: np.ndarray, predicted_N: np.ndarray, gold_order_N: np.ndarray, predicted_order_N: np.ndarray
) -> dict[str, float]:
    return {
        "pearson": _pearson(gold_N, predicted_N),
        "spearman": _pearson(_ranks(gold_order_N), _ranks(predicted_order_N)),
        "mean_squared_error": float(((gold_N - predicted_N) ** 2).mean()),
        "mean_absolute_error": float(abs(gold_N - predicted_N).mean()),
        "variance": float(gold_N.var()),
    }


def _pearson(a_N: np.ndarray, b_N: np.ndarray) -> float:
    if np.ptp(a_N) == 0 or np.ptp(b_N) == 0:
        return 0.0
    a_N, b_N = a_N - a_N.mean(), b_N - b_N.mean()
    # Sums, not products of matrices: those would start threads, which a thousand resamples on a busy machine wait for.
    return float((a_N * b_N).sum() / (math.sqrt((a_N**2).sum()) * math.sqrt((b_N**2).sum())))


def _order(values_N: np.ndarray) -> np.ndarray:
    """The place of each value among the different ones, from 0."""
    order_N: np.ndarray = np.unique(values_N, return_inverse=True)[1]
    return order_N


def _ranks(order_N: np.ndarray) -> np.ndarray:
    """From 1; equal values share the mean of their ranks."""
    count_U = np.bincount(order_N)
    ranks_U = count_U.cumsum() - (count_U - 1) / 2
    ranks_N: np.ndarray = ranks_U[order_N]
    return ranks_N


@dataclass(frozen=True)
class Bin:
    """Predictions of about one confidence: the mean of it, the share that is right, their number."""

    confidence: float
    accuracy: float
    count: int


@dataclass(frozen=True)
class Reliability:
    """What a reliability diagram shows; `error` is the expected calibration error, in 0..1."""

    bins: list[Bin]
    error: float


def reliability(confidences: Sequence[float], right: Sequence[bool], bins: int = 10) -> Reliability:
    """Confidence against accuracy in bins of equal width, (0, 1/bins] first (Guo 2017, eq. 3); empty bins are left out.

    confidences: the probability of each predicted label, in 0..1; right: whether it is the gold one.
    """
    confidences_N, right_N = np.asarray(confidences, float), np.asarray(right, float)
    bin_N = np.clip(np.ceil(confidences_N * bins).astype(int) - 1, 0, bins - 1)
    filled = [
        Bin(float(confidences_N[bin_N == number].mean()), float(right_N[bin_N == number].mean()), int(count))
        for number, count in enumerate(np.bincount(bin_N, minlength=bins))
        if count
    ]
    gaps = sum(part.count * abs(part.accuracy - part.confidence) for part in filled)
    return Reliability(filled, gaps / len(right_N))


def perplexity(mean_loss: float) -> float:
    """exp of a mean cross-entropy in nats; capped where it would overflow."""
    return math.exp(min(mean_loss, 700.0))


def unigram_probabilities(counts_V: np.ndarray) -> np.ndarray:
    """How likely each word is by its count, none impossible (add-one smoothing)."""
    shares_V: np.ndarray = (counts_V + 1) / (counts_V.sum() + len(counts_V))
    return shares_V


def unigram_loss(counts_V: np.ndarray, targets_M: np.ndarray) -> float:
    """Mean cross-entropy in nats of guessing by how often each word stands in the training text."""
    return float(-np.log(unigram_probabilities(counts_V)[targets_M]).mean())


def mean_and_std(scores: Sequence[float]) -> tuple[float, float]:
    """Mean and sample standard deviation; 0 for a single score, which has none."""
    return float(np.mean(scores)), float(np.std(scores, ddof=1)) if len(scores) > 1 else 0.0
