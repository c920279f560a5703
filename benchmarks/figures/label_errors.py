"""Wrong labels found (benchmarks/label_errors.py)."""

from collections.abc import Mapping
from statistics import fmean, stdev

import numpy as np

from benchmarks.figures.scores import Figures, markdown
from benchmarks.measurements import Measurement
from bothways.measure.metrics.label_errors import label_errors

LABELS = ("negative", "positive")
FIRST_DRAWS = 3
FINDERS = {
    "check": "`bothways check`",
    "cleanlab": "cleanlab 2.9.0, `find_label_issues`",
    "confident learning": 'cleanlab, `filter_by="confident_learning"`',
}


def of_training(measurement: Measurement) -> Figures:
    """The list of a cross-validated training, with the rule of the package."""
    values: dict[str, float] = {}
    rows = []
    for name in sorted({key.partition("/")[0] for key in measurement.arrays}, key=lambda name: (len(name), name)):
        labels_N = measurement[f"{name}/labels"]
        probabilities_NC = measurement[f"{name}/probabilities"]
        is_right_N = probabilities_NC.argmax(1) == labels_N
        folds_N = measurement[f"{name}/fold"]
        accuracies = [100 * float(is_right_N[folds_N == fold].mean()) for fold in np.unique(folds_N)]

        by_label = [dict(zip(LABELS, row, strict=True)) for row in probabilities_NC.tolist()]
        listed = [error.row for error in label_errors([LABELS[label] for label in labels_N], by_label)]
        is_wrong_N = measurement[f"{name}/wrong"]
        hits = is_wrong_N[listed]
        values |= {f"{name}.listed": float(len(listed)), f"{name}.hits": float(hits.sum())}

        epochs, _, seed = name.partition("-")
        rows.append(
            [
                f"{epochs} epochs, seed {seed}",
                f"{fmean(accuracies):.1f} % +- {stdev(accuracies):.1f}",
                str(len(listed)),
                f"{hits.sum()} of {is_wrong_N.sum()}",
                str(hits[:10].sum()),
                str(hits[:30].sum()),
            ]
        )
    listed_by_run = [value for name, value in values.items() if name.endswith(".listed")]
    hits_by_run = [value for name, value in values.items() if name.endswith(".hits")]
    values |= {
        "listed.least": min(listed_by_run),
        "listed.most": max(listed_by_run),
        "hits.least": min(hits_by_run),
        "hits.most": max(hits_by_run),
    }
    head = [
        "",
        "accuracy over folds",
        "rows listed",
        "wrong labels among them",
        "in the first 10",
        "in the first 30",
    ]
    return Figures(values, {"training": markdown(head, rows)})


def of_messages(measurement: Measurement) -> Figures:
    """Changed labels among the first suspects, by draw."""
    draws = sorted(int(name.partition("/")[0]) for name in measurement.arrays if name.endswith("/wrong"))
    planted = len(measurement[f"{draws[0]}/wrong"])
    titles = {
        "check": "`bothways check`",
        "ten lines": "ten lines over `embed`: logistic regression, cleanlab's ranking",
    }

    values: dict[str, float] = {}
    rows = []
    for most in (40, planted):
        for way, title in titles.items():
            counts = [
                int(np.isin(measurement[f"{draw}/{way}"][:most], measurement[f"{draw}/wrong"]).sum()) for draw in draws
            ]
            values[f"{way}.{most}"] = fmean(counts)
            values[f"{way}.{most}.first"] = fmean(counts[:FIRST_DRAWS])
            rows.append(
                [
                    f"{title}, among the first {most}",
                    f"{fmean(counts[:FIRST_DRAWS]):.1f}",
                    f"{fmean(counts):.1f}",
                    ", ".join(map(str, counts)),
                ]
            )
    head = [f"changed labels, of {planted}", f"first {FIRST_DRAWS} draws", f"all {len(draws)} draws", "by draw"]
    return Figures(values, {"messages": markdown(head, rows)})


def of_rare_classes(measurement: Measurement) -> Figures:
    """Rows that three rules list, judging the same probabilities."""
    is_wrong_TN = measurement["labels"] != measurement["true"]
    values = {"wrong": float(is_wrong_TN.sum()), "tables": float(len(is_wrong_TN))}
    rows = []
    for name, title in FINDERS.items():
        counts = counts_of(measurement[f"suggested/{name}"] >= 0, is_wrong_TN)
        values |= {f"{name}.{key}": float(value) for key, value in counts.items()}
        rows.append([title, *map(str, counts.values())])
    head = [
        f"rows listed as likely errors, in all {len(is_wrong_TN)} tables",
        "listed",
        f"wrong labels, of {is_wrong_TN.sum()}",
        "right ones",
        "at most in a table",
    ]
    return Figures(values, {"rare": markdown(head, rows)})


def counts_of(is_listed_TN: np.ndarray, is_wrong_TN: np.ndarray) -> Mapping[str, int]:
    right_T = (is_listed_TN & ~is_wrong_TN).sum(1)
    return {
        "listed": int(is_listed_TN.sum()),
        "hits": int((is_listed_TN & is_wrong_TN).sum()),
        "right": int(right_T.sum()),
        "most": int(right_T.max()),
    }
