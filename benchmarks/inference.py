"""Inference against other libraries in one run: throughput, latency of one text, time to the first vector, memory.

    python -m benchmarks.inference [--quick] [--only short paragraphs paragraphs-20000 latency start]
    python -m benchmarks.inference --sides "ours bf16" "ONNX Runtime int8" --rounds 5 --int8 DIR
    python -m benchmarks.inference --device cuda        # against sentence-transformers on a GPU

MiniLM-L6-v2, from text to normalized vectors, tokenizing included, all cores, every text truncated to the same
number of tokens (--longest 256, the checkpoint's own setting). Each side is a process that stays alive for a whole
set; the sides take turns, round by round, while the others sleep. Every round has its own texts, the same for all
sides. Other libraries use the fastest of several batch sizes on 256 texts; all sort by length and pad to the longest
text of a batch (benchmarks/speed/peers.py has the setups). Speeds are medians over rounds; "ours is faster" is the
median of the ratios to the first side within each round. Cosines are to sentence-transformers in float32. Peak
memory is the peak resident memory of a process. Start is the time from the start of a process to its first vector.
--keep NAME writes the seconds of each round to docs/measurements/NAME.json.
"""

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import TypeVar

from benchmarks import measurements
from benchmarks.inference_side import OURS, Answer, Side, Worker, started, usable
from benchmarks.inference_texts import texts_of, texts_of_length, tokenizer

REFERENCE = "sentence-transformers float32"
SETS = {"short": 2000, "paragraphs": 2000, "paragraphs-20000": 20_000}  # set -> number of texts
LATENCIES = (16, 128)  # tokens
Entry = TypeVar("Entry")


def throughput(name: str, sides: Sequence[Side], options: argparse.Namespace) -> Answer:
    """Print a set's speeds; the texts per second of each side in each round."""
    rows = min(options.rows or SETS[name], SETS[name])
    texts = texts_of(name, rows * options.rounds)
    files = [
        write(texts[turn * rows : (turn + 1) * rows], options.files / f"{name}-{turn}.json")
        for turn in range(options.rounds)
    ]
    lengths = [min(len(encoding), options.longest) for encoding in tokenizer().encode_many(texts)]
    tokens = [sum(lengths[first : first + rows]) for first in range(0, len(texts), rows)]
    batch, answers = rounds_of(name, sides, files, options)
    seconds = {side: [answer["seconds"] for answer in rounds] for side, rounds in answers.items()}
    peak = {side: max(answer["peak"] for answer in rounds) for side, rounds in answers.items()}
    cosines = cosines_of(name, list(seconds), options.files)
    print(
        f"\n{name}: {rows:,} texts per round, {statistics.mean(tokens):,.0f} tokens (median "
        f"{statistics.median(lengths):.0f}, longest {max(lengths)}; truncated to {options.longest})"
    )
    print(f"{'':30} {'':5} {'':8} {'':15} {'':9} {'ours is':>8}  {'cosine,':8} {'':8} {'peak,':>6}")
    columns = f"{'batch':>5} {'texts/s':>8} {'spread':>15} {'tokens/s':>9} {'faster':>8}  {'lowest':8} {'mean':8}"
    print(f"{'side':30} {columns} {'MB':>6}")
    our_seconds = seconds[sides[0].name]
    for side, times in seconds.items():
        speeds = [rows / one for one in times]
        token_speed = statistics.median(number / one for number, one in zip(tokens, times, strict=True))
        ratio = statistics.median(theirs / ours for theirs, ours in zip(times, our_seconds, strict=True))
        lowest, mean = cosines[side]
        print(
            f"{side:30} {batch[side] or '':>5} {statistics.median(speeds):8,.1f} "
            f"{f'{min(speeds):,.0f}-{max(speeds):,.0f}':>15} {token_speed:9,.0f} {ratio:7.2f}x  "
            f"{lowest:.6f} {mean:.6f} {peak[side]:6,.0f}",
            flush=True,
        )
    return {side: [round(rows / one, 1) for one in times] for side, times in seconds.items()}


def rounds_of(
    name: str, sides: Sequence[Side], files: Sequence[str], options: argparse.Namespace
) -> tuple[dict[str, int], dict[str, list[Answer]]]:
    """Each side's batch size, and its answer for each file. Saves the vectors of the first file in the same folder."""
    answers: dict[str, list[Answer]] = {side.name: [] for side in sides}
    with ExitStack() as stack:
        workers = {side.name: stack.enter_context(closing(Worker(side))) for side in sides}
        batch = {side: worker(ask="tune", texts=files[-1])["batch"] for side, worker in workers.items()}
        for turn, file in enumerate(files):
            for side in order(list(workers), turn):
                save = str(options.files / f"{name} {side}.npy") if turn == 0 else ""
                answers[side].append(workers[side](ask="embed", texts=file, batch=batch[side], save=save))
    return batch, answers


def cosines_of(name: str, sides: Sequence[str], files: Path) -> dict[str, tuple[float, float]]:
    """Lowest and mean cosine of each side's vectors to the reference's (to our float32 vectors if it is absent)."""
    import numpy as np

    vectors = {side: np.load(files / f"{name} {side}.npy") for side in sides}
    vectors = {side: rows / np.linalg.norm(rows, axis=1, keepdims=True) for side, rows in vectors.items()}
    reference = next((side for side in (REFERENCE, "ours float32") if side in sides), None)
    if reference is None:
        return dict.fromkeys(sides, (float("nan"), float("nan")))
    cosines = {side: (rows * vectors[reference]).sum(1) for side, rows in vectors.items()}
    return {side: (float(values.min()), float(values.mean())) for side, values in cosines.items()}


