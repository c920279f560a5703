"""What `bothways export` writes, under ONNX Runtime, beside the same model through transformers and ONNX Runtime's own
graph optimizer (its fused operators): milliseconds a call, medians, all in turn in one process.

    python -m benchmarks.export [--model DIR] [--threads 1] [--repeats 25]

The model is MiniLM-L6. Processor time of the calling thread is told beside the wall clock: on a busy machine with one
thread it is the truer of the two.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import onnxruntime

from benchmarks.finetune_scores import minilm
from bothways.bench.peer_files import onnx as fused_peer
from bothways.checkpoint import checkpoint
from bothways.export import graph
from bothways.export import int8 as onnx_int8
from bothways.export.export import vector_pooling

SHAPES = ((1, 16), (1, 128), (8, 128), (1, 512))  # texts, tokens of each


def files(source: Path, folder: Path) -> dict[str, tuple[Path, str]]:
    """Each form with the output that is asked for."""
    held = checkpoint.load(source)
    vectors = vector_pooling(held)
    ours, int8 = folder / "ours.onnx", folder / "ours-int8.onnx"
    graph.write(held.model, vectors, ours)
    onnx_int8.quantize(ours, int8, onnx_int8.ATTEMPTS[-1])
    peer = {kind: fused_peer(source, folder, "vectors", vectors.pooling, kind) for kind in ("fused", "int8")}
    return {
        "bothways export": (ours, "sentence_embedding"),
        "transformers, fused": (peer["fused"], "numbers"),
        "bothways export, int8": (int8, "sentence_embedding"),
        "transformers, int8": (peer["int8"], "numbers"),
    }


def caller(file: Path, output: str, threads: int) -> Callable[[np.ndarray], np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    names = {one.name for one in session.get_inputs()}

    def call(ids_NS: np.ndarray) -> np.ndarray:
        given = {"input_ids": ids_NS, "attention_mask": np.ones_like(ids_NS), "token_type_ids": np.zeros_like(ids_NS)}
        found: np.ndarray = session.run([output], {name: given[name] for name in names})[0]
        return found

    return call


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=None)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=25)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        forms = files(given.model or minilm(), Path(folder))
        calls = {name: caller(file, output, given.threads) for name, (file, output) in forms.items()}
        sizes = {name: file.stat().st_size / 1e6 for name, (file, _) in forms.items()}
    print(f"{'wall (processor) ms':24}{'MB':>7}{'cosine':>9}" + "".join(f"{f'{n} x {s}':>18}" for n, s in SHAPES))
    rows = {name: f"{name:24}{sizes[name]:7.1f}" for name in calls}
    for number, (size, length) in enumerate(SHAPES):
        ids_NS = np.random.default_rng(length).integers(1000, 20000, (size, length))
        found: dict[str, np.ndarray] = {}
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
        for _ in range(given.repeats):
            for name, call in calls.items():
                wall, own = time.perf_counter(), time.thread_time()
                found[name] = call(ids_NS)
                taken[name].append((time.perf_counter() - wall, time.thread_time() - own))
        for name in calls:
            if number == 0:
                cosine = float((found[name] * found["transformers, fused"]).sum(1).mean())
                rows[name] += f"{cosine:9.5f}"
            wall, own = (1e3 * median(column) for column in zip(*taken[name], strict=True))
            rows[name] += f"{f'{wall:.1f} ({own:.1f})':>18}"
    print("\n".join(rows.values()))


if __name__ == "__main__":
    main()
