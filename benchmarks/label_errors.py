"""Wrong labels found: by the check of a table, and by the report of a cross-validated training.

    python -m benchmarks.label_errors --messages [--seeds 3]
    python -m benchmarks.label_errors --rare [--seeds 20]
    python -m benchmarks.label_errors [--rows 1000] [--epochs 3] [--seed 1]

The first: 400 packaged support messages, 24 labels changed, for each seed: changed ones among the first 24 and 40
suspects of `bothways.check`, and of ten lines over `embed` (logistic regression of scikit-learn, ranked by cleanlab's
self-confidence). The second: tables of BANKING77 with four classes of 40 rows and four of 1, 1, 2 and 4 rows, 5 % of
the labels changed, one of them to a label that no other row has; likely label errors by the rule of `bothways.check`
and by `find_label_issues` of cleanlab, of the same probabilities. The third: SST-2 with 5 % of the labels changed,
MiniLM-L6, five folds; rows listed as likely label errors, how many have a changed label, and how many among the first
10, 20 and 30. Data: $BOTHWAYS_DATA (default: ../shared/data).
"""

import argparse
import csv
import json
import os
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from cleanlab.filter import find_label_issues
from cleanlab.rank import get_label_quality_scores
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict

import bothways
from benchmarks.finetune_scores import minilm
from bothways.cli.demo import read_sample
from bothways.measure.metrics.label_errors import label_errors
from bothways.model.linear.regressions import out_of_fold_scores
from bothways.settings import Classify
from bothways.tasks.arrays import softmax
from bothways.training.finetuning.finetune import run as run_task
from bothways.training.finetuning.select import OUT_OF_FOLD

DATA = Path(os.environ.get("BOTHWAYS_DATA", "../shared/data"))
WRONG = 0.05
MESSAGES, PLANTED, SHOWN = 400, 24, (24, 40)
FREQUENT = (40, 40, 40, 40)  # rows by class, of the tables with rare classes
RARE = (1, 1, 2, 4)
LEAST_WORDS = 8  # shorter phrases are often ambiguous


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--epochs", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--messages", action="store_true")
    parser.add_argument("--rare", action="store_true")
    parser.add_argument("--seeds", type=int)
    options = parser.parse_args()
    if options.messages:
        return check_messages(options.seeds or 3)
    if options.rare:
        return check_rare_classes(options.seeds or 20)
    with tempfile.TemporaryDirectory() as folder:
        table, out = Path(folder) / "train.jsonl", Path(folder) / "run"
        wrong = write_table(table, options.rows, options.seed)
        settings = Classify(model=minilm(), train=table, out=out, folds=5, epochs=options.epochs)
        result = run_task(settings)
        rows = [json.loads(line) for line in (out / OUT_OF_FOLD).read_text(encoding="utf-8").splitlines()]
    errors = label_errors([row["gold"] for row in rows], [row["details"] for row in rows])
    hits = [int(rows[error.row]["where"].rpartition(":")[2]) in wrong for error in errors]
    missed = [row for row in rows if row["gold"] != row["predicted"]]
    print(
        f"accuracy {result.mean:.1%} +- {result.std:.1%}; {len(missed)} rows with a prediction other than their label"
    )
    print(f"{len(hits)} rows listed; they include {sum(hits)} of the {len(wrong)} wrong labels")
    print(", ".join(f"first {most}: {sum(hits[:most])} wrong" for most in (10, 20, 30)))


def check_messages(seeds: int) -> None:
    messages = read_sample("support.jsonl")
    names, model = sorted({row["label"] for row in messages}), bothways.load(dtype="float32")
    found: dict[str, list[list[int]]] = {"bothways.check": [], "ten lines over embed": []}
    for seed in range(seeds):
        rng = random.Random(seed)
        rows = [{"text": row["text"], "label": row["label"]} for row in rng.sample(messages, MESSAGES)]
        wrong = {*rng.sample(range(MESSAGES), PLANTED)}
        for row in wrong:
            rows[row]["label"] = rng.choice([name for name in names if name != rows[row]["label"]])
        labels = np.array([names.index(row["label"]) for row in rows])
        vectors = model.embed([row["text"] for row in rows])
        probabilities = cross_val_predict(LogisticRegression(max_iter=1000), vectors, labels, method="predict_proba")
        ranked = get_label_quality_scores(labels, probabilities).argsort()
        checked = [
            remark.where.row for remark in bothways.check(rows, dtype="float32").remarks if remark.kind == "label"
        ]
        for name, order in zip(found, (checked, ranked.tolist()), strict=True):
            found[name].append([len({*order[:most]} & wrong) for most in SHOWN])
    for name, counts in found.items():
        means = ", ".join(
            f"{mean:.1f} in the first {most}" for mean, most in zip(np.mean(counts, 0), SHOWN, strict=True)
        )
        print(f"{name}: of {PLANTED} {means}; by seed {[row[-1] for row in counts]}")


