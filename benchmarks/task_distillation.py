"""A fine-tuned model into half of its layers: with and without a teacher, with many and with few labels.

    python -m benchmarks.task_distillation -o DIR [--rows 10000] [--few 64] [--seed 0] [--threads 1]

SST-2: the first rows of the training file (a tenth of them selects), accuracy on the published dev set, which selects
nothing. The teacher is all-MiniLM-L6-v2, fine-tuned; a student starts from layers 0, 1 and 2 of the original, or where
it says so of the teacher. With few labels, the other texts are given without labels. Data: $BOTHWAYS_DATA (default:
../shared/data).
"""

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

import bothways
from benchmarks.finetune_scores import minilm
from benchmarks.finetune_sets import glue, rows_of
from bothways.settings import Classify

LAYERS = 0, 1, 2
REPEATS = 3


def accuracy(model: Path, rows: list[dict[str, str]]) -> tuple[float, float]:
    """Accuracy in per cent, and texts per second (the best of some repetitions)."""
    predictor, texts = bothways.load(model), [row["text"] for row in rows]
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        predicted = predictor.classify(texts)
        seconds.append(time.perf_counter() - start)
    correct = sum(one.label == row["label"] for one, row in zip(predicted, rows, strict=True))
    return 100 * correct / len(rows), len(rows) / min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--few", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    data = glue("SST-2").arguments
    train, test = (rows_of(data, split) for split in ("train", "test"))
    train = train[: arguments.rows]
    few, unlabelled = train[: arguments.few], {"text": [row["text"] for row in train[arguments.few :]]}
    arguments.out.mkdir(parents=True, exist_ok=True)

    def finetune(name: str, rows: list[dict[str, str]], **options: Any) -> Path:
        out = arguments.out / name
        start = time.perf_counter()
        settings: Mapping[str, Any] = {"model": minilm(), "train": rows, "seed": arguments.seed, **options}
        result = bothways.train(Classify(out=out, baselines=False, resume=out.exists(), **settings))
        value, speed = accuracy(result.model_directory, test)
        line = {"name": name, "accuracy": value, "texts_per_second": speed, "seconds": time.perf_counter() - start}
        with (arguments.out / "scores.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(f"| {name} | {value:.2f} | {speed:,.0f} | {line['seconds']:.0f} |", flush=True)
        return result.model_directory

    print("| model | accuracy | texts/s | seconds |\n|---|---|---|---|")
    student: Mapping[str, Any] = {"keep_layers": LAYERS}
    teacher = finetune(f"6 layers, {len(train):,} rows (teacher)", train)
    finetune(f"3 layers, {len(train):,} rows", train, **student)
    finetune(f"3 layers, {len(train):,} rows, teacher", train, teacher=teacher, **student)
    finetune(f"3 layers of the teacher, {len(train):,} rows", train, model=teacher, **student)
    finetune(f"3 layers of the teacher, {len(train):,} rows, teacher", train, model=teacher, teacher=teacher, **student)
    small = finetune(f"6 layers, {len(few)} rows", few)
    finetune(f"3 layers, {len(few)} rows", few, **student)
    rest = {"unlabelled": unlabelled, **student}
    name = f"3 layers of the teacher, {len(few)} rows and texts, teacher"
    finetune(f"{name} of {len(train):,} rows", few, model=teacher, teacher=teacher, **rest)
    finetune(f"{name} of {len(few)} rows", few, model=small, teacher=small, **rest)


if __name__ == "__main__":
    main()
