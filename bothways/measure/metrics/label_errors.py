"""Label errors found by confident learning (Northcutt 2021, section 3). No torch.

A model is more confident in some labels than in others, so each label has its own threshold: its mean probability over
the rows with that label. A row is suspicious if some labels reach their thresholds, and the most probable of them is
not the row's own label. The probabilities must come from a model that was not trained on these rows. The order is by
the probability of the row's own label: that finds more wrong labels than its margin to the best one (docs/LOG.md).
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

Probabilities = Mapping[str, float]  # probability by label; missing labels have 0
OUTLIER_DEVIATIONS = 4.0  # robust standard deviations beyond which a number is suspicious


@dataclass(frozen=True)
class LabelError:
    """A row (from 0) whose label may be wrong: its label, the suggested one, and the probabilities of both. is_likely:
    by the rule above; else another label is only more probable."""

    row: int
    label: str
    suggested: str
    label_probability: float
    suggested_probability: float
    is_likely: bool = True

    @property
    def order(self) -> tuple[float, int]:
        return self.label_probability, self.row


def label_errors(labels: Sequence[str], probabilities: Sequence[Probabilities]) -> list[LabelError]:
    """Likely errors among rows with one label each, most suspicious first. probabilities: as for `doubtful_labels`."""
    return [error for error in doubtful_labels(labels, probabilities) if error.is_likely]


def doubtful_labels(labels: Sequence[str], probabilities: Sequence[Probabilities]) -> list[LabelError]:
    """Rows with one label each for which another label is more probable, most suspicious first.

    probabilities: must include the given label and the most probable labels of each row.
    """
    counts = Counter(labels)
    sums = Counter[str]()
    for label, row_probabilities in zip(labels, probabilities, strict=True):
        sums[label] += row_probabilities.get(label, 0.0)  # type: ignore[assignment]
    mean_by_label = {label: sums[label] / count for label, count in counts.items()}
    errors = []
    for row, (label, row_probabilities) in enumerate(zip(labels, probabilities, strict=True)):
        confident = {
            name: probability
            for name, probability in row_probabilities.items()
            if probability >= mean_by_label.get(name, np.inf)
        }
        best = max(confident, key=lambda name: (confident[name], name), default=label)
        likely = best != label
        if not likely:
            best = max(row_probabilities, key=lambda name: (row_probabilities[name], name == label), default=label)
        if best != label:
            own = row_probabilities.get(label, 0.0)
            errors.append(LabelError(row, label, best, own, row_probabilities[best], likely))
    return sorted(errors, key=lambda error: error.order)


def label_set_errors(labels: Sequence[Collection[str]], probabilities: Sequence[Probabilities]) -> list[LabelError]:
    """Likely errors among rows with any number of labels; each label is decided independently.

    `label` and `suggested` of a result are "x" and "not x", or the reverse.
    """
    with_label, without = Counter[str](), Counter[str]()
    for row_labels, row_probabilities in zip(labels, probabilities, strict=True):
        for name, probability in row_probabilities.items():
            (with_label if name in row_labels else without)[name] += probability  # type: ignore[assignment]
    counts = Counter(name for row_labels in labels for name in row_labels)
    errors = []
    for row, (row_labels, row_probabilities) in enumerate(zip(labels, probabilities, strict=True)):
        for name, probability in row_probabilities.items():
            mean_if_present = with_label[name] / counts[name] if counts[name] else np.inf
            mean_if_absent = 1 - without[name] / max(1, len(labels) - counts[name])  # missing probabilities count as 0
            has, is_likely = name in row_labels, probability >= mean_if_present
            is_unlikely = 1 - probability >= mean_if_absent
            if not has and is_likely and not (is_unlikely and probability < 0.5):
                errors.append(LabelError(row, f"not {name}", name, 1 - probability, probability))
            elif has and is_unlikely and not (is_likely and probability >= 0.5):
                errors.append(LabelError(row, name, f"not {name}", probability, 1 - probability))
    return sorted(errors, key=lambda error: error.order)


def find_outliers(gold: Sequence[float], predicted: Sequence[float]) -> list[int]:
    """Rows whose number is more than OUTLIER_DEVIATIONS robust deviations from the prediction, furthest first.

    The robust standard deviation is 1.4826 times the median absolute deviation of the errors.
    """
    if not len(gold):
        return []
    errors_N = np.asarray(gold, float) - np.asarray(predicted, float)
    distances_N = abs(errors_N - np.median(errors_N))
    deviation = 1.4826 * float(np.median(distances_N))
    order = np.argsort(-distances_N, kind="stable")
    return [int(row) for row in order if distances_N[row] > OUTLIER_DEVIATIONS * deviation > 0]
