"""Serving texts over HTTP: speed and latency against FastAPI servers, load, overload, memory, start.

    python -m benchmarks.serving [MODEL] [--out DIR] [--seconds 8] [--rounds 3]
    python -m benchmarks.serving --parts load overload --overload 60
    python -m benchmarks.serving --parts closed --dtypes float32 --kinds offline ours batched

Every request has one text. Servers and the load generator (benchmarks/load_generator.py) are processes on this
machine; they share its cores, so that all speeds include the cost of the generator. Peers are FastAPI servers with
sentence-transformers (benchmarks/serving_peers.py).

closed: 32 clients, each of which sends its next request when the last one is answered; short lines and paragraphs. The
sides take turns, each round with new processes and two seconds of warm-up. Figures are medians over rounds, with the
lowest and highest; ratios are within a round.
many: four clients with 64 texts a request, beside embedding without a server.
load: requests at random times, from 10 % to 200 % of what 32 clients reached just before.
overload: ten times that. Every request must be answered with status 200 or 429.
memory: resident memory of the server and its processes before and after many requests.
start: from the start of the process to the first answer of /health, with the packaged model.

Writes serving.md, serving.json and serving.png. Linux only. Data: $BOTHWAYS_DATA (default: ../shared/data).
"""

import argparse
import json
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch

from benchmarks import measurements, serving_report
from benchmarks.inference import order
from benchmarks.inference_texts import minilm, texts_of, tokenizer
from benchmarks.load_generator import Load
from benchmarks.serving_processes import Answer, Server, Side, embed_offline, send
from bothways.base.device import has_fast_bf16, processor_name
from bothways.settings import Serve

PARTS = ("closed", "many", "load", "overload", "memory", "start")
KINDS = ("offline", "ours", "torch", "single", "batched")
CLIENTS = 32
MANY = (4, 64)  # clients, texts of a request
WARM_UP = 2.0  # seconds
SAMPLES = 4  # vectors to compare
TOLERANCES = {"bfloat16": 1e-2, "float32": 1e-5}
SHARES = (0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.25, 1.5, 2.0)  # of the capacity
LOAD_SECONDS = 6.0
OVERLOAD = 10.0  # times the capacity
WARM_UP_REQUESTS = 5000
SETS = {"short": (8, 20, 2000, 20_000), "paragraphs": (100, 150, 500, 10_000)}  # least, most tokens, texts, from


@dataclass(frozen=True)
class Texts:
    """A set of texts in a JSON file. tokens: mean per text, special tokens included."""

    name: str
    file: str
    number: int
    tokens: float


def write_texts(name: str, directory: Path) -> Texts:
    least, most, number, candidates = SETS[name]
    texts = texts_of(name, candidates)
    sizes = list(map(len, tokenizer().encode_many(texts)))
    chosen = [(text, size) for text, size in zip(texts, sizes, strict=True) if least <= size <= most][:number]
    file = directory / f"{name}.json"
    file.write_text(json.dumps([text for text, _ in chosen]), encoding="utf-8")
    return Texts(name, str(file), len(chosen), fmean(size for _, size in chosen))


# --- closed loop -----------------------------------------------------------------------------------------------------


def closed(sides: Sequence[Side], sets: Sequence[Texts], options: argparse.Namespace) -> Answer:
    """{set: {side: rounds}} and what follows from them."""
    rounds: dict[str, dict[str, list[Answer]]] = {one.name: {side.name: [] for side in sides} for one in sets}
    for turn in range(options.rounds):
        for side in order(sides, turn):
            for one, answer in zip(sets, closed_round(side, sets, options.seconds), strict=True):
                rounds[one.name][side.name].append(answer)
                print(f"round {turn + 1}, {one.name}, {side.name}: {answer['per_second']:,.1f} texts/s", flush=True)
    return {name: summaries(sides, by_side) for name, by_side in rounds.items()}


def closed_round(side: Side, sets: Sequence[Texts], seconds: float) -> list[Answer]:
    if side.kind == "offline":
        return embed_offline(side, [one.file for one in sets], seconds=seconds, samples=SAMPLES)
    with Server(side) as server:
        return [closed_loop(server, one, seconds, samples=SAMPLES) for one in sets]


