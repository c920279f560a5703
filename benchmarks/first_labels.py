"""The first labels: `finetune` on a few rows of each class, beside what one would write with scikit-learn.

    python -m benchmarks.first_labels [--cells BANKING77:10 SST-2:16 ...] [--draws 3] [--test 1000]
    python -m benchmarks.first_labels --intervals [--draws 10]
    python -m benchmarks.first_labels --others

A cell is a set and its rows of each class. The peers are fitted to the same rows, in the same run: logistic regression
on the vectors of `bothways.load().embed`, and on TF-IDF. Printed: the metric on test rows, the seconds of each, and the
mean over the cells. --intervals: how often the stated 95 % interval holds the accuracy on the other rows of the set,
and its width beside that of a binomial interval. --others: tags and relatedness from a few rows, beside a linear head
on frozen vectors, which the run itself measures. Data: $BOTHWAYS_DATA (default: ../shared/data).
"""

import argparse
import csv
import json
import math
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, matthews_corrcoef
from sklearn.pipeline import make_pipeline

import bothways
from benchmarks.finetune_sets import DATA, SETS, Rows, as_rows, glue, rows_of, sample_rows, with_dev
from bothways.settings import Regress, Tag
from bothways.settings.tables_in_memory import as_source
from bothways.text.data.examples import read_table

CELLS = [
    "BANKING77:10",
    "CLINC150:10",
    *(f"{name}:{rows}" for rows in (16, 64) for name in ("SST-2", "CoLA", "ACL-ARC", "IMDb", "Hyperpartisan")),
    "SST-2:256",
    "IMDb:256",
]
INTERVAL_CELLS = ["BANKING77:10", "CLINC150:10", "SST-2:64", "ACL-ARC:32"]
MAX_TEST, MAX_OTHERS = 1000, 1500  # rows that are predicted, at most
Z = 1.96


def load_set(name: str) -> tuple[Rows, Rows]:
    """The rows for training and for the score."""
    if name == "BANKING77":
        train, test = (read_banking(split) for split in ("train", "test"))
        return train, test
    if name == "CLINC150":
        splits = json.loads((DATA / "clinc150" / "data_full.json").read_text(encoding="utf-8"))
        train, test = ([{"text": text, "label": label} for text, label in splits[split]] for split in ("train", "test"))
        return train, test
    data = glue("SST-2") if name == "SST-2" else SETS[name]()
    train, test = (rows_of(data.arguments, split) for split in ("train", "test"))
    return train, test


def read_banking(split: str) -> Rows:
    with (DATA / "banking77" / f"{split}.csv").open(encoding="utf-8", newline="") as file:
        return [{"text": row["text"], "label": row["category"]} for row in csv.DictReader(file)]


def draw(rows: Rows, number: int, seed: int) -> tuple[Rows, Rows]:
    """So many rows of each class, and the others."""
    by_label = defaultdict(list)
    for index in np.random.default_rng(seed).permutation(len(rows)).tolist():
        by_label[rows[index]["label"]].append(index)
    chosen = sorted(index for indices in by_label.values() for index in indices[:number])
    others = sorted({*range(len(rows))} - {*chosen})
    return [rows[index] for index in chosen], [rows[index] for index in others]


# --- models -----------------------------------------------------------------------------------------------------------


def columns(rows: Rows) -> tuple[list[str], list[str]]:
    return [row["text"] for row in rows], [row["label"] for row in rows]


def ours(train: Rows, test: Rows) -> tuple[list[str | None], Any]:
    """`bothways.finetune` with default options: its predictions and its result."""
    with tempfile.TemporaryDirectory() as folder:
        result = bothways.finetune(train, out=Path(folder, "run"))
        model = result.load()
        texts, _ = columns(test)
        return [answer.label for answer in model.classify(texts)], result


def on_vectors(train: Rows, test: Rows) -> list[str]:
    """Six lines of scikit-learn on our own vectors."""
    texts, labels = columns(train)
    model = bothways.load()
    head = LogisticRegression(C=30, max_iter=1000).fit(model.embed(texts), labels)
    predicted: list[str] = head.predict(model.embed(columns(test)[0])).tolist()
    return predicted


def on_tfidf(train: Rows, test: Rows) -> list[str]:
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    model = make_pipeline(vectorizer, LogisticRegression(C=30, max_iter=1000)).fit(*columns(train))
    predicted: list[str] = model.predict(columns(test)[0]).tolist()
    return predicted


