"""Adapters against full fine-tuning: scores and the sizes of what is saved.

    python -m benchmarks.adapters -o DIR [--only SST-2 STS-B] [--kinds full lora ...] [--rows 10000] [--seeds 1]

all-MiniLM-L6-v2 with default options. SST-2: the first rows of the training file, a tenth of which selects, and
the published dev set as test. STS-B: the published splits. Data: $BOTHWAYS_DATA (default: ../shared/data).
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import torch

import bothways
from benchmarks.finetune_scores import minilm
from benchmarks.finetune_sets import DataSet, sst2_first, with_dev
from bothways.model.adapters.spec import KINDS

SETS = {"SST-2": sst2_first, "STS-B": lambda rows: with_dev("STS-B")}


def run(name: str, data: DataSet, kind: str, arguments: argparse.Namespace) -> None:
    out, start = arguments.out / f"{name}-{kind}", time.perf_counter()
    adapter = None if kind == "full" else kind
    settings = data.settings(
        model=minilm(), out=out, baselines=False, seeds=arguments.seeds, adapter=adapter, **data.arguments
    )
    if arguments.learning_rate:
        settings = replace(settings, learning_rate=arguments.learning_rate)
    result = bothways.train(replace(settings, resume=out.exists()))
    size = sum(file.stat().st_size for file in result.model_directory.rglob("*.safetensors"))
    line = {
        "set": name, "kind": kind, "metric": result.metric, "mean": 100 * result.mean, "scores": result.scores,
        "bytes": size, "seconds": time.perf_counter() - start, "learning_rate": arguments.learning_rate,
    }  # fmt: skip
    with (arguments.out / "scores.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    print(f"| {name} | {kind} | {line['mean']:.2f} | {size / 1e6:.2f} | {line['seconds']:.0f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--only", nargs="+", default=[*SETS], choices=[*SETS])
    parser.add_argument("--kinds", nargs="+", default=["full", *KINDS], choices=["full", *KINDS])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--learning-rate", type=float)
    parser.add_argument("--rows", type=int, default=10_000, help="of SST-2")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    arguments.out.mkdir(parents=True, exist_ok=True)
    print("| set | trained | score | MB saved | seconds |\n|---|---|---|---|---|")
    for name in arguments.only:
        data = SETS[name](arguments.rows)
        for kind in arguments.kinds:
            run(name, data, kind, arguments)


if __name__ == "__main__":
    main()
