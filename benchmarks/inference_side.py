"""One side of benchmarks/inference.py, Bothways or another library, in a process that waits for requests.

python -m benchmarks.inference_side work|first-vector '{"name": "ours bf16", ...}'
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from benchmarks.inference_texts import minilm

TUNED = 256  # texts for tuning a peer's batch size
ONE_TEXT = "The quick brown fox jumps over the lazy dog."
INT8 = "int8"  # of a side that reads our int8 model
OURS: dict[str, dict[str, Any]] = {  # side -> options of bothways.load
    "ours bf16": {"dtype": "bfloat16"},
    "ours float32": {"dtype": "float32"},
    "ours int8": {},
    "ours by torch, bf16": {"dtype": "bfloat16", "backend": "torch"},
    "ours by torch, float32": {"dtype": "float32", "backend": "torch"},
    "ours by torch, int8": {"backend": "torch"},
    "ours by numpy": {"backend": "numpy"},
}
Answer = dict[str, Any]
Run = Callable[[Sequence[str], int], Any]  # texts, batch size -> vectors


@dataclass(frozen=True)
class Side:
    """Settings of a side. files: directory of converted models and logs; int8: directory of our int8 model."""

    name: str
    files: str
    int8: str
    longest: int
    threads: int
    device: Literal["cpu", "cuda"]


def run_of(side: Side) -> Run:
    if side.name in OURS:
        import bothways

        directory = side.int8 if side.name.endswith(INT8) else minilm()
        model = bothways.load(directory, device=side.device, **OURS[side.name])
        print(f"{side.name}: {model.backend.computed_by}", file=sys.stderr)
        return lambda texts, _: model.embed(texts, long="truncate", window=side.longest)
    from benchmarks.speed.peers import PEERS, PeerConfig

    config = PeerConfig(
        minilm(), Path(side.files), "vectors", longest=side.longest, threads=side.threads, device=side.device
    )  # fmt: skip
    return PEERS[side.name].start(config)


# --- in the process --------------------------------------------------------------------------------------------------


def first_vector(side: Side) -> None:
    """Start, embed one text and print the memory used."""
    run_of(side)([ONE_TEXT], 1)
    print(json.dumps({"resident": memory("VmRSS"), "peak": memory("VmHWM")}), flush=True)


def work(side: Side) -> None:
    """Answer requests from standard input, one JSON object per line; answers go to the original standard output."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # other output of libraries goes to standard error
    run = run_of(side)
    for line in sys.stdin:
        request = json.loads(line)
        texts = json.loads(Path(request["texts"]).read_text(encoding="utf-8"))
        print(json.dumps(ANSWERS[request["ask"]](side, run, texts, request)), file=answers, flush=True)


def tune(side: Side, run: Run, texts: list[str], request: Answer) -> Answer:
    from benchmarks.speed.peers import BATCH_SIZES, best_batch_size

    if side.name in OURS:
        run(texts[:TUNED], 0)
        return {"batch": 0}
    return {"batch": best_batch_size(run, texts[:TUNED], BATCH_SIZES[side.device])}


def embed(side: Side, run: Run, texts: list[str], request: Answer) -> Answer:
    """Seconds for all texts; writes the vectors to the file `save` if one is named."""
    start = time.perf_counter()
    vectors = run(texts, request["batch"])
    seconds = time.perf_counter() - start
    if request["save"]:
        import numpy as np

        np.save(request["save"], vectors)
    return {"seconds": seconds, "peak": memory("VmHWM")}


def one_by_one(side: Side, run: Run, texts: list[str], request: Answer) -> Answer:
    """Seconds of single calls, one per text, after a few warm-up calls."""
    seconds = []
    for text in [ONE_TEXT] * 5 + texts:
        start = time.perf_counter()
        run([text], 1)
        seconds.append(time.perf_counter() - start)
    return {"seconds": seconds[5:]}


ANSWERS = {"tune": tune, "embed": embed, "one by one": one_by_one}


def memory(field: str) -> float:
    """Memory of this process in MB: VmRSS, current; VmHWM, peak. (ru_maxrss would include the parent's.)"""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) * 1024 / 1e6


# --- from outside ----------------------------------------------------------------------------------------------------


class Worker:
    """A side's process. Call it with the fields of a request; close it."""

    def __init__(self, side: Side) -> None:
        self.log = Path(side.files) / f"{side.name}.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command("work", side), env=environment(side), text=True, stderr=log,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip

    def __call__(self, **request: Any) -> Answer:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"a side stopped: {last_line(self.log.read_text())}")
        answer: Answer = json.loads(line)
        return answer

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def started(side: Side) -> tuple[float, Answer]:
    """(seconds from process start to first vector, the process's answer). RuntimeError: the side does not start."""
    log, began = Path(side.files) / f"{side.name}.log", time.perf_counter()
    with log.open("w") as errors, subprocess.Popen(
        command("first-vector", side), env=environment(side), stdout=subprocess.PIPE, stderr=errors, text=True
    ) as process:  # fmt: skip
        assert process.stdout
        line = next((line for line in process.stdout if line.startswith("{")), "")
        seconds = time.perf_counter() - began
    if not line:
        raise RuntimeError(last_line(log.read_text()))
    return seconds, json.loads(line)


def command(mode: str, side: Side) -> list[str]:
    return [sys.executable, "-m", "benchmarks.inference_side", mode, json.dumps(asdict(side))]


def environment(side: Side) -> dict[str, str]:
    quiet = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    return {**os.environ, **quiet, "OMP_NUM_THREADS": str(side.threads)}


def last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "no error message")


def usable(names: Sequence[str], template: Side) -> list[Side]:
    """The sides that start, with their files written; prints the others with the reason."""
    from benchmarks.speed.peers import PEERS

    sides = []
    for side in (replace(template, name=name) for name in names):
        try:
            if side.name in OURS and side.name.endswith(INT8) and not side.int8:
                raise RuntimeError("name its directory with --int8")
            if side.name in PEERS and PEERS[side.name].missing:
                raise RuntimeError(f"not installed: {', '.join(PEERS[side.name].missing)}")
            started(side)
        except RuntimeError as error:
            print(f"skipped: {side.name} ({error})")
        else:
            sides.append(side)
    return sides


if __name__ == "__main__":
    {"work": work, "first-vector": first_vector}[sys.argv[1]](Side(**json.loads(sys.argv[2])))
