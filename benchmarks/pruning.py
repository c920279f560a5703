"""Pruning a fine-tuned classifier to half of its layers' weights, by layers, neurons and heads.

    python -m benchmarks.pruning -o DIR [--model RUN] [--rows 10000] [--size 0.5] [--threads 1]

all-MiniLM-L6-v2 fine-tuned on the first rows of SST-2's training file (or --model, such a run). The same rows train the
pruned models, a tenth of them selects; accuracy is on the published dev set, which selects nothing, with the 95 %
interval of the difference on the same rows. Data: $BOTHWAYS_DATA (default: ../shared/data).
"""

import argparse
from pathlib import Path

import torch

import bothways
from benchmarks.finetune_scores import minilm
from benchmarks.finetune_sets import glue, rows_of
from bothways.evaluation.before_after import measure_drop, read_evaluation_rows
from bothways.settings import Classify, Prune
from bothways.shrink import prune

PARTS = (("layers",), ("feed-forward",), ("heads", "feed-forward"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--size", type=float, default=0.5)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    data = glue("SST-2").arguments
    train, test = (rows_of(data, split) for split in ("train", "test"))
    train = train[: arguments.rows]
    model = arguments.model
    if model is None:
        settings = Classify(model=minilm(), train=train, out=arguments.out / "whole", baselines=False)
        model = bothways.train(settings).directory
    texts, gold = [row["text"] for row in test], [row["label"] for row in test]
    before = bothways.load(model, dtype="float32")
    published = glue("SST-2").arguments["test"]
    columns = Prune(model=model, texts=train, out=arguments.out, size=0.5)
    rows = read_evaluation_rows(before, published, columns)
    reference = rows.evaluator.predict(before, rows.rows)
    print("| cut | structure | weights of the layers | texts/s | accuracy | drop, 95 % |\n|---|---|---|---|---|---|")
    correct = sum(one.label == label for one, label in zip(before.classify(texts), gold, strict=True))
    print(f"| none | | 100 % | 1.00 x | {100 * correct / len(gold):.2f} | |", flush=True)
    for parts in PARTS:
        out = arguments.out / "-".join(parts)
        options = {"model": model, "texts": train, "test": test, "size": arguments.size, "parts": parts}
        result = prune.run(Prune(out=out, resume=out.exists(), **options))
        point, after = result.best, bothways.load(result.directory, dtype="float32")
        drop = measure_drop(rows.evaluator, rows.rows, rows.evaluator.predict(after, rows.rows), reference)
        low, high = drop.interval
        print(
            f"| {', '.join(parts)} | {point.name} | {point.share:.0%} | {point.speed:.2f} x | "
            f"{point.score:.2f} | {drop.points:.2f} ({low:.2f} to {high:.2f}) |",
            flush=True,
        )


if __name__ == "__main__":
    main()