def closed_loop(
    server: Server, texts: Texts, seconds: float, *, clients: int = CLIENTS, samples: int = 0
) -> Answer:  # fmt: skip
    answer = send(Load(server.port, texts.file, clients=clients, warm_up=WARM_UP, seconds=seconds, samples=samples))
    if set(answer["statuses"]) != {"200"}:
        raise RuntimeError(f"a closed loop had other answers than status 200: {answer['statuses']}")
    return answer


def summaries(sides: Sequence[Side], rounds: dict[str, list[Answer]]) -> Answer:
    """A row for each side, with ratios to the sides of the same number format."""
    return {side.name: summary(side, sides, rounds) for side in sides}


def summary(side: Side, sides: Sequence[Side], rounds: dict[str, list[Answer]]) -> Answer:
    own = rounds[side.name]
    row: Answer = {
        key: spread([answer[key] for answer in own]) for key in ("per_second", "p50", "p99") if key in own[0]
    }
    for other in (other for other in sides if other.dtype == side.dtype and other != side):
        pairs = list(zip(own, rounds[other.name], strict=True))
        if other.kind == "offline":
            row["of_offline"] = spread([one["per_second"] / without["per_second"] for one, without in pairs])
            row["difference"] = max(difference(one, without) for one, without in pairs)
            check_difference(side, row["difference"])
        elif other.kind == "ours" and side.kind != "offline":
            row["ours_is_faster"] = spread([ours["per_second"] / one["per_second"] for one, ours in pairs])
    return row


def spread(values: Sequence[float]) -> Answer:
    return {"median": median(values), "lowest": min(values), "highest": max(values)}


def difference(answer: Answer, expected: Answer) -> float:
    """The largest difference of a number in the vectors of the same texts."""
    vectors, others = answer["samples"], expected["samples"]
    if set(vectors) != set(others):
        raise RuntimeError(f"vectors of texts {sorted(set(others) - set(vectors))} are missing")
    return max(
        abs(one - other) for index in others for one, other in zip(vectors[index], others[index], strict=True)
    )  # fmt: skip


def check_difference(side: Side, largest: float) -> None:
    if not largest <= TOLERANCES[side.dtype]:
        raise RuntimeError(f"{side.name}: vectors differ from those without a server by up to {largest:.2g}")


def many(side: Side, offline: Side, sets: Sequence[Texts], options: argparse.Namespace) -> Answer:
    """{set: rounds}, in texts per second."""
    clients, batch = MANY
    rounds: dict[str, list[Answer]] = {one.name: [] for one in sets}
    for _ in range(options.rounds):
        offline_answers = embed_offline(offline, [one.file for one in sets], seconds=options.seconds, samples=0)
        with Server(side) as server:
            for one, answer in zip(sets, offline_answers, strict=True):
                load = Load(
                    server.port, one.file, batch=batch, clients=clients, warm_up=WARM_UP, seconds=options.seconds
                )  # fmt: skip
                rounds[one.name].append({"offline": answer["per_second"], "ours": batch * send(load)["per_second"]})
    return {
        name: {
            **{key: spread([row[key] for row in rows]) for key in ("offline", "ours")},
            "of_offline": spread([row["ours"] / row["offline"] for row in rows]),
        }
        for name, rows in rounds.items()
    }


# --- open loop -------------------------------------------------------------------------------------------------------


def load(side: Side, texts: Texts, options: argparse.Namespace) -> Answer:
    points = []
    with Server(side) as server:
        capacity = closed_loop(server, texts, options.seconds)["per_second"]
        for seed, share in enumerate(SHARES):
            rate = share * capacity
            answer = send(Load(server.port, texts.file, rate=rate, seconds=LOAD_SECONDS, seed=seed))
            points.append({"share": share, "offered": rate, **answer})
            print(f"{share:.0%} of {capacity:,.0f}/s: {answer['per_second']:,.1f} answered/s", flush=True)
    return {"side": side.name, "capacity": capacity, "points": points}


