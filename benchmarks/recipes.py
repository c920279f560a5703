"""Pre-training recipes: equal tokens (or minutes) of the same text, one change at a time, the same held-out masks.

    python -m benchmarks.recipes -o DIR [--tokens 3e6 | --minutes 20] [--model mini] [--only ROW ...] [--fine-tune]
        [--threads 1] [--vocabulary DIR | learned] [--corpus FILE ... [--heldout FILE ...]]

Default text: Wikipedia and novels of the development data, with Google's uncased vocabulary; held out: 15 % fixed
masks on 1,024 examples of the validation articles. --corpus replaces it. Each row is a run whose schedule ends at
its tokens. Prints perplexity, loss per word (comparable between vocabularies), the share of masks whose first guess
is right, minutes of training and the number of right fills; with --fine-tune also SST-2 (its first 10,000 rows) and
STS-B, three seeds. DIR/recipes.png has all curves. A run whose directory is already in DIR is not repeated; an
interrupted run is resumed.
"""

import argparse
import json
import math
import os
from itertools import islice
from pathlib import Path
from typing import Any

import torch

import bothways
from bothways.inference.predictor import Predictor
from bothways.settings import Classify, FineTune, Pretrain, Regress
from bothways.text.corpus.documents import mark_held_out
from bothways.text.tokenizer.tokenizer import Tokenizer
from bothways.training.pretraining.setup import open_text
from bothways.training.pretraining.text_data import HELD_OUT_EVERY, read_data
from bothways.training.run import read_metrics

DATA = Path(os.environ.get("BOTHWAYS_DATA", "../shared/data"))
ROWS = 10_000
OLD: dict[str, Any] = {
    "recipe": "paper",
    "pairs": "next",
    "learning_rate": 1e-3,
    "warmup": 0.1,
    "vocab_size": 30522,
}
RECIPES: dict[str, dict[str, Any]] = {
    "default": {},
    "defaults before": OLD,
    "bert": {"family": "bert"},
    "roberta": {"family": "roberta"},
    "albert": {"family": "albert"},
    "electra": {"family": "electra"},
    "deberta": {"family": "deberta"},
    "rate 1e-3": {"learning_rate": 1e-3},
    "rate 4e-3": {"learning_rate": 4e-3},
    "mask rate 0.15": {"mask_rate": 0.15},
    "mask rate 0.4": {"mask_rate": 0.4},
    "batches of 2,048": {"batch_tokens": 2048},
    "batches of 8,192": {"batch_tokens": 8192},
    "warm-up-stable-decay": {"schedule": "warm-up-stable-decay"},
}
FILLS = {  # the sentences of docs/RESULTS.md, with the words that count as right
    "The capital of France is [MASK].": "paris",
    "She opened the [MASK] and walked into the room.": "door",
    "He was born in [MASK] in 1923.": "london paris berlin vienna england germany france chicago boston philadelphia",
    "The river flows into the [MASK].": "sea ocean lake river atlantic pacific gulf bay mediterranean danube",
    '"I do not know," she [MASK].': "said replied answered cried added murmured",
    "The band released their first [MASK] in 1994.": "album single record ep lp",
    "It is a species of [MASK] in the family Fabaceae.": "legume plant plants tree trees shrub flowering bean",
    "He was [MASK] of the House of Commons.": "speaker member leader",
    "The [MASK] was built in the 19th century.": "church building castle house bridge station tower school cathedral",
    "They were married and had three [MASK].": "children sons daughters kids",
}


