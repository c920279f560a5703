"""Wrong labels found: by the check of a table, and by the report of a cross-validated training.

    python -m benchmarks.label_errors --messages [--seeds 3]
    python -m benchmarks.label_errors [--rows 1000] [--epochs 3] [--seed 1]

The first: 400 packaged support messages, 24 labels changed, for each seed: changed ones among the first 24 and 40
suspects of `bothways.check`, and of ten lines over `embed` (logistic regression of scikit-learn, ranked by cleanlab's
self-confidence). The second: SST-2 with 5 % of the labels changed, MiniLM-L6, five folds; rows listed as likely label
errors, how many have a changed label, and how many among the first 10, 20 and 30. Data: $BOTHWAYS_DATA (default:
../shared/data).
"""

import argparse
import json
import os
import random
import tempfile
from pathlib import Path

import numpy as np
from cleanlab.rank import get_label_quality_scores
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict

import bothways
from benchmarks.finetune_scores import minilm
from bothways.cli.demo import read_sample
from bothways.measure.metrics.label_errors import label_errors
from bothways.settings import Classify
from bothways.training.finetuning.finetune import run as run_task
from bothways.training.finetuning.select import OUT_OF_FOLD

DATA = Path(os.environ.get("BOTHWAYS_DATA", "../shared/data"))
WRONG = 0.05
MESSAGES, PLANTED, SHOWN = 400, 24, (24, 40)
LEAST_WORDS = 8  # shorter phrases are often ambiguous


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--epochs", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--messages", action="store_true")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    if options.messages:
        return check_messages(options.seeds)
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
