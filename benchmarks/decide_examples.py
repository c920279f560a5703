"""Decisions with examples: `finetune decide` on BANKING77 and CLINC150, beside six lines of scikit-learn.

    python -m benchmarks.decide_examples [--sets support banking10 banking clinc] [--keep]

support: 8 rows a class of the package's support messages (seed 0), scored on the others. banking10: 10 rows a class of
BANKING77 (seed 0), scored on its test rows; banking: all 10,003 rows. clinc: the 15,000 rows of CLINC150 in scope, and
its 1,000 test texts out of scope: accuracy in scope where an option must be chosen, and recall of texts out of scope
where 95 % of the texts in scope of its validation part keep an option, by the probability of none; and by the default
threshold. scikit-learn: LogisticRegression (C = 10) on the same frozen vectors, with the greatest probability as the
threshold. Milliseconds: the median of 200 single texts, by the core. Published: frozen MiniLM-L6 and a linear head on
BANKING77 .869 (10 a class) and .933 (all).

--keep: labels and probabilities of none are kept in docs/measurements; benchmarks/figures/decide_examples.py computes
the scores from them. Data: $BOTHWAYS_DATA (default: ../shared/data).
"""

import argparse
import csv
import json
import os
import random
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression

import bothways
from benchmarks import measurements
from benchmarks.decide import SETS
from benchmarks.figures.decide_examples import figures
from bothways.inference.predictor import Predictor

DATA = Path(os.environ.get("BOTHWAYS_DATA", "../shared/data"))
MODEL = "bothways-en"
TIMED = 200
Row = dict[str, str]


def banking(part: str) -> list[Row]:
    with (DATA / f"banking77/{part}.csv").open(encoding="utf-8", newline="") as file:
        return [{"text": row["text"], "label": named(row["category"])} for row in csv.DictReader(file)]


def clinc(part: str) -> list[Row]:
    rows = json.loads((DATA / "clinc150/data_full.json").read_text(encoding="utf-8"))[part]
    return [{"text": text, "label": named(label)} for text, label in rows]


def named(label: str) -> str:
    return label.replace("_", " ")


def of_each_class(rows: Sequence[Row], number: int) -> list[Row]:
    by_label = defaultdict(list)
    for row in random.Random(0).sample(rows, len(rows)):
        by_label[row["label"]].append(row)
    return [row for several in by_label.values() for row in several[:number]]


class Results:
    """Arrays for docs/measurements; and by set the seconds of its run, its training rows, and milliseconds a text."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self.seconds: dict[str, float] = {}
        self.rows: dict[str, int] = {}
        self.milliseconds: dict[str, float] = {}

    def labels(self, name: str, test: Sequence[Row], labels: Mapping[str, Sequence[str | None]]) -> None:
        """The right labels of test rows, and those of each method."""
        names = sorted({row["label"] for row in test})
        self.arrays[f"{name}/gold"] = measurements.codes([row["label"] for row in test], names)
        for method, predicted in labels.items():
            self.arrays[f"{name}/{method}"] = measurements.codes(predicted, names)


def fine_tuned(train: Sequence[Row], test: Sequence[Row], results: Results, name: str) -> Predictor:
    """The model of a run, whose seconds and rows go to the results."""
    with tempfile.TemporaryDirectory() as directory:
        start = time.monotonic()
        result = bothways.finetune([*train], task="decide", model=MODEL, test=[*test], out=Path(directory) / "run")
        results.seconds[name] = time.monotonic() - start
        results.rows[name] = len(train)
        print(f"{name}: {results.seconds[name]:.0f} s; {result!r}", flush=True)
        return bothways.load(result.model_directory)


def by_sklearn(model: Predictor, train: Sequence[Row]) -> LogisticRegression:
    vectors = model.embed([row["text"] for row in train])
    return LogisticRegression(C=10, max_iter=1000).fit(vectors, [row["label"] for row in train])


def texts_of(rows: Sequence[Row]) -> list[str]:
    return [row["text"] for row in rows]


def milliseconds(model: Predictor, rows: Sequence[Row]) -> float:
    seconds = []
    for row in rows[:TIMED]:
        start = time.perf_counter()
        model.decide(row["text"])
        seconds.append(time.perf_counter() - start)
    return 1000 * statistics.median(seconds)


def measure_banking(results: Results, name: str, train: Sequence[Row]) -> None:
    test = banking("test")
    tuned = fine_tuned(train, test, results, name)
    encoder = bothways.load(MODEL)
    beside = by_sklearn(encoder, train).predict(encoder.embed(texts_of(test)))
    labels = [one.label for one in tuned.decide(texts_of(test), none=False)]
    results.labels(name, test, {"decide": labels, "scikit-learn": beside.tolist()})
    results.milliseconds[name] = milliseconds(tuned, test)


def measure_support(results: Results, name: str) -> None:
    messages = SETS["support"]()
    rows = [{"text": text, "label": label} for text, label in zip(messages.texts, messages.labels, strict=True)]
    train = of_each_class(rows, 8)
    test = [row for row in rows if row not in train]
    tuned = fine_tuned(train, test, results, name)
    encoder = bothways.load(MODEL)
    decisions = {
        "decide": tuned.decide(texts_of(test), none=False),
        "decide, or none": tuned.decide(texts_of(test)),
        "decide, no training": encoder.decide(texts_of(test), messages.options, none=False),
    }
    labels = {method: [one.label for one in answers] for method, answers in decisions.items()}
    labels["scikit-learn"] = by_sklearn(encoder, train).predict(encoder.embed(texts_of(test))).tolist()
    results.labels(name, test, labels)


def measure_clinc(results: Results, name: str) -> None:
    train, test = clinc("train"), clinc("test")
    tuned = fine_tuned(train, test, results, name)
    encoder = bothways.load(MODEL)
    fitted = by_sklearn(encoder, train)
    labels = [one.label for one in tuned.decide(texts_of(test), none=False)]
    beside = fitted.predict(encoder.embed(texts_of(test)))
    results.labels(name, test, {"decide": labels, "scikit-learn": beside.tolist()})

    parts = {"validation": clinc("val"), "test": test, "outside": clinc("oos_test")}
    for part, rows in parts.items():
        decisions = tuned.decide(texts_of(rows))
        doubts = 1 - fitted.predict_proba(encoder.embed(texts_of(rows))).max(1)
        results.arrays[f"{name}/none/{part}/decide"] = np.array([one.none for one in decisions], np.float32)
        results.arrays[f"{name}/none/{part}/scikit-learn"] = doubts.astype(np.float32)
        results.arrays[f"{name}/refused/{part}"] = np.array([one.label is None for one in decisions])
    results.milliseconds[name] = milliseconds(tuned, test)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=["support", "banking10", "banking", "clinc"])
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args(arguments)

    results = Results()
    measures: dict[str, Callable[[Results, str], None]] = {
        "support": measure_support,
        "banking10": partial(measure_banking, train=of_each_class(banking("train"), 10)),
        "banking": partial(measure_banking, train=banking("train")),
        "clinc": measure_clinc,
    }
    for name in options.sets:
        measures[name](results, name)

    measured = measurements.write(
        "decide-examples",
        results.arrays,
        model=MODEL,
        seeds=[0],
        folder=measurements.FOLDER if options.keep else None,
        rows=results.rows,
        figures={"seconds": results.seconds, "milliseconds": results.milliseconds},
    )
    computed = figures(measured)
    print("\n".join(computed.tables["examples"]))
    for key, value in computed.values.items():
        print(f"{key}: {value:.1f}")


if __name__ == "__main__":
    main()
