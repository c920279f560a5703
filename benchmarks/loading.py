"""Milliseconds per `bothways.load` of a cached checkpoint, against transformers' model and tokenizer.

    python -m benchmarks.loading [DIRECTORY] [--loads 40]

The default directory is the published all-MiniLM-L6-v2. The sides load in turns, so that other programs on the
machine slow both. Prints median and quartiles of each side, and of the ratio within a round.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from statistics import quantiles
from typing import Any

import bothways
from benchmarks.inference_texts import minilm


def milliseconds(load: Callable[[], Any]) -> float:
    start = time.perf_counter()
    load()
    return 1e3 * (time.perf_counter() - start)


def line(name: str, values: Sequence[float]) -> str:
    low, middle, high = quantiles(values, n=4)
    return f"{name:28} {middle:8.2f} ({low:.2f} to {high:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="?", default=str(minilm()))
    parser.add_argument("--loads", type=int, default=40)
    options = parser.parse_args()
    from transformers import AutoModel, AutoTokenizer

    sides: dict[str, Callable[[], Any]] = {
        "bothways, bf16": lambda: bothways.load(options.directory, dtype="bfloat16"),
        "bothways, float32": lambda: bothways.load(options.directory, dtype="float32"),
        "transformers, float32": lambda: (
            AutoModel.from_pretrained(options.directory),
            AutoTokenizer.from_pretrained(options.directory),
        ),
    }
    times: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(options.loads + 1):
        for name, load in sides.items():
            spent = milliseconds(load)
            if turn:  # the first load imports modules
                times[name].append(spent)
    print(f"ms per load of {options.directory}, median (quartiles) of {options.loads}")
    for name, values in times.items():
        print(line(name, values))
    *ours, theirs = times
    for name in ours:
        ratios = [one / other for one, other in zip(times[name], times[theirs], strict=True)]
        print(line(f"{name.split()[-1]} / transformers", ratios))


if __name__ == "__main__":
    main()
