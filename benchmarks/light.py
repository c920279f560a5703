"""The base package, without torch, beside the full one and other libraries: size, start, latency, batches, server.

    python -m benchmarks.light --json light.json [--rounds 9] [--only install start latency batches serve]
    python -m benchmarks.light --small --skip-install .venv/light

install: a new virtual environment, and the wheel of this checkout in it without extras (constraints.txt); the files of
site-packages as pip leaves them, without pip and setuptools.
start: new processes that embed one text with the packaged model and end; files in the file cache. The peer is
onnxruntime with tokenizers, on a float32 ONNX file of the same model. Peak memory is VmHWM.
latency: one text of 16 tokens, all-MiniLM-L6-v2, processes that stay alive.
batches: texts of mixed lengths from the package's sample, the same model; other libraries with their best batch size.
serve: memory of a server with the packaged model when it is ready, of all its processes; PSS counts a shared page once.

Sides take turns, round by round. Figures are medians over rounds (lowest to highest); ratios are within a round.
Without --skip-install, `start` runs in the new environment, else in the one that is named, with this checkout.
"""

import argparse
import json
import lzma
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict
from importlib.metadata import distributions, version
from itertools import islice
from operator import truediv
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks import inference_side
from benchmarks.inference import order, write
from benchmarks.inference_side import ANSWERS, Answer, Run, Side
from benchmarks.inference_texts import minilm, tokenizer
from benchmarks.serving_processes import Server, _process_tree
from benchmarks.serving_processes import Side as ServerSide
from benchmarks.speed import peer_files
from benchmarks.speed.workload import truncate
from bothways.base.device import num_cores, processor_name
from bothways.pretrained import DEFAULT

ROOT = Path(__file__).parent.parent
INSTALLERS = ("pip", "setuptools")  # of site-packages; not counted
OURS: dict[str, dict[str, Any]] = {  # side -> options of bothways.load
    "bothways": {},
    "bothways float32": {"dtype": "float32"},
    "bothways numpy": {"backend": "numpy"},
    "bothways torch": {"backend": "torch"},
    "bothways torch float32": {"backend": "torch", "dtype": "float32"},
}
OPENVINO, SENTENCE_TRANSFORMERS = "OpenVINO bf16", "sentence-transformers float32"
PEERS = (OPENVINO, "ONNX Runtime float32", "ONNX Runtime int8", SENTENCE_TRANSFORMERS)
VERSIONS = ("numpy", "torch", "onnxruntime", "openvino", "sentence-transformers", "tokenizers")
TOKENS, LONGEST = 16, 256  # of the text of latency; of any text
PEAK = "\nprint(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])"
EMBED = "import bothways; bothways.load().embed('hi')"
EMBED_ONNX = """
import sys, numpy, onnxruntime, tokenizers
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = int(sys.argv[3])
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
ids = numpy.array([tokenizers.Tokenizer.from_file(sys.argv[2]).encode("hi").ids])
session.run(None, {"input_ids": ids, "attention_mask": numpy.ones_like(ids)})"""


def install(target: Path, files: Path) -> Answer:
    """Make an environment with the base package. Seconds of `pip install` of the wheel and its dependencies."""
    source, wheels = files / "source", files / "wheels"
    left_out = shutil.ignore_patterns("__pycache__", ".float32-*")
    shutil.copytree(ROOT / "bothways", source / "bothways", ignore=left_out)
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, source)
    subprocess.run([sys.executable, "-m", "venv", str(target)], check=True)
    pip = [str(target / "bin/python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", str(wheels), str(source)], check=True, cwd=files)
    (wheel,) = wheels.glob("*.whl")
    began = time.perf_counter()
    subprocess.run([*pip, "install", "--constraint", str(ROOT / "constraints.txt"), str(wheel)], check=True, cwd=files)
    return {"seconds": time.perf_counter() - began, "wheel": wheel.stat().st_size}


def sizes(site_packages: Path) -> dict[str, int]:
    """Bytes of the files that pip has installed in a directory, by package, the largest first."""
    by_name = {}
    for package in distributions(path=[str(site_packages)]):
        if package.name not in INSTALLERS:
            files = {Path(os.path.normpath(file.locate())) for file in package.files or ()}
            inside = [file for file in files if file.is_relative_to(site_packages) and file.is_file()]
            by_name[package.name] = sum(file.stat().st_size for file in inside)
    return dict(sorted(by_name.items(), key=lambda item: -item[1]))


def measure_install(options: argparse.Namespace) -> Answer:
    answer: Answer = {} if options.skip_install else install(options.environment, options.files)
    (site_packages,) = options.environment.absolute().glob("lib/python*/site-packages")
    by_name = sizes(site_packages)
    answer |= {"bytes": sum(by_name.values()), "packages": by_name}
    rows = [[name, f"{size / 1e6:.1f}"] for name, size in [*by_name.items(), ("all", answer["bytes"])]]
    table("installed", ["package", "MB"], rows)
    print(f"pip install: {answer['seconds']:.1f} s" if "seconds" in answer else f"of {options.environment}")
    return answer


def started(python: str, code: str, arguments: Sequence[str], environment: dict[str, str]) -> tuple[float, float]:
    """(seconds, peak MB) of a new process."""
    command, began = [python, "-P", "-c", code + PEAK, *arguments], time.perf_counter()
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return time.perf_counter() - began, int(done.stdout.split()[-1]) * 1024 / 1e6


def measure_start(options: argparse.Namespace) -> Answer:
    ours, plain = environment_of(options.threads, ROOT), environment_of(options.threads, None)
    base, onnx = str(options.environment / "bin/python"), [*onnx_files(options.files), str(options.threads)]
    sides: dict[str, tuple[str, str, list[str], dict[str, str]]] = {
        "python alone": (base, "", [], plain),
        "bothways, base": (base, EMBED, [], ours if options.skip_install else plain),
        "bothways with torch": (sys.executable, EMBED, [], ours),
        "onnxruntime and tokenizers": (sys.executable, EMBED_ONNX, onnx, plain),
    }
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for turn in range(options.rounds + 1):
        for name in order([*sides], turn):
            run = started(*sides[name])
            runs[name] += [run] * (turn > 0)  # the first writes files, such as the unpacked weights
    seconds, peaks = ({name: [run[place] for run in own] for name, own in runs.items()} for place in (0, 1))
    ratios = compared(seconds, "onnxruntime and tokenizers")
    rows = [[name, spread(values, 3), spread(peaks[name], 0), ratios[name]] for name, values in seconds.items()]
    table("start: a new process embeds one text", ["side", "seconds", "peak MB", "seconds / onnxruntime"], rows)
    return {"seconds": seconds, "peak_mb": peaks}


def onnx_files(files: Path) -> list[str]:
    """A float32 ONNX file of the packaged model, and its tokenizer."""
    from bothways.model.checkpoint import checkpoint
    from bothways.model.checkpoint.formats.hugging_face import HUGGING_FACE

    target = files / "packaged"
    checkpoint.save(checkpoint.load(DEFAULT), target, HUGGING_FACE)
    return [str(peer_files.onnx(target, files, "vectors", "mean", "fused")), str(target / "tokenizer.json")]


def environment_of(threads: int, checkout: Path | None) -> dict[str, str]:
    """The variables of a child. checkout: what it imports first; None: nothing that is not installed."""
    side = Side("", "", "", LONGEST, threads, "cpu")
    variables = {**inference_side.environment(side), "PYTHONPATH": str(checkout or ""), "PYTHONDONTWRITEBYTECODE": ""}
    return {name: value for name, value in variables.items() if value}


def run_of(side: Side) -> Run:
    if side.name not in OURS:
        return inference_side.run_of(side)
    import bothways

    model = bothways.load(minilm(), **OURS[side.name])
    return lambda texts, _: model.embed(list(texts), long="truncate", window=side.longest)


