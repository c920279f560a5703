"""Two approaches to long texts: MiniLM-L6 with pooled windows of 512, and a model that reads
4,096 tokens in one pass; on IMDb and on news articles labelled as partisan or not (Kiesel 2019).

    python -m benchmarks.long_texts -o DIR --long-model DIR [--seeds 3] [--rows 5000] [--epochs 3]
        [--learning-rate 1e-4] [--only imdb articles] [--ways windows "one pass"]

--long-model: a pre-trained model for long texts, such as one of `bothways pretrain --family modernbert --max-length
4096`. Both are fine-tuned with the same settings, 16 texts per step. IMDb: the first --rows rows of
train and of test after shuffling; articles: 645, split 80/10/10. Prints accuracy on test over the seeds, minutes of
training for one seed, and peak memory of the process. Results that are already in DIR are not computed again. Data:
$BOTHWAYS_DATA (default: ../shared/data).
"""

import argparse
import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow.parquet as pq

import bothways
from benchmarks.finetune_scores import minilm
from bothways.settings import Classify

DATA = Path(os.environ.get("BOTHWAYS_DATA", "../shared/data"))
ARTICLES = DATA / "long-documents/hyperpartisan"
LENGTH = 4096


def tables(out: Path, rows: int) -> dict[str, dict[str, Path]]:
    """Write train, dev and test of both sets as JSON lines."""
    folder = out / "data"
    folder.mkdir(parents=True, exist_ok=True)
    files = {name: {split: folder / f"{name}-{split}.jsonl" for split in ("train", "dev", "test")} for name in SETS}
    if not files["imdb"]["dev"].exists():
        for split in ("test", "train"):
            table = pq.read_table(DATA / f"imdb/{split}.parquet").to_pylist()
            order = np.random.default_rng(0).permutation(len(table))[: rows + rows // 10]
            parts = {"test": order[:rows]} if split == "test" else {"train": order[:rows], "dev": order[rows:]}
            for name, chosen in parts.items():
                lines = [{"text": table[row]["text"], "label": str(table[row]["label"])} for row in chosen]
                write(files["imdb"][name], lines)
    if not files["articles"]["dev"].exists():
        lines = articles()
        order = np.random.default_rng(0).permutation(len(lines))
        for name, chosen in zip(("train", "dev", "test"), np.split(order, [516, 580]), strict=True):
            write(files["articles"][name], [lines[row] for row in chosen])
    return files


SETS, WAYS = ("imdb", "articles"), ("windows", "one pass")


def articles() -> list[dict[str, str]]:
    truth = ElementTree.parse(ARTICLES / "ground-truth-training-byarticle-20181122.xml").getroot()
    labels = {one.get("id"): one.get("hyperpartisan", "") for one in truth}
    rows = []
    for article in ElementTree.parse(ARTICLES / "articles-training-byarticle-20181122.xml").getroot():
        text = re.sub(r"\s+", " ", " ".join([article.get("title", ""), *article.itertext()])).strip()
        rows.append({"text": text, "label": labels[article.get("id")]})
    return rows


def write(file: Path, lines: list[dict[str, str]]) -> None:
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def settings_of(way: str, model: Path, files: dict[str, Path], out: Path, **options: Any) -> Classify:
    return Classify(
        model=model, **files, out=out, **options, batch_size=16, evaluations_per_epoch=1, resume=True,
        window=512 if way == "windows" else LENGTH,
    )  # fmt: skip


def child(arguments: dict[str, Any]) -> None:
    files = {name: Path(file) for name, file in arguments["files"].items()}
    settings = settings_of(
        arguments["way"], Path(arguments["model"]), files, Path(arguments["out"]), **arguments["settings"]
    )
    bothways.train(settings)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    (settings.out / "memory.json").write_text(json.dumps(peak), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path)
    parser.add_argument("--long-model", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--only", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(json.loads(options.child))
        return
    if options.out is None:
        parser.error("-o is required: the output directory")
    if "one pass" in options.ways and options.long_model is None:
        parser.error("--long-model is required for one pass")
    files = tables(options.out, options.rows)
    models = {
        way: minilm() if way == "windows" else options.long_model for way in options.ways
    }  # fmt: skip
    print(f"{'set':10} {'':14} {'accuracy':>8} {'std':>6} n {'minutes/seed':>14} {'GiB':>5}")
    for name in options.only:
        for way, model in models.items():
            out = options.out / f"{name}-{way.replace(' ', '-')}"
            if not (out / "memory.json").exists():
                arguments = {
                    "way": way,
                    "model": str(model),
                    "out": str(out),
                    "files": {split: str(file) for split, file in files[name].items()},
                    "settings": {
                        "epochs": options.epochs,
                        "seeds": options.seeds,
                        "learning_rate": options.learning_rate,
                    },
                }
                subprocess.run(
                    [sys.executable, "-m", "benchmarks.long_texts", "--child", json.dumps(arguments)], check=True
                )
            result = json.loads((out / "bothways.json").read_text(encoding="utf-8"))["result"]
            rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
            seconds = [
                max(row["seconds"] for row in rows if row["split"] == "train" and row.get("seed") == seed)
                for seed in sorted({row.get("seed") for row in rows if row["split"] == "train"})
            ]
            memory = json.loads((out / "memory.json").read_text(encoding="utf-8"))
            print(
                f"{name:10} {way:14} {result['mean']:8.2%} {result['std']:6.2%} {options.seeds} "
                f"{sum(seconds) / len(seconds) / 60:14.1f} {memory:5.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
