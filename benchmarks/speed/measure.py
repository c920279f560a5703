"""Benchmark of a model against other libraries on this machine, by batch size and length.

The benchmark times the method of the model's task, from texts to results, including tokenization. Other libraries
("peers") are timed if they compute the same outputs (vectors, class scores). All systems take turns, so that other load
affects them equally.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import torch

from benchmarks.speed.options import Options
from benchmarks.speed.peers import BATCH_SIZES, PEERS, Calls, PeerConfig, best_batch_size
from benchmarks.speed.result import Measured, Timing
from benchmarks.speed.workload import Method, Workload, longest, task_method, workloads
from bothways.base.device import processor_name
from bothways.base.errors import InputError, format_count
from bothways.inference.load import load
from bothways.inference.predictor import Predictor
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.changes.cut import fill_heads
from bothways.model.checkpoint.changes.new_head import encoder_only
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.checkpoint.directory import Directory
from bothways.model.checkpoint.formats.hugging_face import HUGGING_FACE
from bothways.model.checkpoint.model_files import detect
from bothways.model.int8 import dequantize

ENCODER_ALONE = "run on the encoder of this model alone, saved with float weights: pooled, without the head"
SECONDS = 0.1  # minimum duration of a measurement


def run(options: Options) -> Measured:
    """Run the benchmark. Draws the chart if `out` is set and there are several systems to compare."""
    check(options)
    options = replace(options, lengths=ascending(options.lengths), batches=ascending(options.batches))
    model = load(options.model, dtype=options.dtype, device=options.device, window=options.window)
    method = task_method(model)
    all_workloads = workloads(options, model, method)
    with tempfile.TemporaryDirectory() as files:
        sides, setups, left_out = start_systems(options, model, method, Path(files))
        timings: list[Timing] = []
        for workload in with_progress(all_workloads):
            timings += time_workload(workload, sides, left_out, options.repeats, model.device.partition(":")[0])
    timings = [timing for timing in timings if timing.side in sides]
    setups = {name: setup for name, setup in setups.items() if name in sides}
    limit = longest(model)
    too_long = {f"{size} tokens": f"the window has {limit} (--window)" for size in options.lengths if size > limit}
    measured = Measured(collect_facts(options, model, method), setups, {**too_long, **left_out}, timings)
    if options.out and measured.has_comparison:
        from benchmarks.speed.picture import draw

        draw(measured, options.out)
    return measured


def check(options: Options) -> None:
    """InputError if the chart cannot be written or there is nothing to measure."""
    if options.out and options.out.suffix != ".png":
        raise InputError(f"{options.out}: the chart is a PNG; name a file that ends in .png")
    if options.out and not options.out.parent.is_dir():
        raise InputError(f"{options.out.parent}: no such directory; make it, or name a file elsewhere")
    for name, values in (("lengths", options.lengths), ("batches", options.batches)):
        if not values or min(values) < 1:
            raise InputError(f"{name} ({' '.join(map(str, values))}) must be one or more numbers of at least 1")
    if options.repeats < 1:
        raise InputError(f"repeats ({options.repeats}) must be at least 1")


def ascending(numbers: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(set(numbers)))


def start_systems(
    options: Options, model: Predictor, method: Method, files: Path
) -> tuple[dict[str, Calls], dict[str, str], dict[str, str]]:
    """The systems to run, their setups, and why others are left out, each by name; this library comes first."""
    ours = f"bothways {model.dtype}"
    sides: dict[str, Calls] = {ours: lambda texts, _: method.run(texts)}
    setups, left_out = {ours: f"model.{method.name}"}, {}
    source, work, note = Directory(options.model).path, method.peers, ""
    if options.peers:
        source, is_encoder = files_for_others(source, files / "for-others", method)
        if is_encoder:
            work, note = "vectors", f"; {ENCODER_ALONE}"
    if not options.peers or not work:
        return sides, setups, {} if method.peers else {"peers": f"none supports {method.name}"}
    config = PeerConfig(
        source,
        files,
        work,
        pooling=model.description.pooling or "mean",
        longest=longest(model),
        threads=torch.get_num_threads(),
        device=model.device,
    )
    for name, peer in PEERS.items():
        if config.work not in peer.works or model.device.partition(":")[0] not in peer.devices:
            continue
        if peer.missing:
            left_out[name] = f"not installed: {', '.join(peer.missing)}"
            continue
        try:
            sides[name] = peer.start(config)
            sides[name](["a text"], 1)
            setups[name] = peer.setup + note
        except Exception as error:  # a failing peer must not stop the others
            leave_out(name, error, sides, left_out)
    return sides, setups, left_out


def files_for_others(source: Path, target: Path, method: Method) -> tuple[Path, bool]:
    """A directory that other libraries load for this model, and whether it holds the encoder alone, with pooled
    vectors. If they cannot read the files in `source`, others are written to `target`."""
    weights = detect(Directory(source))
    if weights is HUGGING_FACE:
        return source, False
    loaded = checkpoint.load(source)
    other = read_by_others(loaded, weights.model_type)
    is_encoder = other is not loaded
    if (is_encoder and not method.alone) or loaded.model.config.direction != "both":
        return source, False
    if is_encoder:
        other = replace(other, pooling=loaded.pooling or "mean", normalized=True)
    checkpoint.save(other, target, HUGGING_FACE)
    return target, is_encoder


def read_by_others(loaded: Checkpoint, model_type: str) -> Checkpoint:
    """What other libraries can read of a model in the format of this name, to be saved anew."""
    match model_type:
        case "bothways-pruned":
            return fill_heads(loaded)
        case "bothways-int8":
            return encoder_only(replace(loaded, model=dequantize(loaded.model)))
        case "bothways-linear" | "bothways-mean-layer":
            return encoder_only(loaded)
    return loaded


def leave_out(name: str, error: Exception, sides: dict[str, Calls], left_out: dict[str, str]) -> None:
    sides.pop(name, None)
    left_out[name] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


# --- measurements -----------------------------------------------------------------------------------------------------


def time_workload(
    work: Workload, sides: dict[str, Calls], left_out: dict[str, str], repeats: int, device: str
) -> list[Timing]:
    """Time every system on one workload, peers at their best batch size. A peer that fails moves from `sides` to
    `left_out`."""
    candidates = BATCH_SIZES.get(device, BATCH_SIZES["cuda"])
    sizes = [size for size in candidates if size <= work.texts_per_call] or [work.texts_per_call]
    calls = {name: cycle(zip(work.calls, work.tokens, strict=True)) for name in sides}
    batch: dict[str, int] = {}
    measurements: dict[str, list[list[tuple[int, float]]]] = {name: [] for name in sides}
    for turn in range(repeats + 1):
        for name, side in [*sides.items()]:
            try:
                if turn == 0:
                    batch[name] = best_batch_size(side, work.calls[0], sizes if name in PEERS else sizes[:1])
                else:
                    measurements[name].append(measure_calls(side, batch[name], calls[name]))
            except Exception as error:  # out of memory, or an unsupported input
                if name not in PEERS:
                    raise
                leave_out(name, error, sides, left_out)
    return [timing(name, work, measurements[name]) for name in sides]


def measure_calls(side: Calls, batch: int, calls: Iterator[tuple[tuple[str, ...], int]]) -> list[tuple[int, float]]:
    """(tokens, seconds) of each call; makes calls until they have taken SECONDS, at least one."""
    results: list[tuple[int, float]] = []
    while sum(seconds for _, seconds in results) < SECONDS:
        texts, tokens = next(calls)
        start = time.perf_counter()
        side(texts, batch)
        results.append((tokens, time.perf_counter() - start))
    return results


def timing(name: str, work: Workload, measurements: list[list[tuple[int, float]]]) -> Timing:
    """The timing of these measurements, each a list of (tokens, seconds) per call."""
    seconds = [sum(duration for _, duration in calls) for calls in measurements]
    tokens = [sum(num_tokens for num_tokens, _ in calls) for calls in measurements]
    texts = [work.texts_per_call * len(calls) for calls in measurements]
    return Timing(
        side=name,
        work=work,
        text_rates=tuple(count / duration for count, duration in zip(texts, seconds, strict=True)),
        token_rates=tuple(count / duration for count, duration in zip(tokens, seconds, strict=True)),
        calls=tuple(duration for calls in measurements for _, duration in calls),
    )


def with_progress(all_workloads: list[Workload]) -> Iterator[Workload]:
    """The workloads, with a progress bar on a terminal."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    yield from track(all_workloads, "measuring", console=console, transient=True, disable=not console.is_terminal)


# --- facts -----------------------------------------------------------------------------------------------------------


def collect_facts(options: Options, model: Predictor, method: Method) -> dict[str, str | int]:
    path = options.model.resolve() if options.model.exists() else options.model
    config, name = model.module.config, "/".join(path.parts[-2:])
    return {
        "model": f"{name}, {format_count(config.num_hidden_layers, 'layer')} x {config.hidden_size}",
        "method": method.name,
        "device": model.device,
        "processor": f"{processor_name()}, {os.cpu_count()} cores",
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }
