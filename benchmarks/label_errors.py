"""Wrong labels found: by the check of a table, and by the report of a cross-validated training.

    python -m benchmarks.label_errors --messages [--seeds 10] [--keep]
    python -m benchmarks.label_errors --rare [--seeds 20] [--keep]
    python -m benchmarks.label_errors [--rows 1000] [--keep]

The first: 400 packaged support messages, 24 labels changed, for each seed: changed ones among the first 24 and 40
suspects of `bothways.check`, and of ten lines over `embed` (logistic regression of scikit-learn, ranked by cleanlab's
self-confidence). The second: tables of BANKING77 with four classes of 40 rows and four of 1, 1, 2 and 4 rows, 5 % of
the labels changed, one of them to a label that no other row has; likely label errors by the rule of `bothways.check`
and by `find_label_issues` of cleanlab, of the same probabilities. The third: SST-2 with 5 % of the labels changed,
MiniLM-L6, five folds, 3 epochs, two seeds; rows listed as likely label errors, how many have a changed label, and how
many among the first 10 and 30.

--keep: what was listed and what is wrong are kept in docs/measurements; benchmarks/figures/label_errors.py computes the
tables from that. Data: $BOTHWAYS_DATA (default: ../shared/data).
"""

import argparse
import csv
import json
import os
import random
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from cleanlab.filter import find_label_issues
from cleanlab.rank import get_label_quality_scores
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict

import bothways
from benchmarks import measurements
from benchmarks.figures.label_errors import LABELS, of_messages, of_rare_classes, of_training
from benchmarks.finetune_scores import minilm
from bothways.cli.demo import read_sample
from bothways.measure.metrics.label_errors import label_errors
from bothways.model.linear.regressions import out_of_fold_scores
from bothways.settings import Classify
from bothways.tasks.arrays import softmax
from bothways.training.finetuning.finetune import run as run_task
from bothways.training.finetuning.model_scores import OUT_OF_FOLD

DATA = Path(os.environ.get("BOTHWAYS_DATA", "../shared/data"))
WRONG = 0.05
RUNS = ((3, 1), (3, 2))  # epochs and seed of the trainings
MESSAGES, PLANTED, SHOWN = 400, 24, 40
FREQUENT = (40, 40, 40, 40)  # rows by class, of the tables with rare classes
RARE = (1, 1, 2, 4)
LEAST_WORDS = 8  # shorter phrases are often ambiguous


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--messages", action="store_true")
    parser.add_argument("--rare", action="store_true")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()

    if options.messages:
        name, model, seeds = "label-errors-messages", "bothways-en", range(options.seeds or 10)
        arrays, figures = check_messages(seeds), of_messages
    elif options.rare:
        name, model, seeds = "label-errors-rare", "bothways-en, linear models", range(options.seeds or 20)
        arrays, figures = check_rare_classes(seeds), of_rare_classes
    else:
        name, model, seeds = "label-errors", "all-MiniLM-L6-v2, fine-tuned", [seed for _, seed in RUNS]
        arrays, figures = check_training(options.rows), of_training

    folder = measurements.FOLDER if options.keep else None
    measurement = measurements.write(name, arrays, model=model, seeds=seeds, folder=folder)
    for table in figures(measurement).tables.values():
        print("\n".join(table))


# --- the list of a training -------------------------------------------------------------------------------------------


def check_training(number: int) -> dict[str, np.ndarray]:
    """Of each run: the labels of its rows, which of them are wrong, and the out-of-fold probabilities."""
    arrays: dict[str, np.ndarray] = {}
    for epochs, seed in RUNS:
        with tempfile.TemporaryDirectory() as folder:
            table, out = Path(folder) / "train.jsonl", Path(folder) / "run"
            wrong = write_table(table, number, seed)
            run_task(Classify(model=minilm(), train=table, out=out, folds=5, epochs=epochs))
            rows = [json.loads(line) for line in (out / OUT_OF_FOLD).read_text(encoding="utf-8").splitlines()]

        lines = [row["line"] for row in rows]
        arrays |= {
            f"{epochs}-{seed}/labels": measurements.codes([row["gold"] for row in rows], LABELS),
            f"{epochs}-{seed}/wrong": np.array([line in wrong for line in lines]),
            f"{epochs}-{seed}/fold": np.array([row["fold"] for row in rows], np.int8),
            f"{epochs}-{seed}/probabilities": np.array([[row["details"][name] for name in LABELS] for row in rows]),
        }
        print(f"{epochs} epochs, seed {seed}: done", flush=True)
    return arrays