def overload(side: Side, texts: Texts, options: argparse.Namespace) -> Answer:
    """One load of ten times the capacity. Seconds of full queues at the speed of the closed loop."""
    defaults = Serve()
    with Server(side) as server:
        capacity = closed_loop(server, texts, options.seconds)["per_second"]
        alone = closed_loop(server, texts, 1.0, clients=1)
        offered = Load(
            server.port, texts.file, rate=OVERLOAD * capacity, seconds=options.overload, normal=2 * alone["p99"],
        )  # fmt: skip
        answer = send(offered)
    if not {*answer["statuses"]} <= {"200", "429"} or answer["unanswered"]:
        raise RuntimeError(f"statuses {answer['statuses']}, {answer['unanswered']} requests without an answer")
    return {
        "side": side.name, "capacity": capacity, "offered": offered.rate, "normal": offered.normal, **answer,
        "full_queue": 1000 * defaults.queue_tokens / (capacity * texts.tokens),
        "most_requests": 1000 * defaults.max_requests / capacity,
    }  # fmt: skip


# --- memory and start ------------------------------------------------------------------------------------------------


def memory(side: Side, texts: Texts, options: argparse.Namespace) -> Answer:
    """Resident memory in MB when ready, after a warm-up, and after all requests."""
    with Server(side) as server:
        send(Load(server.port, texts.file, requests=WARM_UP_REQUESTS))
        before = server.memory()
        answer = send(Load(server.port, texts.file, requests=options.requests))
        after = server.memory()
    return {
        "side": side.name, "requests": options.requests, "ready": server.resident, "before": before, "after": after,
        "growth": after / before - 1, "statuses": answer["statuses"],
    }  # fmt: skip


def start(threads: int, options: argparse.Namespace) -> Answer:
    seconds, resident = [], []
    for _ in range(options.rounds):
        with Server(Side("ours", "auto", "", threads)) as server:
            seconds.append(server.seconds_to_ready)
            resident.append(server.resident)
    return {"seconds": spread(seconds), "resident": spread(resident)}


# --- all -------------------------------------------------------------------------------------------------------------


def measure(options: argparse.Namespace, directory: Path) -> Answer:
    sides = [
        Side(kind, dtype, str(options.model), options.threads) for dtype in options.dtypes for kind in options.kinds
    ]
    ours = Side("ours", options.dtypes[0], str(options.model), options.threads)
    short, *others = [write_texts(name, directory) for name in SETS]
    results: Answer = {"machine": machine(options), "sets": {one.name: vars(one) for one in (short, *others)}}
    measures = {
        "closed": lambda: closed(sides, [short, *others], options),
        "many": lambda: many(ours, replace(ours, kind="offline"), [short, *others], options),
        "load": lambda: load(ours, short, options),
        "overload": lambda: overload(ours, short, options),
        "memory": lambda: memory(ours, short, options),
        "start": lambda: start(options.threads, options),
    }
    for part in options.parts:
        results[part] = measures[part]()
        print(f"\n{serving_report.PARTS[part](results)}", flush=True)
        write(results, options.out)  # what is measured is kept if a later part fails
    return results


def machine(options: argparse.Namespace) -> dict[str, Any]:
    return {"processor": processor_name(), "threads": options.threads, "torch": torch.__version__}


def write(results: Answer, directory: Path) -> None:
    (directory / "serving.json").write_text(json.dumps(results, indent=1), encoding="utf-8")
    (directory / "serving.md").write_text(serving_report.markdown(results), encoding="utf-8")
    if "load" in results:
        serving_report.draw(results["load"], directory / "serving.png")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    dtypes = [dtype for dtype in TOLERANCES if dtype != "bfloat16" or has_fast_bf16(torch.device("cpu"))]
    parser.add_argument("model", nargs="?", type=Path, default=minilm(), help="default: all-MiniLM-L6-v2")
    parser.add_argument("--out", type=Path, default=Path("runs/serving"))
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS, help="sides of the closed loop")
    parser.add_argument(
        "--dtypes", nargs="+", default=dtypes, choices=[*TOLERANCES], help="the first is that of the other parts"
    )
    parser.add_argument("--seconds", type=float, default=8.0, help="of a closed loop")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--overload", type=float, default=60.0, help="seconds of overload")
    parser.add_argument("--requests", type=int, default=100_000, help="requests between two looks at the memory")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--keep", metavar="NAME", help="write the figures to docs/measurements/NAME.json")
    return parser.parse_args()


def main() -> None:
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the servers too
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        figures = measure(options, Path(scratch))
    if options.keep:
        measures = ["bothways/serving", "bothways/core", "bothways/inference"]
        measurements.write(options.keep, {}, model=options.model.name, measures=measures, figures=figures)


if __name__ == "__main__":
    main()
