"""The steps of `python -m tools.gpu`: each measures one thing and writes its figures as soon as it has them.

    python -m tools.gpu.steps STEP FILE [--small]

- machine: card, driver, versions; matrix products and memory bandwidth, the limits that others are compared with.
- correct: the tests marked gpu.
- numerics: vectors of the packaged model against float32 on the CPU, and alone against in a batch.
- pretraining: BERT-base beside transformers' model in its fastest setting, on the same batches, at 512 and 128 tokens.
- embedding: texts per second beside sentence-transformers, from texts, from ids, and of the model alone.
- feeding: tokens per second that the processor prepares, which the GPU must not exceed.

Text: the novels of the package. Speeds are medians of a few periods, with the lowest and highest.
"""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

import bothways
from benchmarks import pretrain
from benchmarks.speed.measure import files_for_others
from benchmarks.speed.peers import PeerConfig, best_batch_size, sentence_transformers
from benchmarks.speed.workload import task_method
from bothways.base.device import describe_hardware, measure_peak_flops, num_cores
from bothways.inference.predictor import Predictor
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.contents import Checkpoint
from bothways.model.checkpoint.directory import Directory
from bothways.model.config import SIZES
from bothways.model.families import FAMILIES
from bothways.model.model import Model, initialize
from bothways.text.batching import token_batches
from bothways.text.corpus.documents import sample
from bothways.text.token_windows import TokenWindows
from bothways.training.pretraining.objectives import PretrainingObjective
from bothways.training.progress import training_flops

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
PERIODS, SECONDS = 3, 1.5  # of a measurement
TEST_SECONDS, INTERRUPTED = 135, 2  # until the tests are interrupted; the exit status of pytest then
WORDS = (20, 80)  # of a short text: about 65 tokens
ROOT = Path(__file__).parent.parent.parent
Figures = dict[str, Any]


@dataclass
class Report:
    """The figures of a step, in a file after each change. small: a dry run."""

    file: Path
    small: bool
    figures: Figures = field(default_factory=dict)

    def add(self, **figures: Any) -> None:
        self.figures |= figures
        temporary = self.file.with_suffix(".new")
        temporary.write_text(json.dumps(self.figures), encoding="utf-8")
        temporary.replace(self.file)
        print(json.dumps(figures), flush=True)

    def attempt(self, name: str, measure: Callable[[], Any]) -> Any:
        """Measure and add, or add the reason why not: out of memory, or a library that is missing."""
        try:
            figures = measure()
        except Exception as error:  # what one system cannot do must not cost the figures of the others
            figures = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"}
        finally:
            free()
        self.add(**{name: figures})
        return figures


def free() -> None:
    if DEVICE.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def synchronize() -> None:
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def peak_gigabytes() -> float | None:
    return round(torch.cuda.max_memory_allocated() / 1e9, 2) if DEVICE.type == "cuda" else None