def pretraining(name: str, options: argparse.Namespace) -> Pretrain:
    wikipedia, folder = DATA / "wikipedia-2015-en", options.out / name.replace(",", "").replace(" ", "-")
    row: dict[str, Any] = {"batch_tokens": 4096, **RECIPES[name]}
    row["corpus"] = tuple(options.corpus or (*sorted(wikipedia.glob("train-*")), DATA / "novels-100-en/novels.parquet"))
    row["heldout"] = tuple(options.heldout if options.corpus else sorted(wikipedia.glob("validation*.parquet")))
    if options.vocabulary != "learned":
        row["tokenizer"] = Path(options.vocabulary or DATA / "vocab/bert-base-uncased")
    if options.minutes:
        row |= {"minutes": options.minutes}
    else:
        steps = round(options.tokens / row["batch_tokens"] / 0.985)  # mean fill of a batch
        row |= {"steps": steps, "evaluate_every": max(1, steps // 20)}
    return Pretrain(
        heldout_examples=1024, model=options.model, checkpoint_every=500, out=folder / "pretrained",
        resume=(folder / "pretrained/bothways.json").exists(), **row,
    )  # fmt: skip


def finetuning_settings(folder: Path) -> dict[str, FineTune]:
    glue, rows = DATA / "glue", folder.parent / f"sst-2-{ROWS}.tsv"
    if not rows.exists():
        with open(glue / "SST-2/train.tsv", encoding="utf-8") as source:
            rows.write_text("".join(islice(source, ROWS + 1)), encoding="utf-8")
    common: dict[str, Any] = {"model": folder / "pretrained", "seeds": 3, "batch_size": 32}
    return {
        "SST-2": Classify(**common, train=rows, dev=glue / "SST-2/dev.tsv", out=folder / "SST-2", epochs=2.0),
        "STS-B": Regress(
            **common, train=glue / "STS-B/sts-train.csv", dev=glue / "STS-B/sts-dev.csv", out=folder / "STS-B",
            epochs=4.0, long="truncate",  # the models read 128 tokens; two pairs are longer
        ),
    }  # fmt: skip


def count_fills(model: Predictor) -> int:
    """How many of the ten masks get a right word as the first guess."""
    return sum(model.fill(text, top=1)[0][0].token in right.split() for text, right in FILLS.items())


def tokens_per_word(settings: Pretrain) -> float:
    """Tokens per word of a finished run's held-out text, to compare losses between vocabularies."""
    text = open_text(settings)
    data = read_data(text, Tokenizer.load(settings.out / "model"))
    marked = mark_held_out(text.training.documents(), HELD_OUT_EVERY)
    documents = (
        text.heldout.documents() if text.heldout else (document for document, is_held_out in marked if is_held_out)
    )
    words = sum(len(document.split()) for document in documents)
    tokens: int = data.facts["data"]["heldout"]["tokens"]
    return tokens / words


def draw(runs: dict[str, list[dict[str, Any]]], file: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 6), layout="constrained")
    for name, rows in runs.items():
        axes.plot([row["tokens"] / 1e6 for row in rows], [row["perplexity"] for row in rows], label=name)
    axes.set(xlabel="tokens (millions)", ylabel="held-out perplexity of masked words", yscale="log")
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3, which="both")
    figure.savefig(file, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--tokens", type=float, default=3e6)
    parser.add_argument("--model", default="mini")
    parser.add_argument("--minutes", type=float, help="train for this long instead of --tokens")
    parser.add_argument("--vocabulary", help="tokenizer directory; learned: each run learns its own")
    parser.add_argument("--corpus", type=Path, nargs="+", help="own text; every 20th document is held out")
    parser.add_argument("--heldout", type=Path, nargs="+", default=(), help="held-out text for --corpus")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--fine-tune", action="store_true")
    parser.add_argument("--only", nargs="+", default=list(RECIPES), choices=list(RECIPES))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.out.mkdir(parents=True, exist_ok=True)
    runs: dict[str, list[dict[str, Any]]] = {}
    print(f"{'recipe':26} {'tokens':>11} {'minutes':>7} {'perplexity':>10} {'nats/word':>9} {'fills':>5}")
    for name in options.only:
        settings = pretraining(name, options)
        if not (settings.out / "model").exists():
            bothways.train(settings)
        notes = json.loads((settings.out / "bothways.json").read_text(encoding="utf-8"))
        figures, cost = notes["heldout"], notes["cost"]
        runs[name] = [row for row in read_metrics(settings.out) if row["split"] == "heldout"]
        draw(runs, options.out / "recipes.png")
        scores = []
        for task in finetuning_settings(settings.out.parent).values() if options.fine_tune else ():
            if not (task.out / "model").exists():
                bothways.train(task)
            result = json.loads((task.out / "bothways.json").read_text(encoding="utf-8"))["result"]
            scores.append(f"{result['mean']:7.2%} +- {result['std']:.2%}")
        loss = math.log(figures["perplexity"]) * tokens_per_word(settings)
        guesses = "masked_lm" in figures and "replaced" not in figures
        fills = f"{count_fills(bothways.load(settings.out))}/10" if guesses else "-"
        columns = f"{cost['tokens']:11,} {cost['minutes']:7.1f} {figures['perplexity']:10.1f} {loss:9.3f} {fills:>5}"
        print(f"{name:26} {columns}  {'  '.join(scores)}", flush=True)


if __name__ == "__main__":
    main()
