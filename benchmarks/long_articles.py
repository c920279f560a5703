"""Long articles of five classes: the default flags against the settings that were the default before linear starts.

    python -m benchmarks.long_articles -o DIR [--seeds 0 1 2] [--rows 1780] [--ways before default]

The articles are from Wikipedia, 400 to 900 words each, without the first paragraph, which names the class: people
(performers), works, places, events, ideas. Each seed makes its own 80/10/10 split and trains once. Seconds are the
processor time of a whole run in its own process, baselines included; accuracy is on test. A finished run is not
repeated. An interrupted run is resumed, and its seconds cover only the last part. Data: $BOTHWAYS_DATA (default:
../shared/data).
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import bothways
from benchmarks.finetune_scores import minilm
from bothways.settings import Classify

DATA = Path(os.environ.get("BOTHWAYS_DATA", "../shared/data"))
KINDS = {
    "people": "actor|actress|singer|musician|songwriter|comedian|rapper|guitarist|composer",
    "works": "film|movie|album|song|novel|television series|sitcom|play|opera|comic",
    "places": "city|town|village|county|province|island|river|lake|mountain",
    "events": "war|battle|conflict|treaty|revolution|election|campaign|siege|massacre|crisis|rebellion|invasion",
    "ideas": "theory|theorem|field|branch|method|technique|concept|equation|function|law",
}
WORDS = (400, 900)
WAYS: dict[str, dict[str, Any]] = {
    "before": {
        "baselines": False, "linear_start": False, "pooling": "cls", "epochs": 3.0,
        "batch_tokens": 2048,
    },
    "default": {},
}  # fmt: skip


def articles(file: Path, rows: int) -> None:
    """Write about `rows` labelled articles, equally many per class, in random order."""
    rng = np.random.default_rng(0)
    texts: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for source in sorted((DATA / "wikipedia-2015-en").glob("train-*.parquet")):
        for text in pq.read_table(source, columns=["text"])["text"].to_pylist():
            first, *others = [part for part in text.split("\n") if len(part.split()) > 12] or [""]
            words = " ".join(others).split()
            definition = re.search(r"\b(?:is|was) (?:an?|the) ([^.,;]*)", first)
            kinds = [
                kind
                for kind, names in KINDS.items()
                if definition and re.search(rf"\b(?:{names})\b", definition[1], re.I)
            ]
            if len(kinds) == 1 and len(words) >= WORDS[0]:
                texts[kinds[0]].append(" ".join(words[: int(rng.integers(*WORDS))]))
    chosen = [
        {"text": class_texts[row], "label": kind}
        for kind, class_texts in texts.items()
        for row in rng.permutation(len(class_texts))[: rows // len(KINDS)]
    ]
    lines = [json.dumps(chosen[row]) + "\n" for row in rng.permutation(len(chosen))]
    file.write_text("".join(lines), encoding="utf-8")


def train(way: str, train: Path, out: Path, seed: int) -> None:
    start = time.process_time()
    bothways.train(Classify(model=minilm(), train=train, out=out, seed=seed, resume=True, **WAYS[way]))
    (out / "seconds.json").write_text(json.dumps(time.process_time() - start), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rows", type=int, default=1780)
    parser.add_argument("--ways", nargs="+", default=[*WAYS], choices=[*WAYS])
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    file = options.out / f"articles-{options.rows}.jsonl"
    if options.child:
        way, seed = options.child
        train(way, file, options.out / f"{way}-{seed}", int(seed))
        return
    options.out.mkdir(parents=True, exist_ok=True)
    if not file.exists():
        articles(file, options.rows)
    for way in options.ways:
        seconds, results = [], []
        for seed in options.seeds:
            out = options.out / f"{way}-{seed}"
            if not (out / "seconds.json").exists():
                child = [sys.executable, "-m", "benchmarks.long_articles", "-o", str(options.out)]
                command = [*child, "--rows", str(options.rows), "--child", way, str(seed)]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            seconds.append(json.loads((out / "seconds.json").read_text(encoding="utf-8")))
            results.append(json.loads((out / "bothways.json").read_text(encoding="utf-8"))["result"])
            simple = ", ".join(f"{name} {score:.2%}" for name, score in results[-1].get("baselines", {}).items())
            print(f"{way:8} seed {seed}: {results[-1]['mean']:.2%} in {seconds[-1]:.0f} s; {simple}", flush=True)
        scores = [result["mean"] for result in results]
        spread = f" +- {stdev(scores):.2%}" if len(scores) > 1 else ""
        print(f"{way:8} {fmean(scores):.2%}{spread} in {fmean(seconds):.0f} s", flush=True)


if __name__ == "__main__":
    main()
