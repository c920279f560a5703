"""Label errors found by confident learning (Northcutt 2021, section 3). No torch.

A model is more confident in some labels than in others, so each label has its own threshold: its mean probability over
the rows with that label. A row is suspicious if some labels that are more probable than its own reach their thresholds;
the most probable of them is suggested. The probabilities must come from a model that was not trained on these rows. The
order is by the probability of the row's own label: of 24 wrong labels in 400 rows the first 40 have 19.5, against 18.3
by its margin to the best label (docs/LOG.md, which label is most suspicious).
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

Probabilities = Mapping[str, float]  # probability by label; missing labels have 0
OUTLIER_DEVIATIONS = 4.0  # robust standard deviations beyond which a number is suspicious
# The model that judges a row was not fitted to it. With one row, it knows nothing of the label: the mean is about 0,
# which every row would reach. With this and the condition that the suggested label is more probable, 177 rows are
# listed in 20 tables with rare labels instead of 1,034, with 136 instead of 157 of the 160 wrong labels
# (docs/RESULTS.md).
MIN_THRESHOLD_ROWS = 2


@dataclass(frozen=True)
class LabelError:
    """A row whose label may be wrong.

    row: its number, from 0.
    label, suggested: its label, and the suggested one, with the probability of each.
    is_likely: by the rule above; else another label is only more probable.
    """

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
    threshold_by_label = {label: _threshold(sums[label], count) for label, count in counts.items()}

    errors = []
    for row, (label, row_probabilities) in enumerate(zip(labels, probabilities, strict=True)):
        label_probability = row_probabilities.get(label, 0.0)
        more_probable = {
            name: probability for name, probability in row_probabilities.items() if probability > label_probability
        }
        if not more_probable:
            continue

        confident = {
            name: probability
            for name, probability in more_probable.items()
            if probability >= threshold_by_label.get(name, np.inf)
        }
        choices = confident or more_probable
        suggested = max(choices, key=lambda name: (choices[name], name))
        errors.append(
            LabelError(
                row=row,
                label=label,
                suggested=suggested,
                label_probability=label_probability,
                suggested_probability=choices[suggested],
                is_likely=bool(confident),
            )
        )
    return sorted(errors, key=lambda error: error.order)


def _threshold(total: float, count: int) -> float:
    """The mean probability of a label over its rows; infinite, so that nothing reaches it, for a label of one row."""
    return total / count if count >= MIN_THRESHOLD_ROWS else np.inf


def label_set_errors(labels: Sequence[Collection[str]], probabilities: Sequence[Probabilities]) -> list[LabelError]:
    """Likely errors among rows with any number of labels; each label is decided independently.

    `label` and `suggested` of a result are "x" and "not x", or the reverse.
    """
    sums_present = Counter[str]()
    sums_absent = Counter[str]()
    for row_labels, row_probabilities in zip(labels, probabilities, strict=True):
        for name, probability in row_probabilities.items():
            if name in row_labels:
                sums_present[name] += probability  # type: ignore[assignment]
            else:
                sums_absent[name] += probability  # type: ignore[assignment]
    counts = Counter(name for row_labels in labels for name in row_labels)

    # Each label is decided on its own: it is present with its probability, and absent with the rest.
    errors = []
    for row, (row_labels, row_probabilities) in enumerate(zip(labels, probabilities, strict=True)):
        for name, presence in row_probabilities.items():
            absence = 1 - presence
            num_absent = len(labels) - counts[name]
            if name in row_labels:
                # Missing probabilities count as 0.
                threshold = _threshold(num_absent - sums_absent[name], num_absent)
                label = name
                suggested = f"not {name}"
                label_probability = presence
                suggested_probability = absence
            else:
                threshold = _threshold(sums_present[name], counts[name])
                label = f"not {name}"
                suggested = name
                label_probability = absence
                suggested_probability = presence

            if suggested_probability > label_probability and suggested_probability >= threshold:
                errors.append(
                    LabelError(
                        row=row,
                        label=label,
                        suggested=suggested,
                        label_probability=label_probability,
                        suggested_probability=suggested_probability,
                    )
                )
    return sorted(errors, key=lambda error: error.order)


def find_outliers(gold: Sequence[float], predicted: Sequence[float]) -> list[int]:
    """Rows whose number is more than OUTLIER_DEVIATIONS robust deviations from the prediction, furthest first.

    The robust standard deviation is 1.4826 times the median absolute deviation of the errors.
    """
    if not len(gold):
        return []

    # Medians, since a wrong number would widen a standard deviation until it hides itself.
    errors_N = np.asarray(gold, float) - np.asarray(predicted, float)
    distances_N = abs(errors_N - np.median(errors_N))
    deviation = 1.4826 * float(np.median(distances_N))
    order = np.argsort(-distances_N, kind="stable")
    return [int(row) for row in order if distances_N[row] > OUTLIER_DEVIATIONS * deviation > 0]
