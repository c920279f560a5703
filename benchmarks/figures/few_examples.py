"""Few examples (benchmarks/few_examples.py): models that train no encoder, and models that do."""

from collections import defaultdict
from statistics import fmean

from benchmarks.figures.scores import Figures, Stated, Table, markdown, of_labels
from benchmarks.measurements import Measurement

SETS = ("SST-2", "CoLA", "ACL-ARC", "Hyperpartisan", "CLINC150 domains", "BANKING77")  # in the order of the table
METRICS = {"CoLA": "matthews", "ACL-ARC": "f1_macro"}
METRIC_NAMES = {"accuracy": "accuracy", "matthews": "Matthews", "f1_macro": "macro F1"}
FROZEN = {
    "ours": "`finetune`",
    "vectors": "vectors + scikit-learn",
    "tfidf": "TF-IDF + scikit-learn",
}
TRAINED = {
    "ours-trained": "`finetune`, trained",
    "transformers": "transformers Trainer",
    "setfit": "SetFit",
}


def cells_of(measurement: Measurement) -> dict[tuple[str, int], dict[str, list[str]]]:
    """The names of the arrays of each set and number of rows, by method: one for each draw."""
    cells: dict[tuple[str, int], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for key in measurement.about["cells"]:
        name, number, _, method = key.split("/")
        cells[name, int(number)][method].append(key)
    return cells


def stated(measurement: Measurement, name: str, keys: list[str]) -> Stated:
    metric = METRICS.get(name, "accuracy")
    return of_labels(measurement[f"{name}/gold"], [measurement[key] for key in sorted(keys)], metric)


def seconds(measurement: Measurement, keys: list[str]) -> float:
    return fmean(measurement.about["cells"][key]["seconds"] for key in keys)


def minutes(of: float) -> str:
    return f"{of / 60:.1f}" if of >= 3 else "0.0"


def figures(measurement: Measurement) -> Figures:
    cells = cells_of(measurement)
    values: dict[str, float] = {}
    for (name, number), methods in cells.items():
        for method, keys in methods.items():
            values[f"{name}:{number}:{method}"] = 100 * stated(measurement, name, keys).value
            values[f"{name}:{number}:{method}:minutes"] = seconds(measurement, keys) / 60

    # Means over the cells that all methods without training have.
    for number in {number for _, number in cells}:
        for method in FROZEN:
            scores = [values[f"{name}:{rows}:{method}"] for name, rows in cells if rows == number]
            values[f"mean:{number}:{method}"] = fmean(scores)
    for method in FROZEN:
        values[f"mean:{method}"] = fmean(values[f"{name}:{number}:{method}"] for name, number in cells)

    tables = {"frozen": frozen_table(measurement, values), "trained": trained_table(measurement)}
    return Figures(values, tables)


def frozen_table(measurement: Measurement, values: dict[str, float]) -> Table:
    cells = cells_of(measurement)
    rows = []
    for name, number in sorted(cells, key=lambda cell: (cell[1], SETS.index(cell[0]))):
        methods = cells[name, number]
        metric = METRIC_NAMES[METRICS.get(name, "accuracy")]
        scores = [stated(measurement, name, methods[method]).percent() for method in FROZEN]
        times = ", ".join(minutes(seconds(measurement, methods[method])) for method in FROZEN)
        rows.append([f"{name}, {number}", metric, *scores, times])
    means = [f"{values[f'mean:{method}']:.1f}" for method in FROZEN]
    return markdown(
        ["set, rows a class", "metric", *FROZEN.values(), "minutes of each"],
        [*rows, ["mean", "", *means, ""]],
    )


def trained_table(measurement: Measurement) -> Table:
    """The first draw alone, which is the only one of the models that train."""
    rows = []
    cells = cells_of(measurement)
    for name, number in sorted(cells, key=lambda cell: (SETS.index(cell[0]), cell[1])):
        methods = cells[name, number]
        if not {*TRAINED} & {*methods}:
            continue
        for method, title in {**FROZEN, **TRAINED}.items():
            if methods[method]:
                first = sorted(methods[method])[:1]
                score = stated(measurement, name, first).percent()
                rows.append([f"{name}, {number}", title, score, minutes(seconds(measurement, first))])
    return markdown(["set, rows a class", "model", "accuracy", "minutes"], rows)