def check_rare_classes(seeds: int) -> None:
    model = bothways.load(dtype="float32")
    with (DATA / "banking77" / "train.csv").open(encoding="utf-8", newline="") as file:
        published = [*csv.DictReader(file)]

    finders: dict[str, Callable[[list[str], Any], dict[int, str]]] = {
        "bothways.check": find_with_bothways,
        "cleanlab, its default": lambda *table: find_with_cleanlab(*table, "prune_by_noise_rate"),
        "cleanlab, confident learning": lambda *table: find_with_cleanlab(*table, "confident_learning"),
    }
    counts: dict[str, list[list[int]]] = {name: [] for name in finders}
    num_wrong = 0
    for seed in range(seeds):
        texts, true, labels = rare_table(published, random.Random(seed))
        wrong = {row for row, label in enumerate(labels) if label != true[row]}
        num_wrong += len(wrong)
        names = sorted({*labels})
        targets = np.array([names.index(label) for label in labels])
        scores = out_of_fold_scores(model.embed(texts), targets, "classes", len(names))
        probabilities = softmax(scores.astype(np.float32))
        for name, find in finders.items():
            found = find(labels, probabilities)
            hits = found.keys() & wrong
            named = [row for row in hits if found[row] == true[row]]
            counts[name].append([len(found), len(hits), len(named), len(found) - len(hits)])

    print(f"{seeds} tables, {len(texts)} rows each, {num_wrong} wrong labels in all")
    for name, tables in counts.items():
        listed, hit, named, right = np.sum(tables, 0)
        most = max(table[-1] for table in tables)
        print(f"{name}: {listed} listed, {hit} wrong ({named} with the true label suggested)")
        print(f"  {right} right ones, at most {most} in a table")


def rare_table(published: list[dict[str, str]], rng: random.Random) -> tuple[list[str], list[str], list[str]]:
    """Texts, true labels, and labels of which some are changed: to others, and one to a label of its own."""
    classes = rng.sample(sorted({row["category"] for row in published}), len(FREQUENT + RARE))
    rows = []
    for name, number in zip(classes, FREQUENT + RARE, strict=True):
        rows += rng.sample([row for row in published if row["category"] == name], number)
    texts = [row["text"] for row in rows]
    true = [row["category"] for row in rows]

    # Only rows of frequent classes are changed: a rare class that loses its rows is another table.
    changed = rng.sample(range(sum(FREQUENT)), round(sum(FREQUENT) * WRONG))
    labels = [*true]
    for row in changed[1:]:
        labels[row] = rng.choice([name for name in classes if name != true[row]])
    labels[changed[0]] = f"{true[changed[0]]} (typo)"
    return texts, true, labels


def find_with_bothways(labels: list[str], probabilities: Any) -> dict[int, str]:
    """The suggested label of each row that is listed."""
    names = sorted({*labels})
    rows = [dict(zip(names, row, strict=True)) for row in probabilities.tolist()]
    return {error.row: error.suggested for error in label_errors(labels, rows)}


def find_with_cleanlab(labels: list[str], probabilities: Any, filter_by: str) -> dict[int, str]:
    """The suggested label of each row that is listed: the most probable one, as `CleanLearning` has it."""
    names = sorted({*labels})
    targets = np.array([names.index(label) for label in labels])
    found = find_label_issues(targets, probabilities, filter_by=filter_by, n_jobs=1)
    return {row: names[probabilities[row].argmax()] for row in np.flatnonzero(found).tolist()}


def write_table(file: Path, number: int, seed: int) -> set[int]:
    """Write rows of SST-2 and return the numbers of the lines with a changed label."""
    rng = random.Random(seed)
    published = (DATA / "glue" / "SST-2" / "train.tsv").read_text(encoding="utf-8").splitlines()[1:]
    rows = [line.split("\t") for line in published if len(line.split()) > LEAST_WORDS]
    rows = rng.sample(rows, number)
    wrong = {row + 1 for row in rng.sample(range(number), round(number * WRONG))}
    file.write_text(
        "\n".join(
            json.dumps({"text": text, "label": ["negative", "positive"][int(label) ^ (line in wrong)]})
            for line, (text, label) in enumerate(rows, 1)
        ),
        encoding="utf-8",
    )
    return wrong


if __name__ == "__main__":
    main()