def write_table(file: Path, number: int, seed: int) -> set[int]:
    """Write rows of SST-2 and return the numbers of the lines with a changed label."""
    rng = random.Random(seed)
    published = (DATA / "glue" / "SST-2" / "train.tsv").read_text(encoding="utf-8").splitlines()[1:]
    rows = [line.split("\t") for line in published if len(line.split()) > LEAST_WORDS]
    rows = rng.sample(rows, number)
    wrong = {row + 1 for row in rng.sample(range(number), round(number * WRONG))}
    file.write_text(
        "\n".join(
            json.dumps({"text": text, "label": LABELS[int(label) ^ (line in wrong)]})
            for line, (text, label) in enumerate(rows, 1)
        ),
        encoding="utf-8",
    )
    return wrong


# --- the check of a table ---------------------------------------------------------------------------------------------


def check_messages(seeds: Sequence[int]) -> dict[str, np.ndarray]:
    """Of each draw: the rows with a wrong label, and the first suspects of both, most suspicious first."""
    messages = read_sample("support.jsonl")
    names, model = sorted({row["label"] for row in messages}), bothways.load(dtype="float32")
    arrays: dict[str, np.ndarray] = {}
    for seed in seeds:
        rng = random.Random(seed)
        rows = [{"text": row["text"], "label": row["label"]} for row in rng.sample(messages, MESSAGES)]
        wrong = {*rng.sample(range(MESSAGES), PLANTED)}
        for row in wrong:
            rows[row]["label"] = rng.choice([name for name in names if name != rows[row]["label"]])

        labels = np.array([names.index(row["label"]) for row in rows])
        vectors = model.embed([row["text"] for row in rows])
        probabilities = cross_val_predict(LogisticRegression(max_iter=1000), vectors, labels, method="predict_proba")
        checked = [
            remark.where.row for remark in bothways.check(rows, dtype="float32").remarks if remark.kind == "label"
        ]
        arrays |= {
            f"{seed}/wrong": np.array(sorted(wrong), np.int16),
            f"{seed}/check": np.array(checked[:SHOWN], np.int16),
            f"{seed}/ten lines": get_label_quality_scores(labels, probabilities).argsort()[:SHOWN].astype(np.int16),
        }
    return arrays


def check_rare_classes(seeds: Sequence[int]) -> dict[str, np.ndarray]:
    """True and given labels, [tables, rows], and the label that each rule suggests: -1 where it lists nothing."""
    model = bothways.load(dtype="float32")
    with (DATA / "banking77" / "train.csv").open(encoding="utf-8", newline="") as file:
        published = [*csv.DictReader(file)]

    parts: dict[str, list[np.ndarray]] = defaultdict(list)
    for seed in seeds:
        texts, true, labels = rare_table(published, random.Random(seed))
        given = sorted({*labels})
        targets = np.array([given.index(label) for label in labels])
        scores = out_of_fold_scores(model.embed(texts), targets, "classes", len(given))
        probabilities = softmax(scores.astype(np.float32))

        names = sorted({*labels, *true})
        parts["true"].append(measurements.codes(true, names))
        parts["labels"].append(measurements.codes(labels, names))
        for name, find in FINDERS.items():
            found = find(labels, probabilities)
            suggested = [found.get(row) for row in range(len(texts))]
            parts[f"suggested/{name}"].append(measurements.codes(suggested, names))
    return {name: np.stack(tables) for name, tables in parts.items()}


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


FINDERS: dict[str, Callable[[list[str], Any], dict[int, str]]] = {
    "check": find_with_bothways,
    "cleanlab": partial(find_with_cleanlab, filter_by="prune_by_noise_rate"),  # its default
    "confident learning": partial(find_with_cleanlab, filter_by="confident_learning"),
}


if __name__ == "__main__":
    main()
