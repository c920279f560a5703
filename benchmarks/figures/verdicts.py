"""What a run says of small data, against the truth on other rows (benchmarks/verdicts.py)."""

from collections import Counter
from statistics import fmean, stdev

import numpy as np

from benchmarks.figures.scores import Figures, markdown
from benchmarks.measurements import Measurement
from bothways.measure.metrics import reliability
from bothways.tasks.arrays import softmax
from bothways.tasks.class_decoding import fit_calibration

VERDICTS = ("better", "worse", "cannot tell", "as good as")
CLOSE = 0.02  # a true difference that no verdict need find
COVERAGE = 0.9
CALIBRATION_ROWS = (50, 100, 500, 1000)


def figures(measurement: Measurement) -> Figures:
    values: dict[str, float] = {"wrong": 0.0, "sets": 0.0}
    rows = []
    for name in dict.fromkeys(key.partition("/")[0] for key in measurement.arrays):
        said, wrong, close = verdicts(measurement, name)
        before, after = calibration_errors(measurement, name)
        coverages = {size: coverage(measurement, name, size) for size in CALIBRATION_ROWS}

        values["wrong"] += wrong
        values["sets"] = float(said.total())
        for size, shares in coverages.items():
            values |= {f"{name}.coverage {size}": fmean(shares), f"{name}.coverage {size}.std": stdev(shares)}
        rows.append(
            [
                name,
                ", ".join(f"{said[verdict]} {verdict}" for verdict in VERDICTS if said[verdict]),
                str(wrong),
                str(close),
                f"{before:.1f} / {after:.1f}",
                ", ".join(f"{fmean(shares):.1f} +- {stdev(shares):.1f}" for shares in coverages.values()),
            ]
        )
    head = [
        "set",
        "verdicts",
        "wrong",
        'of "cannot tell", true difference below two points',
        "calibration error, before / after",
        f"coverage of 90 % sets from {', '.join(f'{size:,}' for size in CALIBRATION_ROWS)} rows",
    ]
    return Figures(values, {"verdicts": markdown(head, rows)})


def verdicts(measurement: Measurement, name: str) -> tuple[Counter[str], int, int]:
    """How often each verdict was said, how many are wrong, and how many are open where little is to be told."""
    gold_DN = measurement[f"{name}/gold"] > 0
    right = [((measurement[f"{name}/{model}"] > 0) == gold_DN).mean(1) for model in ("head", "words")]
    lead_D = right[0] - right[1]
    said_D = [VERDICTS[code] for code in measurement[f"{name}/verdict"]]
    wrong = sum(
        (said == "better" and lead < 0) or (said == "worse" and lead > 0)
        for said, lead in zip(said_D, lead_D, strict=True)
    )
    close = sum(said == "cannot tell" and abs(lead) < CLOSE for said, lead in zip(said_D, lead_D, strict=True))
    return Counter(said_D), int(wrong), int(close)


def calibration_errors(measurement: Measurement, name: str) -> tuple[float, float]:
    """The mean expected calibration error on the other rows in percent: of the scores, and of calibrated ones."""
    errors = []
    dev_gold_DN, dev_head_DN = measurement[f"{name}/dev gold"], measurement[f"{name}/dev head"]
    for draw, gold_N in enumerate(measurement[f"{name}/gold"]):
        is_row_N = dev_gold_DN[draw] >= 0
        calibration = fit_calibration(two(dev_head_DN[draw, is_row_N]), dev_gold_DN[draw, is_row_N], multi_label=False)
        scores_NC = two(measurement[f"{name}/head"][draw])
        errors.append((error_of(scores_NC, gold_N), error_of(scores_NC / calibration.temperature, gold_N)))
    before, after = zip(*errors, strict=True)
    return 100 * fmean(before), 100 * fmean(after)


def coverage(measurement: Measurement, name: str, size: int) -> list[float]:
    """How often the right class is in a set of labels, in percent by draw. size: rows that the sets are fitted to."""
    shares = []
    for draw, gold_N in enumerate(measurement[f"{name}/gold"]):
        scores_NC = two(measurement[f"{name}/head"][draw])
        fitted = fit_calibration(scores_NC[:size], gold_N[:size], multi_label=False)
        probabilities_NC = softmax(scores_NC[size:] / fitted.temperature)
        of_gold_N = np.take_along_axis(probabilities_NC, gold_N[size:, None].astype(np.intp), 1)[:, 0]
        shares.append(100 * float((of_gold_N >= fitted.threshold(COVERAGE)).mean()))
    return shares


def two(margins_N: np.ndarray) -> np.ndarray:
    """The scores of two classes, [N, 2], from the second's minus the first's."""
    margins_N = margins_N.astype(np.float64)
    return np.stack([np.zeros_like(margins_N), margins_N], axis=1)


def error_of(scores_NC: np.ndarray, gold_N: np.ndarray) -> float:
    probabilities_NC = softmax(scores_NC)
    is_right_N = probabilities_NC.argmax(1) == gold_N
    return float(reliability(probabilities_NC.max(1).tolist(), is_right_N.tolist()).error)
