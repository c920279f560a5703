"""Wrong labels found by the report: SST-2 with 5 % of the labels changed, cross-validated.

    python -m benchmarks.label_errors [--rows 1000] [--epochs 3] [--seed 1]

MiniLM-L6, five folds. Prints the number of rows listed as likely label errors, how many of them have a changed
label, and how many among the first 10, 20 and 30. Data: $BOTHWAYS_DATA (default: ../shared/data).
"""

import argparse
import json
import os
import random
import tempfile
from pathlib import Path

from benchmarks.finetune_scores import minilm
from bothways.measure.metrics.label_errors import label_errors
from bothways.settings import Classify
from bothways.training.finetuning.finetune import run as run_task
from bothways.training.finetuning.select import OUT_OF_FOLD

DATA = Path(os.environ.get("BOTHWAYS_DATA", "../shared/data"))
WRONG = 0.05
LEAST_WORDS = 8  # shorter phrases are often ambiguous


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--epochs", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
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