def timed(function: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    start = time.perf_counter()
    return function(*arguments), time.perf_counter() - start


# --- tables -----------------------------------------------------------------------------------------------------------


def print_cells(cells: Sequence[str], draws: int, max_test: int) -> None:
    """A row for each cell: means over draws of the metric and of the seconds."""
    names = ("finetune", "vectors", "TF-IDF")
    print(f"{'cell':18} rows  {'':4}{'finetune':>9} {'vectors':>9} {'TF-IDF':>9}   seconds of each")
    means = []
    for cell in cells:
        name, number = cell.split(":")
        train, test = load_set(name)
        test = sample_rows(test, max_test, seed=0)
        metric = matthews_corrcoef if name == "CoLA" else accuracy_score
        scores, seconds, kinds = defaultdict(list), defaultdict(list), []
        for seed in range(1 if int(number) >= 256 else draws):
            rows, _ = draw(train, int(number), seed)
            gold = columns(test)[1]
            (predicted, result), took = timed(ours, rows, test)
            kinds.append("trained" if not result.frozen else result.measured.rpartition(", ")[2])
            answers = {"finetune": (predicted, took)}
            answers["vectors"] = timed(on_vectors, rows, test)
            answers["TF-IDF"] = timed(on_tfidf, rows, test)
            for kind, (labels, took) in answers.items():
                scores[kind].append(100 * metric(gold, labels))
                seconds[kind].append(took)
        means.append([fmean(scores[kind]) for kind in names])
        spread = f"(draws of finetune {', '.join(f'{value:.1f}' for value in scores['finetune'])}; {kinds[0]})"
        values = " ".join(f"{value:9.1f}" for value in means[-1])
        times = ", ".join(f"{fmean(seconds[kind]):.0f}" for kind in names)
        print(f"{cell:18} {len(rows):5,}    {values}   {times} {spread}", flush=True)
    overall = [fmean(column) for column in zip(*means, strict=True)]
    best = fmean(max(row[1:]) for row in means)
    values = " ".join(f"{value:9.1f}" for value in overall)
    print(f"{'mean':18} {'':5}    {values}   the better peer of each: {best:.1f}")


def print_intervals(cells: Sequence[str], draws: int) -> None:
    """How often the stated interval holds the accuracy on the other rows, and how wide it is."""
    held, total = 0, 0
    for cell in cells:
        name, number = cell.split(":")
        train, test = load_set(name)
        inside, ratios, leads = 0, [], []
        for seed in range(draws):
            rows, others = draw([*train, *test], int(number), seed)
            others = sample_rows(others, MAX_OTHERS, seed=seed)
            predicted, result = ours(rows, others)
            truth = accuracy_score(columns(others)[1], predicted)
            assert result.interval is not None
            low, high = result.interval
            inside += low <= truth <= high
            ratios.append((high - low) / (2 * Z * math.sqrt(result.mean * (1 - result.mean) / len(rows))))
            leads.append(result.mean - truth)
        held += inside
        total += draws
        print(
            f"{cell:14} {inside} of {draws} hold; width {fmean(ratios):.2f} x binomial; stated - true "
            f"{100 * fmean(leads):+.1f} points",
            flush=True,
        )
    print(f"all            {held} of {total}")


def print_others(draws: int) -> None:
    """Tags from few sentences, relatedness from 100 pairs: the run, and the linear heads that it measures itself."""
    for number in (50, 200):
        report("tags", number, [tag_settings(number, seed) for seed in range(draws)])
    settings = []
    for seed in range(draws):
        files = with_dev("SICK").arguments
        tables = {
            split: as_rows(read_table(files[split], label="relatedness_score", need_labels=True))
            for split in ("train", "test")
        }
        train = as_source("train", sample_rows(tables["train"], 100, seed=seed))
        test = as_source("test", tables["test"])
        settings.append(Regress(train=train, test=test, out=Path(tempfile.mkdtemp(), "run")))
    report("relatedness", 100, settings)


def tag_settings(number: int, seed: int) -> Tag:
    """So many random sentences of CoNLL-2003, without their documents, and 500 of the test set."""
    folder = Path(tempfile.mkdtemp())
    for name, source, count in (("train", "eng.train", number), ("test", "eng.testb", 500)):
        parts = (DATA / "conll2003" / source).read_text(encoding="utf-8").split("\n\n")
        sentences = [part for part in parts if part.strip() and "-DOCSTART-" not in part]
        chosen = [sentences[row] for row in np.random.default_rng(seed).permutation(len(sentences))[:count]]
        (folder / f"{name}.conll").write_text("\n\n".join(chosen) + "\n", encoding="utf-8")
    files = {name: folder / f"{name}.conll" for name in ("train", "test")}
    return Tag(train=files["train"], test=files["test"], context=False, out=folder / "run")


def report(name: str, rows: int, runs: Sequence[Any]) -> None:
    for settings in runs:
        result, took = timed(bothways.train, settings)
        others = ", ".join(f"{other} {100 * value:.1f}" for other, value in result.baselines.items())
        kind = "frozen" if result.frozen else "trained"
        print(f"{name} {rows}: {result.metric} {100 * result.mean:.1f} ({kind}, {took:.0f} s); {others}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", nargs="+", default=None)
    parser.add_argument("--draws", type=int, default=None)
    parser.add_argument("--test", type=int, default=MAX_TEST, help="rows that are predicted, at most")
    parser.add_argument("--intervals", action="store_true")
    parser.add_argument("--others", action="store_true")
    options = parser.parse_args()
    if options.intervals:
        print_intervals(options.cells or INTERVAL_CELLS, options.draws or 10)
    elif options.others:
        print_others(options.draws or 3)
    else:
        print_cells(options.cells or CELLS, options.draws or 3, options.test)


if __name__ == "__main__":
    main()
