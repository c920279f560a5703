"""Decisions with examples: `finetune decide` on BANKING77 and CLINC150, beside six lines of scikit-learn.

    python -m benchmarks.decide_examples [--sets support banking10 banking clinc] [--model DIR]

support: 8 rows a class of the package's support messages (seed 0), scored on the others. banking10: 10 rows a class of
BANKING77 (seed 0), scored on its test rows; banking: all 10,003 rows. clinc: the 15,000 rows of CLINC150 in scope, and
its 1,000 test texts out of scope: accuracy in scope where an option must be chosen, and recall of texts out of scope
where 95 % of the texts in scope of its validation part keep an option, by the probability of none; and by the default
threshold. scikit-learn: LogisticRegression (C = 10) on the same frozen vectors, with the greatest probability as the
threshold. Milliseconds: the median of 200 single texts, by the core. Published: frozen MiniLM-L6 and a linear head on
BANKING77 .869 (10 a class) and .933 (all). Data: $BOTHWAYS_DATA (default: ../shared/data).
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
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression

import bothways
from benchmarks.decide import SETS
from bothways.inference.predictor import Predictor

DATA = Path(os.environ.get("BOTHWAYS_DATA", "../shared/data"))
KEPT = 0.95
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


def fine_tuned(model: str, train: Sequence[Row], test: Sequence[Row]) -> Predictor:
    """The model of a run, whose time is printed."""
    with tempfile.TemporaryDirectory() as directory:
        start = time.monotonic()
        result = bothways.finetune([*train], task="decide", model=model, test=[*test], out=Path(directory) / "run")
        print(f"  finetune decide: {time.monotonic() - start:.0f} s; {result!r}", flush=True)
        return bothways.load(result.model_directory)


def by_sklearn(model: Predictor, train: Sequence[Row]) -> LogisticRegression:
    vectors = model.embed([row["text"] for row in train])
    return LogisticRegression(C=10, max_iter=1000).fit(vectors, [row["label"] for row in train])


def accuracy(labels: Sequence[str | None], rows: Sequence[Row]) -> float:
    return float(np.mean([label == row["label"] for label, row in zip(labels, rows, strict=True)]))


def texts_of(rows: Sequence[Row]) -> list[str]:
    return [row["text"] for row in rows]


def milliseconds(model: Predictor, rows: Sequence[Row]) -> float:
    seconds = []
    for row in rows[:TIMED]:
        start = time.perf_counter()
        model.decide(row["text"])
        seconds.append(time.perf_counter() - start)
    return 1000 * statistics.median(seconds)


def measure_banking(name: str, model: str, train: Sequence[Row]) -> None:
    test = banking("test")
    print(f"BANKING77, {name}: {len(train)} rows, {len(test)} test rows")
    tuned = fine_tuned(model, train, test)
    labels = [one.label for one in tuned.decide(texts_of(test), none=False)]
    encoder = bothways.load(model)
    beside = by_sklearn(encoder, train).predict(encoder.embed(texts_of(test)))
    print(f"  accuracy {accuracy(labels, test):.4f}; scikit-learn on the same vectors {accuracy([*beside], test):.4f}")
    print(f"  {milliseconds(tuned, test):.2f} ms a text", flush=True)


def measure_support(model: str) -> None:
    messages = SETS["support"]()
    rows = [{"text": text, "label": label} for text, label in zip(messages.texts, messages.labels, strict=True)]
    train = of_each_class(rows, 8)
    test = [row for row in rows if row not in train]
    print(f"support messages: {len(train)} rows, {len(test)} test rows")
    tuned = fine_tuned(model, train, test)
    encoder = bothways.load(model)
    answers = {
        "finetune decide": tuned.decide(texts_of(test), none=False),
        "the same with none": tuned.decide(texts_of(test)),
        "decide, no training": encoder.decide(texts_of(test), messages.options, none=False),
    }
    for method, decisions in answers.items():
        print(f"  {method}: {accuracy([one.label for one in decisions], test):.4f}")
    labels = by_sklearn(encoder, train).predict(encoder.embed(texts_of(test)))
    print(f"  scikit-learn on the same vectors: {accuracy([*labels], test):.4f}", flush=True)


def measure_clinc(model: str) -> None:
    train, validation, test = clinc("train"), clinc("val"), clinc("test")
    outside = texts_of(clinc("oos_test"))
    print(f"CLINC150: {len(train)} rows, {len(test)} test rows in scope, {len(outside)} outside")
    tuned = fine_tuned(model, train, test)
    labels = [one.label for one in tuned.decide(texts_of(test), none=False)]

    def none(texts: Sequence[str]) -> np.ndarray:
        return np.array([one.none for one in tuned.decide(texts)])

    def doubt(texts: Sequence[str]) -> np.ndarray:
        return 1 - fitted.predict_proba(encoder.embed(texts)).max(1)

    encoder = bothways.load(model)
    fitted = by_sklearn(encoder, train)
    beside = fitted.predict(encoder.embed(texts_of(test)))
    print(f"  accuracy {accuracy(labels, test):.4f}; scikit-learn on the same vectors {accuracy([*beside], test):.4f}")
    for method, scores in (("finetune decide", none), ("scikit-learn", doubt)):
        limit = np.quantile(scores(texts_of(validation)), KEPT)
        recall, kept = (scores(outside) > limit).mean(), (scores(texts_of(test)) <= limit).mean()
        print(f"  {method}: recall of none {recall:.1%} where {kept:.1%} of the test texts in scope are kept")

    refused = np.mean([one.label is None for one in tuned.decide(outside)])
    kept = np.mean([one.label is not None for one in tuned.decide(texts_of(test))])
    print(f"  default threshold: recall {refused:.1%}, {kept:.1%} kept; {milliseconds(tuned, test):.2f} ms a text")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="bothways-en")
    parser.add_argument("--sets", nargs="+", default=["support", "banking10", "banking", "clinc"])
    options = parser.parse_args(arguments)

    if "support" in options.sets:
        measure_support(options.model)
    if "banking10" in options.sets:
        measure_banking("10 a class", options.model, of_each_class(banking("train"), 10))
    if "banking" in options.sets:
        measure_banking("all", options.model, banking("train"))
    if "clinc" in options.sets:
        measure_clinc(options.model)


if __name__ == "__main__":
    main()
