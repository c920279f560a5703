"""Pre-training objectives compared: a short run each, on the same number of tokens of the same text with the same
vocabulary and size, followed by fine-tuning on SST-2 and STS-B.

    python -m benchmarks.objectives -o DIR [--steps 3000] [--model mini] [--seeds 3] [--only "masked words" ...]

Held-out figures measure different things (hidden words, the next word, which tokens were replaced), so each is
printed with its trivial baseline: word frequencies, or always answering "no". The fine-tuned scores are comparable:
SST-2 with its first 10,000 rows, two epochs, accuracy; STS-B, four epochs, Spearman; both on dev, over the seeds.
ELECTRA gets the same number of tokens, but its steps cost more; minutes are printed. A run whose directory is
already in DIR is not repeated. Data: $BOTHWAYS_DATA (default: ../shared/data).
"""

import argparse
import json
import os
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow.parquet

import bothways
from bothways.settings import Classify, FineTune, Pretrain, Regress
from bothways.text.tokenizer.tokenizer import Tokenizer
from bothways.training.run import read_metrics

DATA = Path(os.environ.get("BOTHWAYS_DATA", "../shared/data"))
ROWS = 10_000
EQUAL: dict[str, Any] = {  # the same for all rows, so that only the objective differs
    "family": "bert", "recipe": "paper", "warmup": 0.1,
}  # fmt: skip
OBJECTIVES: dict[str, dict[str, Any]] = {
    "masked words, next sentence": {},
    "masked words": {"pairs": "none"},
    "whole words": {"pairs": "none", "masking": "words"},
    "spans with the boundary loss": {"pairs": "none", "masking": "spans", "objective": "boundary"},
    "masked words, sentence order": {"pairs": "order"},
    "replaced tokens": {"family": "electra"},
    "left to right": {"objective": "forward"},
    "two one-way halves": {"objective": "halves"},
}


def articles(files: list[Path]) -> list[str]:
    return [text for file in files for text in pyarrow.parquet.read_table(file)["text"].to_pylist()]


def pretraining(name: str, folder: Path, tokenizer: Path, model: Any, steps: int) -> Pretrain:
    wikipedia = DATA / "wikipedia-2015-en"
    row: dict[str, Any] = {**EQUAL, **OBJECTIVES[name]}
    return Pretrain(
        corpus=tuple(sorted(wikipedia.glob("train-*.parquet"))),
        heldout=tuple(sorted(wikipedia.glob("validation*.parquet"))),
        out=folder / "pretrained", tokenizer=tokenizer, model=model, steps=steps, batch_tokens=2048, learning_rate=5e-4,
        dropout=0.0, evaluate_every=500, checkpoint_every=0, heldout_examples=1024, **row,
    )  # fmt: skip


def finetuning_settings(folder: Path, seeds: int) -> dict[str, FineTune]:
    glue, rows = DATA / "glue", folder.parent / f"sst-2-{ROWS}.tsv"
    if not rows.exists():
        with open(glue / "SST-2/train.tsv", encoding="utf-8") as source:
            rows.write_text("".join(islice(source, ROWS + 1)), encoding="utf-8")
    common: dict[str, Any] = {"model": folder / "pretrained", "seeds": seeds, "batch_size": 32, "learning_rate": 1e-4}
    return {
        "SST-2": Classify(**common, train=rows, dev=glue / "SST-2/dev.tsv", out=folder / "SST-2", epochs=2.0),
        "STS-B": Regress(
            **common, train=glue / "STS-B/sts-train.csv", dev=glue / "STS-B/sts-dev.csv", out=folder / "STS-B",
            epochs=4.0, long="truncate",  # the models read 128 tokens; two pairs are longer
        ),
    }  # fmt: skip


def held_out(figures: dict[str, Any]) -> str:
    if "replaced_accuracy" in figures:
        return f'{figures["replaced_accuracy"]:.1%} of tokens ({figures["chance"]:.1%} always "no")'
    pairs = [value for key, value in figures.items() if key.endswith(("sentence_accuracy", "order_accuracy"))]
    more = f", pairs {pairs[0]:.1%}" if pairs else ""
    return f"perplexity {figures['perplexity']:.0f} ({figures['unigram_perplexity']:.0f} by frequency){more}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--model", default="mini")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=list(OBJECTIVES), choices=list(OBJECTIVES))
    options = parser.parse_args()
    tokenizer = options.out / "tokenizer"
    if not tokenizer.exists():
        first = sorted((DATA / "wikipedia-2015-en").glob("train-*.parquet"))[:2]
        Tokenizer.learn(articles(first), size=16_000, processes=2).save(tokenizer)
    print(f"{'objective':30} {'held out':56} {'minutes':>7}  {'SST-2':>14}  {'STS-B':>14}")
    for name in options.only:
        folder = options.out / name.replace(",", "").replace(" ", "-")
        if not (folder / "pretrained/model").exists():
            bothways.train(pretraining(name, folder, tokenizer, options.model, options.steps))
        metadata = json.loads((folder / "pretrained/bothways.json").read_text(encoding="utf-8"))
        minutes = max(row["seconds"] for row in read_metrics(folder / "pretrained")) / 60
        scores = []
        for settings in finetuning_settings(folder, options.seeds).values():
            if not (settings.out / "model").exists():
                bothways.train(settings)
            result = json.loads((settings.out / "bothways.json").read_text(encoding="utf-8"))["result"]
            scores.append(f"{result['mean']:7.2%} +- {result['std']:.2%}")
        print(f"{name:30} {held_out(metadata['heldout']):56} {minutes:7.1f}  {'  '.join(scores)}", flush=True)


if __name__ == "__main__":
    main()
