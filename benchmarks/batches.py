"""From the ids of short texts to batches, by arrays and by lists of Encodings: microseconds a text, and their ratio.

    python -m benchmarks.batches [--texts 20000]

One process, one thread; both sides alternate, each pair of runs gives a ratio. The texts are sentences of the package's
novels of at most 60 characters, tokenized before. A run does all that stands between ids and the model: windows of long
texts, the rows that each window is pooled over, equal texts (of lists; arrays have found them before they were
tokenized), order by length, batches of `--batch-tokens`, and each batch with ids, segments, positions and lengths.
"""

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import chain

import torch

from benchmarks.pretrain import packaged_tokenizer
from benchmarks.rows import processor
from bothways.base.device import choose_device
from bothways.inference.reading import distinct_rows
from bothways.tasks.windows import WindowPolicy, own_rows
from bothways.text.batch import Batch
from bothways.text.batching import sort_by_length, token_batches
from bothways.text.corpus.documents import sample
from bothways.text.corpus.encode import sentences
from bothways.text.token_windows import TokenWindows
from bothways.text.tokenizer.encoding import Encoding

POLICY = WindowPolicy(max_length=512)
ROUNDS = 11
LONGEST = 60  # characters


def by_lists(encodings: list[Encoding], budget: int, device: torch.device) -> int:
    """Batches of lists, as they are built for tags and answers. Returns the number of texts."""
    windows = POLICY.split(encodings)
    bounds = [own_rows(parts) for parts in windows]
    flat = [*chain.from_iterable(windows)]
    distinct, _ = distinct_rows(flat, [*chain.from_iterable(bounds)])

    lengths = [*map(len, flat)]
    done = 0
    for rows in token_batches(sort_by_length(distinct, lengths), lengths, budget):
        done += len(Batch.from_encodings([flat[row] for row in rows]).to(device))
    return done


def by_arrays(texts: TokenWindows, budget: int, device: torch.device) -> int:
    """Batches of arrays, as in inference/runner.py. Returns the number of texts."""
    # A copy: lengths and rows are kept once they are computed, but belong to the work.
    windows = POLICY.divide(replace(texts))
    assert len(windows.own_rows) == len(windows)
    order = windows.lengths.argsort(kind="stable").tolist()
    done = 0
    for rows in token_batches(order, windows.lengths, budget):
        done += len(windows.batch(rows, device))
    return done


def seconds(work: Callable[[], int]) -> float:
    gc.collect()
    began = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=20_000)
    parser.add_argument("--batch-tokens", type=int, nargs="+", default=[4096, 65_536])
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()

    torch.set_num_threads(1)
    device = choose_device(options.device)
    tokenizer = packaged_tokenizer()
    lines = chain.from_iterable(sentences(row["text"], "en") for row in sample())
    short = [line.strip() for line in lines if 0 < len(line.strip()) <= LONGEST]
    texts = [f"{short[row % len(short)]} {row}" for row in range(options.texts)]
    encodings = tokenizer.encode_many(texts)
    windows, _ = TokenWindows.encode(tokenizer, texts)

    mean = statistics.fmean(map(len, encodings))
    print(f"{processor()}, {device}, {len(texts):,} texts of {mean:.1f} tokens, {ROUNDS} pairs of runs")
    for budget in options.batch_tokens:
        sides = {
            "lists": lambda budget=budget: by_lists(encodings, budget, device),
            "arrays": lambda budget=budget: by_arrays(windows, budget, device),
        }
        for work in sides.values():
            work()
        times: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(ROUNDS):
            for name, work in sides.items():
                times[name].append(seconds(work))

        ratios = [before / after for before, after in zip(times["lists"], times["arrays"], strict=True)]
        each = {name: statistics.median(values) / len(texts) * 1e6 for name, values in times.items()}
        print(
            f"batches of {budget:,} tokens: lists {each['lists']:.2f}, arrays {each['arrays']:.2f} microseconds a "
            f"text, ratio {statistics.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f})"
        )


if __name__ == "__main__":
    main()
