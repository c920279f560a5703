"""Long texts two ways: MiniLM-L6 by windows of 512 with pooling, and one long read by the same model made a Longformer
of 4,096 tokens; on IMDb and on articles that take sides (Kiesel 2019).

    python -m benchmarks.long_texts -o DIR [--minutes 60] [--seeds 3] [--rows 5000] [--epochs 3] [--learning-rate 1e-4]
        [--only imdb articles] [--ways windows "one long read"]

The long reader is pre-trained on for some minutes on Wikipedia, documents of up to 4,096 tokens, masked words, a window
of 256; then both are fine-tuned alike, 16 texts a step. IMDb: the first so many rows of train and of test, shuffled by
row; articles: 645, of which 80/10/10 by the seed of the split. Accuracy on test over the seeds, minutes of training for
one seed, the process's memory at most. What is in DIR already is not made again. Data: $BOTHWAYS_DATA (unset:
../shared/data).
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
from bothways.settings import Classify, Pretrain

DATA = Path(os.environ.get("BOTHWAYS_DATA", "../shared/data"))
ARTICLES = DATA / "long-documents/hyperpartisan"
LENGTH, WINDOW = 4096, 256


def tables(out: Path, rows: int) -> dict[str, dict[str, Path]]:
    """train, dev and test of both sets as JSON lines."""
    folder = out / "data"
    folder.mkdir(parents=True, exist_ok=True)
    found = {name: {split: folder / f"{name}-{split}.jsonl" for split in ("train", "dev", "test")} for name in SETS}
    if not found["imdb"]["dev"].exists():
        for split in ("test", "train"):
            table = pq.read_table(DATA / f"imdb/{split}.parquet").to_pylist()
            order = np.random.default_rng(0).permutation(len(table))[: rows + rows // 10]
            parts = {"test": order[:rows]} if split == "test" else {"train": order[:rows], "dev": order[rows:]}
            for name, chosen in parts.items():
                lines = [{"text": table[row]["text"], "label": str(table[row]["label"])} for row in chosen]
                write(found["imdb"][name], lines)
    if not found["articles"]["dev"].exists():
        lines = articles()
        order = np.random.default_rng(0).permutation(len(lines))
        for name, chosen in zip(("train", "dev", "test"), np.split(order, [516, 580]), strict=True):
            write(found["articles"][name], [lines[row] for row in chosen])
    return found


SETS, WAYS = ("imdb", "articles"), ("windows", "one long read")


def articles() -> list[dict[str, str]]:
    truth = ElementTree.parse(ARTICLES / "ground-truth-training-byarticle-20181122.xml").getroot()
    labels = {one.get("id"): one.get("hyperpartisan", "") for one in truth}
    found = []
    for article in ElementTree.parse(ARTICLES / "articles-training-byarticle-20181122.xml").getroot():
        text = re.sub(r"\s+", " ", " ".join([article.get("title", ""), *article.itertext()])).strip()
        found.append({"text": text, "label": labels[article.get("id")]})
    return found


def write(file: Path, lines: list[dict[str, str]]) -> None:
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def long_reader(out: Path, minutes: float) -> Path:
    """MiniLM-L6 that reads 4,096 tokens, pre-trained on."""
    settings = Pretrain(
        corpus=(DATA / "wikipedia-2015-en/train-00000-of-00008.parquet",),
        out=out / "long-reader",
        from_checkpoint=minilm(),
        max_length=LENGTH,
        lengthen=WINDOW,
        batch_tokens=2 * LENGTH,
        pairs="none",
        learning_rate=2e-4,
        dropout=0.0,
        minutes=minutes,
        evaluate_every=200,
        checkpoint_every=100,
        heldout_examples=32,
        resume=True,
    )
    if not (settings.out / "model").exists():
        bothways.train(settings)
    return settings.out


def settings_of(way: str, model: Path, files: dict[str, Path], out: Path, **told: Any) -> Classify:
    return Classify(
        model=model, **files, out=out, **told, batch_size=16, evaluations_per_epoch=1, resume=True,
        window=512 if way == "windows" else LENGTH,
    )  # fmt: skip


def child(told: dict[str, Any]) -> None:
    files = {name: Path(file) for name, file in told["files"].items()}
    settings = settings_of(told["way"], Path(told["model"]), files, Path(told["out"]), **told["settings"])
    bothways.train(settings)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    (settings.out / "memory.json").write_text(json.dumps(most), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path)
    parser.add_argument("--minutes", type=float, default=60)
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
        parser.error("name a folder with -o")
    found = tables(options.out, options.rows)
    models = {
        way: minilm() if way == "windows" else long_reader(options.out, options.minutes) for way in options.ways
    }  # fmt: skip
    print(f"{'set':10} {'':14} {'accuracy':>8} {'std':>6} n {'minutes a seed':>14} {'GiB':>5}")
    for name in options.only:
        for way, model in models.items():
            out = options.out / f"{name}-{way.replace(' ', '-')}"
            if not (out / "memory.json").exists():
                told = {
                    "way": way,
                    "model": str(model),
                    "out": str(out),
                    "files": {split: str(file) for split, file in found[name].items()},
                    "settings": {
                        "epochs": options.epochs,
                        "seeds": options.seeds,
                        "learning_rate": options.learning_rate,
                    },
                }
                subprocess.run([sys.executable, "-m", "benchmarks.long_texts", "--child", json.dumps(told)], check=True)
            made = json.loads((out / "bothways.json").read_text(encoding="utf-8"))["result"]
            rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
            seconds = [
                max(row["seconds"] for row in rows if row["split"] == "train" and row.get("seed") == seed)
                for seed in sorted({row.get("seed") for row in rows if row["split"] == "train"})
            ]
            memory = json.loads((out / "memory.json").read_text(encoding="utf-8"))
            print(
                f"{name:10} {way:14} {made['mean']:8.2%} {made['std']:6.2%} {options.seeds} "
                f"{sum(seconds) / len(seconds) / 60:14.1f} {memory:5.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
