"""Pre-training over candidates beside pre-training over all words: held-out perplexity after equal minutes.

    python -m benchmarks.candidates -o DIR [--minutes 6] [--candidates-minutes 5.4] [--seeds 3] [--steps]

Size mini by default, with a vocabulary of 30,522 entries that is learned from the articles before both sides start. The
two sides of a seed run side by side as two processes of one thread each. Prints perplexity and tokens a second of each
run, and their ratios with the 95 % interval over seeds. A run whose directory is already in DIR is not repeated. The
number of steps is chosen from the time of the first ones, so other programs must not run meanwhile; where each process
has one core for training and for building batches, that time is too low, and more so over candidates. Look at the
minutes, and make them equal by --candidates-minutes.

--steps compares the time of single steps instead: in one process, alternating, over the same texts. Data: Wikipedia
articles of $BOTHWAYS_DATA (default: ../shared/data).
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch

import bothways
from benchmarks.rows import processor
from bothways.measure.metrics.intervals import T
from bothways.model.losses import forward_losses
from bothways.settings import Pretrain
from bothways.text.tokenizer.tokenizer import Tokenizer
from bothways.training.distributed import SINGLE_PROCESS
from bothways.training.pretraining import recipes
from bothways.training.pretraining.pretrain import build_steps
from bothways.training.pretraining.setup import PretrainingSetup, build_setup, open_text
from bothways.training.pretraining.text_data import PretrainingData, read_data
from bothways.training.run_checkpoints import TrainingState
from bothways.training.step import StepQueue
from bothways.training.trainer import Trainer

WIKIPEDIA = Path(os.environ.get("BOTHWAYS_DATA", "../shared/data")) / "wikipedia-2015-en"
ARTICLES = 2000  # some 4 million words: more than a run reads
ENTRIES = 30_522
SIDES = ("all words", "candidates")
PAIRS = 41  # of steps
WARM_UP = 3


def pretraining(directory: Path, side: str, seed: int, minutes: float) -> Pretrain:
    """The settings of a run: all by default but its text and length."""
    return Pretrain(
        corpus=(directory / "articles.parquet",),
        heldout=tuple(sorted(WIKIPEDIA.glob("validation*.parquet"))),
        tokenizer=directory / "vocabulary",
        token_store=directory / "store",
        model="mini",
        minutes=minutes,
        heldout_examples=1024,
        seed=seed,
        out=directory / f"{side.replace(' ', '-')}-{minutes:g}-{seed}",
    )


def prepare(directory: Path, settings: Pretrain) -> PretrainingData:
    """Articles, vocabulary and token store, so that both sides find them."""
    articles = directory / "articles.parquet"
    if not articles.exists():
        source = min(WIKIPEDIA.glob("train-*.parquet"))
        pq.write_table(pq.read_table(source, columns=["text"]).slice(0, ARTICLES), articles)

    vocabulary = directory / "vocabulary"
    if not vocabulary.exists():
        texts = pq.read_table(articles)["text"].to_pylist()
        Tokenizer.learn(texts, ENTRIES, lowercase=True).save(vocabulary)
    return read_data(open_text(settings), Tokenizer.load(vocabulary))


# --- equal minutes ---------------------------------------------------------------------------------------------------


def compare_minutes(options: argparse.Namespace) -> None:
    prepare(options.out, pretraining(options.out, SIDES[0], 0, options.minutes))
    print(f"{'seed':6}{'side':14}{'perplexity':>10}{'tokens':>12}{'minutes':>9}{'tokens/s':>10}")
    perplexities: dict[str, list[float]] = {side: [] for side in SIDES}
    speeds: dict[str, list[float]] = {side: [] for side in SIDES}
    for seed in range(options.seeds):
        train_both(options, seed)
        for side in SIDES:
            directory = pretraining(options.out, side, seed, minutes_of(options, side)).out
            notes: dict[str, Any] = json.loads((directory / "bothways.json").read_text(encoding="utf-8"))
            perplexity = notes["heldout"]["perplexity"]
            cost = notes["cost"]
            speed = cost["tokens"] / cost["minutes"] / 60
            perplexities[side].append(perplexity)
            speeds[side].append(speed)
            figures = f"{perplexity:10.1f}{cost['tokens']:12,}{cost['minutes']:9.2f}{speed:10,.0f}"
            print(f"{seed:<6}{side:14}{figures}", flush=True)

    print(f"perplexity, candidates / all words: {ratio(perplexities)}")
    print(f"tokens a second, candidates / all words: {ratio(speeds)}")


def train_both(options: argparse.Namespace, seed: int) -> None:
    """Run both sides of a seed side by side."""
    running = []
    for side in SIDES:
        minutes = minutes_of(options, side)
        settings = pretraining(options.out, side, seed, minutes)
        if (settings.out / "model").exists():
            continue
        command = [sys.executable, "-m", "benchmarks.candidates", "-o", str(options.out), "--side", side]
        command += ["--seed", str(seed), "--minutes", str(minutes)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with open(f"{settings.out}.log", "w", encoding="utf-8") as log:
            running.append(subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT))

    codes = [process.wait() for process in running]
    if any(codes):
        raise SystemExit(f"seed {seed}: exit codes {codes}; {options.out} has the logs")


def minutes_of(options: argparse.Namespace, side: str) -> float:
    """The minutes that a side is asked for."""
    minutes: float = options.minutes
    return options.candidates_minutes or minutes if side == SIDES[1] else minutes


def train_side(options: argparse.Namespace) -> None:
    """One run, in a process of its own."""
    torch.set_num_threads(1)
    if options.side == SIDES[0]:
        recipes.LEAST_SAVED = math.inf
    bothways.train(pretraining(options.out, options.side, options.seed, options.minutes))


def ratio(values: dict[str, list[float]]) -> str:
    """The geometric mean of the ratios of the second side to the first, with the t interval of their logarithms."""
    logs = [math.log(b / a) for a, b in zip(*values.values(), strict=True)]
    mean = statistics.fmean(logs)
    if len(logs) < 2:
        return f"{math.exp(mean):.3f} (one seed)"
    margin = T[len(logs) - 2] * statistics.stdev(logs) / math.sqrt(len(logs))
    interval = f"{math.exp(mean - margin):.3f} to {math.exp(mean + margin):.3f}"
    return f"{math.exp(mean):.3f} (95 % interval {interval}, {len(logs)} seeds)"


# --- single steps ----------------------------------------------------------------------------------------------------


def compare_steps(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    settings = recipes.resolve_settings(pretraining(options.out, SIDES[0], 0, options.minutes), None)
    data = prepare(options.out, settings)
    setup = build_setup(settings, None, data, torch.device("cpu"))
    sides = {
        "all words": stepper(replace(setup, candidates=None), data),
        "candidates": stepper(setup, data),
    }

    times: dict[str, list[float]] = {side: [] for side in sides}
    for number in range(WARM_UP + PAIRS):
        # Each comes first as often as second.
        order = SIDES if number % 2 else SIDES[::-1]
        for side in order:
            began = time.perf_counter()
            sides[side]()
            times[side].append(time.perf_counter() - began)

    for side, seconds in times.items():
        print(f"{side:12}{1000 * statistics.median(seconds[WARM_UP:]):8.0f} ms a step")
    print(f"times as fast over candidates: {quartiles(times)}; {processor()}, {setup.options.dtype}, {PAIRS} pairs")


def stepper(setup: PretrainingSetup, data: PretrainingData) -> Callable[[], None]:
    """A function that builds and trains the next step of a copy of the model."""
    objective = setup.objective
    options = setup.options
    trainer = Trainer(
        deepcopy(setup.module),
        forward_losses(objective),
        objective.counts,
        options=options,
        processes=SINGLE_PROCESS,
    )
    batches = build_steps(setup, data, options, SINGLE_PROCESS)(0)
    state = TrainingState()
    queue = StepQueue(trainer, state.scale)

    def step() -> None:
        nonlocal state
        queue.add(state, next(batches))
        state, _, _ = queue.read(state)

    return step


def quartiles(times: Mapping[str, Sequence[float]]) -> str:
    """Of the ratios of the times of the two sides."""
    before, now = times.values()
    ratios = [a / b for a, b in zip(before[WARM_UP:], now[WARM_UP:], strict=True)]
    low, median, high = statistics.quantiles(ratios, n=4)
    return f"{median:.2f} (quartiles {low:.2f} to {high:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=6.0)
    parser.add_argument("--candidates-minutes", type=float, help="of the side with candidates, if others")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", action="store_true", help="compare single steps")
    parser.add_argument("--side", choices=SIDES, help="run one side alone")
    parser.add_argument("--seed", type=int, default=0, help="of --side")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    if options.side:
        train_side(options)
    elif options.steps:
        compare_steps(options)
    else:
        compare_minutes(options)


if __name__ == "__main__":
    main()
