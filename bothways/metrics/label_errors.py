"""Labels that may be wrong, by what a model that was not trained on the rows says of them: confident learning
(Northcutt 2021, section 3). No torch here.

A model is not equally sure of all labels. So the measure is its own: how sure it is, on average, of a label on rows
that have it. A row is doubtful where the model is at least as sure as that of another label, and not of the given one
or less. Averages of a model's probabilities are meaningful only on rows that it was not trained on.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

Probabilities = Mapping[str, float]  # by label; those not named are taken for 0
OUTLIER_DEVIATIONS = 4.0  # robust deviations beyond which a number is doubtful


@dataclass(frozen=True)
class LabelError:
    """A row, counted from 0, whose label may be wrong: what it is given, what is likelier, and how likely both are."""

    row: int
    given: str
    suggested: str
    given_probability: float
    probability: float


def label_errors(given: Sequence[str], probabilities: Sequence[Probabilities]) -> list[LabelError]:
    """Of rows with one label each, the most doubtful first. probabilities: at least those of the given and of the
    likeliest labels of each row."""
    counts = Counter(given)
    sums = Counter[str]()
    for label, own in zip(given, probabilities, strict=True):
        sums[label] += own.get(label, 0.0)  # type: ignore[assignment]
    usual = {label: sums[label] / number for label, number in counts.items()}
    found = []
    for row, (label, own) in enumerate(zip(given, probabilities, strict=True)):
        sure = {name: share for name, share in own.items() if share >= usual.get(name, np.inf)}
        best = max(sure, key=lambda name: (sure[name], name), default=label)
        if best != label:
            found.append(LabelError(row, label, best, own.get(label, 0.0), own[best]))
    return sorted(found, key=lambda error: (error.given_probability - error.probability, error.row))


def label_set_errors(given: Sequence[Collection[str]], probabilities: Sequence[Probabilities]) -> list[LabelError]:
    """Of rows with any number of labels: each is decided by itself, whether a row has it or not. `given` and
    `suggested` are "x" and "not x"."""
    names = sorted({name for own in probabilities for name in own})
    with_label, without = Counter[str](), Counter[str]()
    for labels, own in zip(given, probabilities, strict=True):
        for name, share in own.items():
            (with_label if name in labels else without)[name] += share  # type: ignore[assignment]
    counts = Counter(name for labels in given for name in labels)
    usual = {name: with_label[name] / counts[name] if counts[name] else np.inf for name in names}
    # Probabilities that are not named are taken for 0.
    usual_not = {name: 1 - without[name] / max(1, len(given) - counts[name]) for name in names}
    found = []
    for row, (labels, own) in enumerate(zip(given, probabilities, strict=True)):
        for name, share in own.items():
            has, is_likely = name in labels, share >= usual[name]
            is_unlikely = 1 - share >= usual_not[name]
            if not has and is_likely and not (is_unlikely and share < 0.5):
                found.append(LabelError(row, f"not {name}", name, 1 - share, share))
            elif has and is_unlikely and not (is_likely and share >= 0.5):
                found.append(LabelError(row, name, f"not {name}", share, 1 - share))
    return sorted(found, key=lambda error: (error.given_probability - error.probability, error.row))


def find_outliers(gold: Sequence[float], predicted: Sequence[float]) -> list[int]:
    """Rows whose number is further from the prediction than FAR_OFF robust deviations (1.4826 times the median distance
    of the errors from their median), the furthest first."""
    if not len(gold):
        return []
    errors_N = np.asarray(gold, float) - np.asarray(predicted, float)
    distances_N = abs(errors_N - np.median(errors_N))
    deviation = 1.4826 * float(np.median(distances_N))
    order = np.argsort(-distances_N, kind="stable")
    return [int(row) for row in order if distances_N[row] > OUTLIER_DEVIATIONS * deviation > 0]