def work(side: Side) -> None:
    """As in benchmarks/inference_side.py, for the sides of this file."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    run = run_of(side)
    for line in sys.stdin:
        request = json.loads(line)
        texts = json.loads(Path(request["texts"]).read_text(encoding="utf-8"))
        print(json.dumps(ANSWERS[request["ask"]](side, run, texts, request)), file=answers, flush=True)


class Worker(inference_side.Worker):
    def __init__(self, side: Side) -> None:
        self.log = Path(side.files) / f"{side.name}.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.light", "--work", json.dumps(asdict(side))], text=True, stderr=log,
                env=environment_of(side.threads, ROOT), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip


def workers(options: argparse.Namespace, stack: ExitStack) -> dict[str, Worker]:
    """A process per side."""
    sides = [Side(name, str(options.files), "", LONGEST, options.threads, "cpu") for name in (*OURS, *PEERS)]
    return {side.name: stack.enter_context(closing(Worker(side))) for side in sides}


def sample_texts() -> list[str]:
    """Paragraphs of novels, support requests and passages from the package, of mixed lengths, in a fixed order."""
    sample, texts = ROOT / "bothways" / "sample", []
    with lzma.open(sample / "novels.jsonl.xz", "rt", encoding="utf-8") as lines:
        texts += [line for row in lines for line in json.loads(row)["text"].splitlines() if line.strip()]
    for name in ("support", "passages"):
        rows = map(json.loads, (sample / f"{name}.jsonl").read_text(encoding="utf-8").splitlines())
        texts += [row["text"] for row in rows if "text" in row]
    return random.Random(0).sample(sorted({*texts}), len({*texts}))


def measure_latency(options: argparse.Namespace) -> Answer:
    cut = (truncate(text, TOKENS, tokenizer()) for text in sample_texts())
    exact = (text for text in cut if len(tokenizer().encode(text)) == TOKENS)
    texts = [*islice(exact, options.calls * options.rounds)]
    milliseconds: dict[str, list[float]] = {name: [] for name in (*OURS, *PEERS)}
    with ExitStack() as stack:
        by_name = workers(options, stack)
        for turn in range(options.rounds):
            part = texts[turn * options.calls : (turn + 1) * options.calls]
            file = write(part, options.files / f"latency-{turn}.json")
            for name in order([*by_name], turn):
                milliseconds[name].append(1e3 * median(by_name[name](ask="one by one", texts=file)["seconds"]))
    ratios = [compared(milliseconds, other) for other in (OPENVINO, "bothways torch float32")]
    rows = [[name, spread(values, 2), *(ratio[name] for ratio in ratios)] for name, values in milliseconds.items()]
    title = f"latency of one text of {TOKENS} tokens, median of {options.calls} calls a round"
    table(title, ["side", "ms", "/ OpenVINO", "/ torch float32"], rows)
    return {"milliseconds": milliseconds}


def measure_batches(options: argparse.Namespace) -> Answer:
    pool, rates = sample_texts(), dict[str, list[float]]()
    starts = range(0, options.rounds * options.rows, options.rows)
    parts = [[pool[(start + row) % len(pool)] for row in range(options.rows)] for start in starts]
    lengths = [min(len(encoding), LONGEST) for encoding in tokenizer().encode_many(parts[0])]
    with ExitStack() as stack:
        by_name = workers(options, stack)
        files = [write(part, options.files / f"batches-{turn}.json") for turn, part in enumerate(parts)]
        batch = {name: worker(ask="tune", texts=files[-1])["batch"] for name, worker in by_name.items()}
        for turn, file in enumerate(files):
            for name in order([*by_name], turn):
                save = "" if turn else str(options.files / f"{name}.npy")
                answer = by_name[name](ask="embed", texts=file, batch=batch[name], save=save)
                rates.setdefault(name, []).append(options.rows / answer["seconds"])
    rates = {name: rates[name] for name in by_name}
    vectors = {name: np.load(options.files / f"{name}.npy") for name in rates}
    lowest = {name: float((own * vectors[SENTENCE_TRANSFORMERS]).sum(1).min()) for name, own in vectors.items()}
    ratios = compared(rates, SENTENCE_TRANSFORMERS)
    rows = [[name, spread(values, 0), ratios[name], f"{lowest[name]:.6f}"] for name, values in rates.items()]
    title = f"{options.rows:,} texts of {min(lengths)} to {max(lengths)} tokens, median {median(lengths):.0f}"
    table(title, ["side", "texts/s", "/ sentence-transformers", "lowest cosine to it"], rows)
    return {"texts_per_second": rates, "lowest_cosine": lowest, "tokens_of_a_round": sum(lengths)}


def measure_serve(options: argparse.Namespace) -> Answer:
    pythons = {"serve, no torch": str(options.serve_environment.absolute() / "bin/python"), "full": sys.executable}
    memory: dict[str, dict[str, list[float]]] = {name: {"pss": [], "rss": [], "seconds": []} for name in pythons}
    for turn in range(options.rounds + 1):
        for name in order([*pythons], turn):
            variables = patch.dict(os.environ, {"PYTHONPATH": str(ROOT)})
            with patch.object(sys, "executable", pythons[name]), variables:  # the interpreter of the server
                server = Server(ServerSide("ours", "auto", "", options.threads))
            with server:
                rss = sum(map(resident, _process_tree(server.process.pid)))
            values = {"pss": server.resident, "rss": rss, "seconds": server.seconds_to_ready}
            for field, value in values.items():
                memory[name][field] += [value] * (turn > 0)
    columns = {"pss": 0, "rss": 0, "seconds": 2}  # digits
    rows = [[name, *(spread(own[field], digits) for field, digits in columns.items())] for name, own in memory.items()]
    table("serve, when it is ready", ["environment", "PSS MB", "RSS MB", "seconds"], rows)
    return memory


def resident(process: int) -> float:
    """RSS in MB."""
    return int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def compared(values: dict[str, list[float]], other: str) -> dict[str, str]:
    """Of each side: the median ratio to another one's value in the same round."""
    theirs = values[other]
    return {name: f"{median(map(truediv, own, theirs)):.2f}" for name, own in values.items()}