@contextmanager
def power() -> Iterator[Callable[[], float | None]]:
    """The mean power of the GPU within the block, in watts; None without nvidia-smi."""
    query = ["nvidia-smi", "--query-gpu=power.draw", "--format=csv,noheader,nounits", "--loop-ms=200", "--id=0"]
    try:
        process = subprocess.Popen(query, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    except FileNotFoundError:
        yield lambda: None
        return
    readings: list[float] = []
    yield lambda: round(sum(readings) / len(readings)) if readings else None
    process.terminate()
    lines = process.communicate()[0].split()
    readings += [float(line) for line in lines if line.replace(".", "").isdigit()]


def speed(run: Callable[[], int], report: Report) -> Figures:
    """Units per second of a function that returns how many it has done: a warm-up, then PERIODS of SECONDS each."""
    seconds, periods = (0.01, 1) if report.small else (SECONDS, PERIODS)
    run()
    rates: list[float] = []
    with power() as watts:
        for _ in range(periods):
            synchronize()
            start, done = time.perf_counter(), 0
            while time.perf_counter() - start < seconds:
                done += run()
            synchronize()
            rates.append(done / (time.perf_counter() - start))
    return {
        "rate": round(median(rates), 1),
        "lowest": round(min(rates), 1),
        "highest": round(max(rates), 1),
        "gigabytes": peak_gigabytes(),
        "watts": watts(),
    }


# --- machine ----------------------------------------------------------------------------------------------------------


def machine(report: Report) -> None:
    query = ["nvidia-smi", "--query-gpu=driver_version,power.limit", "--format=csv,noheader", "--id=0"]
    try:
        driver = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        driver = ""
    report.add(
        **describe_hardware(DEVICE), driver=driver, torch=torch.__version__, cuda=torch.version.cuda,
        python=platform.python_version(), cores=num_cores(), bothways=bothways.__version__,
    )  # fmt: skip
    if DEVICE.type == "cuda":
        facts = torch.cuda.get_device_properties(DEVICE)
        report.add(gigabytes=round(facts.total_memory / 1e9, 1), capability=f"{facts.major}.{facts.minor}")
    formats = (torch.bfloat16, torch.float16, torch.float32) if DEVICE.type == "cuda" else (torch.float32,)
    for dtype in formats:
        name = str(dtype).removeprefix("torch.")
        peak = measure_peak_flops(DEVICE, dtype, 0.01 if report.small else 1.0)
        report.add(**{f"teraflops_{name}": round(peak / 1e12, 2)})
    source = torch.empty((1 << 20) if report.small else (1 << 31), dtype=torch.uint8, device=DEVICE)
    target = torch.empty_like(source)
    copied = speed(lambda: target.copy_(source) is not None and 2 * len(source), report)
    report.add(copied_gigabytes_per_second=round(copied["rate"] / 1e9, 1))


# --- correct ----------------------------------------------------------------------------------------------------------


def correct(report: Report) -> None:
    """Run the tests marked gpu; a dry run takes a few of them, on the CPU."""
    file = report.file.with_suffix(".xml")
    chosen = (
        ["tests/gpu/test_families.py", "-k", "bert and float32"]
        if report.small
        else ["tests/gpu", "tests/model/test_layout.py"]
    )
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command += [f"--junitxml={file}", "--maxfail=40", "--durations=10", *chosen]
    environment = {**os.environ, "BOTHWAYS_GPU_TESTS": "cuda" if DEVICE.type == "cuda" else "cpu"}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    stop = threading.Timer(TEST_SECONDS, process.send_signal, [signal.SIGINT])  # pytest then reports what it has
    stop.start()
    output = process.communicate()[0].decode(errors="replace")
    stop.cancel()
    print(output[-6000:])
    if not file.exists():
        raise SystemExit(f"no test ran: {output.strip()[-200:]}")
    report.add(**count_tests(file))
    file.unlink()
    if process.returncode == INTERRUPTED:
        raise SystemExit(f"stopped after {TEST_SECONDS} s")


def count_tests(file: Path) -> Figures:
    """Passed, failed (with their names and messages) and skipped tests (by reason) of a JUnit file."""
    failures: list[str] = []
    skipped: dict[str, int] = {}
    passed = 0
    for case in ElementTree.parse(file).iter("testcase"):
        bad = [*case.iter("failure"), *case.iter("error")]
        if bad:
            name = f"{case.get('classname', '').removeprefix('tests.')}.{case.get('name')}"
            failures.append(f"{name}: {' '.join((bad[0].get('message') or '').split())[:160]}")
        elif (reason := next(case.iter("skipped"), None)) is not None:
            message = reason.get("message") or ""
            skipped[message] = skipped.get(message, 0) + 1
        else:
            passed += 1
    return {"passed": passed, "failed": len(failures), "failures": failures, "skipped": skipped}


# --- texts and models -------------------------------------------------------------------------------------------------


def short_texts(number: int) -> list[str]:
    """Different texts of WORDS words from the novels, cut at every fifth word."""
    words = [word for row in sample() for word in row["text"].split()]
    draw = np.random.default_rng(0)
    starts = draw.permutation(len(words) // 5 - WORDS[1])[:number] * 5
    sizes = draw.integers(*WORDS, len(starts))
    return [" ".join(words[start : start + size]) for start, size in zip(starts, sizes, strict=True)]


def save_random(folder: Path, layers: int, hidden: int) -> Path:
    """An encoder of this shape with random weights and the package's vocabulary."""
    sizes = {"num_hidden_layers": layers, "hidden_size": hidden, "intermediate_size": 4 * hidden}
    model = Model(FAMILIES["bert"].new_config(SIZES["base"]).replace(vocab_size=30522, **sizes))
    initialize(model, 0.02, torch.Generator().manual_seed(0))
    tokenizer = pretrain.packaged_tokenizer()
    checkpoint.save(Checkpoint(model, tokenizer, model_type="bert", pooling="mean", normalized=True), folder)
    return folder


# --- numerics ---------------------------------------------------------------------------------------------------------


def numerics(report: Report) -> None:
    texts = short_texts(16 if report.small else 512)
    exact = bothways.load(dtype="float32", device="cpu").embed(texts)
    formats = ("float32", "bfloat16", "float16") if DEVICE.type == "cuda" else ("float32",)
    for dtype in formats:
        model = bothways.load(dtype=dtype, device=str(DEVICE))
        vectors = model.embed(texts)
        alone = np.stack([model.embed(text) for text in texts[:64]])
        report.add(
            **{
                dtype: {
                    "lowest_cosine": round(float((vectors * exact).sum(1).min()), 7),
                    "alone_or_in_a_batch": float(np.abs(alone - vectors[:64]).max()),
                    "equal_alone_and_in_a_batch": float((alone == vectors[:64]).all(1).mean()),
                }
            }
        )
    if DEVICE.type == "cuda":
        report.attempt("attention", lambda: independent_attention(report))


def independent_attention(report: Report) -> Figures:
    """torch's attention for texts of any lengths, with one split and with as many as it chooses: is a text's result the
    same, bit for bit, in any batch, and what does that cost?"""
    from inspect import signature

    from torch.nn.attention.varlen import varlen_attn

    figures: Figures = {"arguments": [*signature(varlen_attn).parameters]}
    draw = torch.Generator(DEVICE).manual_seed(0)
    lengths = torch.tensor([33, 512, 7, 129, 512, 64, 300] * 16)
    q, k, v = torch.randn(3, int(lengths.sum()), 12, 64, generator=draw, device=DEVICE).bfloat16().unbind()
    for name, options in {"one split": {"num_splits": 1}, "as torch chooses": {}}.items():
        if not options.keys() <= {*figures["arguments"]}:
            continue

        def attend(first: int, last: int, options: Figures = options) -> torch.Tensor:
            begin, end = int(lengths[:first].sum()), int(lengths[:last].sum())
            starts = torch.nn.functional.pad(lengths[first:last].cumsum(0), (1, 0)).to(DEVICE, torch.int32)
            longest = int(lengths[first:last].max())
            part = (values[begin:end] for values in (q, k, v))
            attended = varlen_attn(*part, starts, starts, longest, longest, **options)
            assert isinstance(attended, torch.Tensor)
            return attended

        whole = attend(0, len(lengths))
        parts = torch.cat([attend(number, number + 1) for number in range(7)])
        figures[name] = {
            "equal_bits": bool(torch.equal(whole[: len(parts)], parts)),
            "per_second": speed(lambda: attend(0, len(lengths)) is not None and 1, report)["rate"],
        }
    return figures


# --- pretraining ------------------------------------------------------------------------------------------------------


def pretraining(report: Report) -> None:
    size, tokens = (
        ("tiny", 128) if report.small else ("base", 32_768)
    )  # transformers writes the scores of all words out
    dtype = torch.bfloat16 if DEVICE.type == "cuda" else torch.float32
    peak = measure_peak_flops(DEVICE, dtype, 0.01 if report.small else 1.0)
    report.add(torch=torch.__version__, size=size, batch_tokens=tokens, teraflops=round(peak / 1e12, 2))
    texts = [row["text"] for row in sample()]
    texts = [texts[0][:20_000], texts[1][:20_000]] if report.small else texts
    dropout = ("bothways, dropout 0.1", 0.1, pretrain.OURS)
    peer = pretrain.PEER if DEVICE.type == "cuda" else pretrain.PEER_EXACT
    sides = [("bothways", 0.0, pretrain.OURS), ("transformers", 0.0, peer)]
    sides += [] if report.small else [dropout]
    for length in (64,) if report.small else (128, 512):
        batches = [*islice(pretrain.masked_batches(texts, family="bert", length=length, batch_tokens=tokens), 6)]
        num_tokens = sum(batch.num_tokens for batch in batches)
        rows = PretrainingObjective().rows
        # We compute the last layer for the words that are read.
        work = {
            pretrain.OURS: sum(training_flops(shape(size), batch, rows(batch)) for batch in batches) / num_tokens,
            peer: sum(training_flops(shape(size), batch) for batch in batches) / num_tokens,
        }
        for name, rate, side in sides if length != 128 else sides[:2]:
            options = argparse.Namespace(
                family="bert", size=size, rate=rate, side=side, device=str(DEVICE), dtype=dtype
            )
            report.attempt(f"{name}, {length} tokens", lambda: train(options, batches, work[side] / peak, report))  # noqa: B023


def shape(size: str) -> Any:
    return FAMILIES["bert"].new_config(SIZES[size]).replace(vocab_size=30522)


def train(options: argparse.Namespace, batches: list[Any], share: float, report: Report) -> Figures:
    """Real tokens per second of training steps. share: of the peak, per token per second."""
    ours = options.side == pretrain.OURS
    step = pretrain.ours(options, batches)[0] if ours else pretrain.theirs(options, batches)
    done = 0

    def run() -> int:
        nonlocal done
        step(done)
        done += 1
        return int(batches[(done - 1) % len(batches)].num_tokens)

    run()
    figures = speed(run, report)
    figures["of_the_peak"] = round(figures["rate"] * share, 4)
    return figures | (profile(run) if DEVICE.type == "cuda" else {})


def is_wait(warning: warnings.WarningMessage) -> bool:
    return "called a synchronizing" in str(warning.message)


def profile(run: Callable[[], int], steps: int = 3) -> Figures:
    """Which share of the time of a few steps the GPU computes, how often the processor waits for it in a step, and the
    kernels that take most of it."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as recorded

    with recorded(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as trace:
        synchronize()
        start = time.perf_counter()
        for _ in range(steps):
            run()
        synchronize()
        seconds = time.perf_counter() - start
    on_device = [event for event in trace.key_averages() if event.device_type == torch.autograd.DeviceType.CUDA]
    kernels = sorted(on_device, key=lambda event: -event.self_device_time_total)
    busy = sum(event.self_device_time_total for event in kernels) / 1e6
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        run()
        torch.cuda.set_sync_debug_mode("default")
    return {
        "busy": round(busy / seconds, 3),
        "waits_in_a_step": sum(map(is_wait, found)),
        "waits_at": sorted(f"{Path(one.filename).name}:{one.lineno}" for one in found if is_wait(one)),
        "kernels": {event.key[:80]: round(event.self_device_time_total / 1e6 / busy, 3) for event in kernels[:8]},
    }


# --- embedding --------------------------------------------------------------------------------------------------------


def embedding(report: Report) -> None:
    texts = short_texts(300 if report.small else 40_000)
    shapes = {"6 x 384": (6, 384), "12 x 384": (12, 384), "12 x 768": (12, 768)}
    if report.small:
        shapes = {"1 x 48": (1, 48)}
    with tempfile.TemporaryDirectory() as folder:
        for name, (layers, hidden) in shapes.items():
            path = save_random(Path(folder) / name, layers, hidden)
            embed_beside(report, name, path, texts, Path(folder))


def embed_beside(report: Report, name: str, path: Path, texts: Sequence[str], folder: Path) -> None:
    """Texts per second of a model: ours from texts, from ids and of the model alone; sentence-transformers."""
    model = bothways.load(path, dtype="bfloat16" if DEVICE.type == "cuda" else "float32", device=str(DEVICE))
    windows, _ = model.encoder.token_windows(texts[:20_000], None, {})
    tokens = windows.lengths.mean()
    report.add(**{f"{name}: tokens per text": round(float(tokens), 1)})
    report.attempt(f"{name}: bothways, texts", lambda: speed(lambda: len(model.embed(texts)), report))
    report.attempt(f"{name}: bothways, ids", lambda: speed(lambda: from_ids(model, windows), report))
    report.attempt(f"{name}: bothways, model alone", lambda: model_alone(model, windows, report))
    source, _ = files_for_others(Directory(path).path, folder / f"{name} for others", task_method(model))
    config = PeerConfig(source, folder, "vectors", pooling="mean", longest=512, device=str(DEVICE))

    def peer() -> Figures:
        side = sentence_transformers(config, dtype="float16" if DEVICE.type == "cuda" else "float32")
        sizes = [32, 64] if report.small else [128, 256, 512, 1024]
        batch = best_batch_size(side, texts[: 64 if report.small else 2048], sizes)
        own = texts[: 100 if report.small else 4000]
        return {**speed(lambda: len(side(own, batch)), report), "batch": batch}

    report.attempt(f"{name}: sentence-transformers, texts", peer)


def from_ids(model: Predictor, windows: TokenWindows) -> int:
    return len(model.torch_encoder.pooled_texts(windows, "mean", {}))


def model_alone(model: Predictor, windows: TokenWindows, report: Report) -> Figures:
    """Batches that are on the GPU already: the best of a few sizes, with the share of the peak."""
    dtype = model.torch_encoder.torch_dtype
    peak = measure_peak_flops(DEVICE, dtype, 0.01 if report.small else 0.5)
    figures: Figures = {"rate": 0.0}
    for budget in (4096,) if report.small else (1 << 16, 1 << 18):
        longer_half = windows.lengths.argsort(kind="stable")[len(windows.lengths) // 2 :]
        number = max(1, budget // int(windows.lengths[longer_half[0]]))
        batch = windows.batch(longer_half[:number], DEVICE)

        @torch.inference_mode()
        def run(batch: Any = batch) -> int:
            model.module(batch)
            return len(batch)

        measured = speed(run, report)
        flops = training_flops(model.module.config, batch) / 3 / len(batch)  # forward alone
        if measured["rate"] > figures["rate"]:
            figures = {**measured, "batch_tokens": budget, "of_the_peak": round(measured["rate"] * flops / peak, 4)}
    return figures


# --- feeding ----------------------------------------------------------------------------------------------------------


def feeding(report: Report) -> None:
    """What the processor prepares: masked batches by one process, token ids by one and by one per core."""
    texts = [row["text"] for row in sample()]
    texts = [texts[0][:20_000], texts[1][:20_000]] if report.small else texts
    tokens = 512 if report.small else 65_536
    for length in (64,) if report.small else (512, 128):
        batches = pretrain.masked_batches(texts, family="bert", length=length, batch_tokens=tokens)
        rate = speed(lambda: next(batches).num_tokens, report)["rate"]  # noqa: B023
        report.add(**{f"tokens in masked batches of {length}, one process": rate})
    tokenizer = pretrain.packaged_tokenizer()
    short = short_texts(100 if report.small else 40_000)

    def tokenize_here() -> int:
        return len(tokenizer.encode_arrays(short[:2000]).starts) - 1

    def tokenize_in_processes() -> int:
        return sum(len(block.starts) - 1 for block in tokenizer.encode_ahead(short, num_cores()))

    windows, _ = TokenWindows.encode(tokenizer, short)
    order = windows.lengths.argsort(kind="stable").tolist()
    batches_of_rows = [*token_batches(order, windows.lengths, tokens)]

    def build_batches() -> int:
        return sum(len(windows.batch(rows, DEVICE)) for rows in batches_of_rows)

    report.add(
        **{
            "texts tokenized, one process": speed(tokenize_here, report)["rate"],
            f"texts tokenized, {num_cores()} processes": speed(tokenize_in_processes, report)["rate"],
            "texts from ids to batches on the device, one process": speed(build_batches, report)["rate"],
        }
    )


STEPS = {step.__name__: step for step in (machine, correct, numerics, pretraining, embedding, feeding)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=STEPS)
    parser.add_argument("file", type=Path)
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    STEPS[options.step](Report(options.file, options.small))


if __name__ == "__main__":
    main()
