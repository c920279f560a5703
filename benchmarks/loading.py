"""Milliseconds per `bothways.load` of a cached checkpoint, against transformers' model and tokenizer.

    python -m benchmarks.loading [DIRECTORY] [--loads 40]

Without a directory: the published all-MiniLM-L6-v2. Both sides load in turns, so that other work on the machine slows
both; printed are the median and the quartiles of each side, and of the ratio within a turn.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from statistics import quantiles
from typing import Any

import bothways
from benchmarks.inference_texts import minilm


def milliseconds(load: Callable[[], Any]) -> float:
    began = time.perf_counter()
    load()
    return 1e3 * (time.perf_counter() - began)


def line(name: str, values: Sequence[float]) -> str:
    low, middle, high = quantiles(values, n=4)
    return f"{name:28} {middle:8.2f} ({low:.2f} to {high:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="?", default=str(minilm()))
    parser.add_argument("--loads", type=int, default=40)
    asked = parser.parse_args()
    from transformers import AutoModel, AutoTokenizer

    sides: dict[str, Callable[[], Any]] = {
        "bothways, bf16": lambda: bothways.load(asked.directory, dtype="bfloat16"),
        "bothways, float32": lambda: bothways.load(asked.directory, dtype="float32"),
        "transformers, float32": lambda: (
            AutoModel.from_pretrained(asked.directory),
            AutoTokenizer.from_pretrained(asked.directory),
        ),
    }
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(asked.loads + 1):
        for name, load in sides.items():
            spent = milliseconds(load)
            if turn:  # the first load imports modules
                taken[name].append(spent)
    print(f"ms per load of {asked.directory}, median (quartiles) of {asked.loads}")
    for name, values in taken.items():
        print(line(name, values))
    *ours, theirs = taken
    for name in ours:
        ratios = [one / other for one, other in zip(taken[name], taken[theirs], strict=True)]
        print(line(f"{name.split()[-1]} / transformers", ratios))


if __name__ == "__main__":
    main()
