"""All layers in int8: with and without training for it, against the float model, on the same rows.

    python -m benchmarks.quantized_training -o DIR [--model RUN] [--rows 10000] [--test-rows 10000] [--threads 1]

all-MiniLM-L6-v2 on the first rows of SST-2's training file; accuracy on later rows of that file. --model: a run of
`finetune classify` on the same rows with default options, which is the float model that training for int8 starts from.
Differences are paired, with 95 % intervals. Data: $BOTHWAYS_DATA (default: ../shared/data).
"""

import argparse
from dataclasses import replace
from pathlib import Path

import torch

import bothways
from benchmarks.finetune_scores import minilm
from benchmarks.finetune_sets import glue, rows_of
from bothways.evaluation.before_after import measure_drop
from bothways.inference.predictor import Predictor
from bothways.model.checkpoint import checkpoint
from bothways.model.int8 import replace_linears
from bothways.model.int8_training import candidates, observe
from bothways.settings import Classify
from bothways.settings.tables_in_memory import as_source
from bothways.tasks.classify.task import CLASSIFY
from bothways.text.batching import spread_evenly
from bothways.text.data.examples import read_table

CALIBRATION_TEXTS = 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--test-rows", type=int, default=10_000)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    everything = rows_of(glue("SST-2").arguments, "train")
    train = everything[: arguments.rows]
    known = {row["text"].strip() for row in train}
    later = [row for row in everything[2 * arguments.rows :] if row["text"].strip() not in known]
    test = later[: arguments.test_rows]
    options = {"model": minilm(), "train": train, "baselines": False}
    out = arguments.out / "int8"
    trained = bothways.train(Classify(out=out, quantize="int8", resume=out.exists(), **options)).model_directory
    plain = arguments.model
    if plain is None:
        plain = bothways.train(Classify(out=arguments.out / "float", **options)).model_directory
    loaded = checkpoint.load(plain)
    exact = Predictor(loaded, dtype="float32", device="cpu")
    texts = [train[row]["text"] for row in spread_evenly(range(len(train)), CALIBRATION_TEXTS)]
    layers = candidates(exact.module, observe(exact.module, lambda: exact.classify(texts)))
    untrained = replace_linears(loaded.model, {name: layer.linear for name, layer in layers.items()})
    models = {
        "float32": exact,
        "bfloat16": bothways.load(plain, dtype="bfloat16"),
        "int8, all layers, without training": Predictor(replace(loaded, model=untrained), device="cpu"),
        "int8, all layers, trained": bothways.load(trained),
    }
    table = read_table(as_source("test", test), label=None, need_labels=True)
    evaluator, rows = CLASSIFY.evaluator(exact, None), CLASSIFY.rows(exact, table)
    reference = evaluator.predict(exact, rows)
    print(f"| model | accuracy on {len(rows):,} rows | lost, 95 % |\n|---|---|---|")
    for name, model in models.items():
        predictions = evaluator.predict(model, rows)
        score = evaluator.score(rows, predictions, reference).percentages["accuracy"]
        drop = measure_drop(evaluator, rows, predictions, reference)
        low, high = drop.interval
        lost = "" if model is exact else f"{drop.points:.2f} ({low:.2f} to {high:.2f})"
        print(f"| {name} | {score:.2f} | {lost} |", flush=True)


if __name__ == "__main__":
    main()