def spread(values: Sequence[float], digits: int) -> str:
    low, middle, high = (f"{value:,.{digits}f}" for value in (min(values), median(values), max(values)))
    return f"{middle} ({low} to {high})"


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    lines = [columns, ["---"] * len(columns), *rows]
    print(f"\n{title}\n", *("| " + " | ".join(row) + " |" for row in lines), sep="\n", flush=True)


MEASURES: dict[str, Callable[[argparse.Namespace], Answer]] = {
    "install": measure_install, "start": measure_start, "latency": measure_latency, "batches": measure_batches,
    "serve": measure_serve,
}  # fmt: skip


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="file for all figures, of every round")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--small", action="store_true", help="2 rounds of 10 calls and 100 texts")
    parser.add_argument("--only", nargs="+", default=MEASURES, choices=MEASURES)
    parser.add_argument("--skip-install", type=Path, metavar="DIR", help="use this environment of the base package")
    parser.add_argument("--serve-environment", type=Path, default=".venv/light", help="with serve, without torch")
    parser.add_argument("--threads", type=int, default=min(2, num_cores()))
    parser.add_argument("--work", help=argparse.SUPPRESS)  # a side, in a process that waits for requests
    options = parser.parse_args()
    options.rounds = options.rounds or (2 if options.small else 9)
    options.calls, options.rows = (10, 100) if options.small else (100, 1000)
    if "start" in options.only and "install" not in options.only and not options.skip_install:
        parser.error("start needs install, or --skip-install")
    return options


def main() -> None:
    options = parse()
    if options.work:
        return work(Side(**json.loads(options.work)))
    versions = {"python": sys.version.split()[0], **{name: version(name) for name in VERSIONS}}
    results: Answer = {"processor": processor_name(), "threads": options.threads, "versions": versions}
    print(f"{results['processor']}, {options.threads} threads; medians of {options.rounds} (lowest to highest)")
    print(", ".join(f"{name} {number}" for name, number in versions.items()))
    with tempfile.TemporaryDirectory() as scratch:
        options.files = Path(scratch)
        options.environment = (options.skip_install or options.files / "environment").absolute()
        for name in options.only:
            results[name] = MEASURES[name](options)
            if options.json:
                options.json.write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