def latency(sides: Sequence[Side], options: argparse.Namespace) -> Answer:
    """Print the latency of one text; for each length and side the median milliseconds of each round."""
    medians: Answer = {}
    print(f"\nlatency of one text, milliseconds, {options.rounds} x {options.calls} calls; spread: the rounds' medians")
    print(f"{'side':30} {'tokens':>6} {'p50':>8} {'p95':>8} {'p99':>8} {'spread':>14} {'ours takes':>11}")
    with ExitStack() as stack:
        workers = {side.name: stack.enter_context(closing(Worker(side))) for side in sides}
        for tokens in LATENCIES:
            texts = texts_of_length(tokens, options.calls * options.rounds)
            seconds: dict[str, list[list[float]]] = {side: [] for side in workers}
            for turn in range(options.rounds):
                part = texts[turn * options.calls : (turn + 1) * options.calls]
                file = write(part, options.files / f"latency-{tokens}-{turn}.json")
                for side in order(list(workers), turn):
                    seconds[side].append(workers[side](ask="one by one", texts=file)["seconds"])
            print_latency(tokens, seconds)
            for side, rounds in seconds.items():
                medians[f"{tokens} tokens, {side}"] = [round(1e3 * statistics.median(calls), 3) for calls in rounds]
    return medians


def print_latency(tokens: int, seconds: dict[str, list[list[float]]]) -> None:
    our_medians = [statistics.median(calls) for calls in next(iter(seconds.values()))]
    for side, rounds in seconds.items():
        medians = [statistics.median(calls) for calls in rounds]
        cuts = statistics.quantiles([one * 1e3 for calls in rounds for one in calls], n=100, method="inclusive")
        share = statistics.median(ours / theirs for ours, theirs in zip(our_medians, medians, strict=True))
        spread = f"{min(medians) * 1e3:.2f}-{max(medians) * 1e3:.2f}"
        print(
            f"{side:30} {tokens:6} {cuts[49]:8.2f} {cuts[94]:8.2f} {cuts[98]:8.2f} {spread:>14} {share:10.2f}x",
            flush=True,
        )


def start(sides: Sequence[Side], options: argparse.Namespace) -> Answer:
    """From the start of a process to its first vector, with its files in the file cache; the seconds of each round."""
    answers: dict[str, list[tuple[float, Answer]]] = {side.name: [] for side in sides}
    for turn in range(options.rounds):
        for side in order(sides, turn):
            answers[side.name].append(started(side))
    print("\nprocess start to first vector; memory in MB: resident at that time, and peak until then")
    print(f"{'side':30} {'seconds':>8} {'spread':>13} {'resident':>9} {'peak':>7}")
    for name, runs in answers.items():
        seconds = [one for one, _ in runs]
        resident, peak = (statistics.median(answer[key] for _, answer in runs) for key in ("resident", "peak"))
        print(
            f"{name:30} {statistics.median(seconds):8.2f} {f'{min(seconds):.2f}-{max(seconds):.2f}':>13} "
            f"{resident:9,.0f} {peak:7,.0f}",
            flush=True,
        )
    return {name: [round(one, 3) for one, _ in runs] for name, runs in answers.items()}


def order(sides: Sequence[Entry], turn: int) -> list[Entry]:
    """The sides, rotated so that another side is first in each round."""
    first = turn % len(sides)
    return [*sides[first:], *sides[:first]]


def write(texts: Sequence[str], file: Path) -> str:
    file.write_text(json.dumps(texts), encoding="utf-8")
    return str(file)


def all_sides(device: str) -> list[str]:
    from benchmarks.speed.peers import PEERS

    return [*OURS, *(name for name, peer in PEERS.items() if "vectors" in peer.works and device in peer.devices)]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    measures = [*SETS, "latency", "start"]
    parser.add_argument("--only", nargs="+", default=measures, choices=measures)
    parser.add_argument("--sides", nargs="+", help="only these sides; all are compared with the first")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--rows", type=int, help="maximum number of texts per set")
    parser.add_argument("--calls", type=int, help="single texts per round, for latency")
    parser.add_argument("--longest", type=int, default=256, help="maximum tokens per text; longer texts are truncated")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--int8", default="", help="output directory of bothways quantize")
    parser.add_argument("--files", type=Path, help="directory that keeps converted models for the next run")
    parser.add_argument("--quick", action="store_true", help="2 rounds of 200 texts and 20 calls")
    parser.add_argument("--keep", metavar="NAME", help="write the figures to docs/measurements/NAME.json")
    options = parser.parse_args()
    options.rounds = options.rounds or (2 if options.quick else 5)
    options.rows = options.rows or (200 if options.quick else None)
    options.calls = options.calls or (20 if options.quick else 100)
    return options


def main() -> None:
    options = parse()
    with tempfile.TemporaryDirectory() as scratch:
        options.files = options.files or Path(scratch)
        options.files.mkdir(parents=True, exist_ok=True)
        template = Side("", str(options.files), options.int8, options.longest, options.threads, options.device)
        sides = usable(options.sides or all_sides(options.device), template)
        print(f"{options.threads} threads, {options.device}; medians of {options.rounds}", flush=True)
        measures: dict[str, Callable[[Sequence[Side], argparse.Namespace], Answer]] = {
            **{name: partial(throughput, name) for name in SETS}, "latency": latency, "start": start,
        }  # fmt: skip
        figures = {name: measures[name](sides, options) for name in options.only}
    if options.keep:
        measurements.write(
            options.keep,
            {},
            model="all-MiniLM-L6-v2",
            measures=["bothways/core", "bothways/inference/backends", "bothways/text/tokenizer"],
            figures=figures,
        )


if __name__ == "__main__":
    main()
