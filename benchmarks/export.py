"""The output of `bothways export` in ONNX Runtime, against the same model exported from transformers and optimized by
ONNX Runtime (fused operators): milliseconds per call, medians, all interleaved in one process.

    python -m benchmarks.export [--model DIR] [--threads 1] [--repeats 25]

The default model is MiniLM-L6. Processor time of the calling thread is printed next to wall-clock time: on a busy
machine with one thread it is the more reliable of the two.
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
from benchmarks.speed.peer_files import onnx as fused_peer
from bothways.model.checkpoint import checkpoint
from bothways.shrink.export import graph
from bothways.shrink.export import int8 as onnx_int8
from bothways.shrink.export.export import vector_pooling

SHAPES = ((1, 16), (1, 128), (8, 128), (1, 512))  # (texts, tokens per text)


def files(source: Path, folder: Path) -> dict[str, tuple[Path, str]]:
    """Each form's file and the name of its output."""
    source_model = checkpoint.load(source)
    vectors = vector_pooling(source_model)
    assert vectors is not None  # the checkpoint has a pooling
    ours, int8 = folder / "ours.onnx", folder / "ours-int8.onnx"
    graph.write(source_model.model, vectors, ours)
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
    names = {node.name for node in session.get_inputs()}

    def call(ids_NS: np.ndarray) -> np.ndarray:
        inputs = {"input_ids": ids_NS, "attention_mask": np.ones_like(ids_NS), "token_type_ids": np.zeros_like(ids_NS)}
        vectors: np.ndarray = session.run([output], {name: inputs[name] for name in names})[0]
        return vectors

    return call


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=None)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=25)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        forms = files(options.model or minilm(), Path(folder))
        calls = {name: caller(file, output, options.threads) for name, (file, output) in forms.items()}
        sizes = {name: file.stat().st_size / 1e6 for name, (file, _) in forms.items()}
    print(f"{'wall (processor) ms':24}{'MB':>7}{'cosine':>9}" + "".join(f"{f'{n} x {s}':>18}" for n, s in SHAPES))
    rows = {name: f"{name:24}{sizes[name]:7.1f}" for name in calls}
    for number, (size, length) in enumerate(SHAPES):
        ids_NS = np.random.default_rng(length).integers(1000, 20000, (size, length))
        vectors: dict[str, np.ndarray] = {}
        seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
        for _ in range(options.repeats):
            for name, call in calls.items():
                wall, processor = time.perf_counter(), time.thread_time()
                vectors[name] = call(ids_NS)
                seconds[name].append((time.perf_counter() - wall, time.thread_time() - processor))
        for name in calls:
            if number == 0:
                cosine = float((vectors[name] * vectors["transformers, fused"]).sum(1).mean())
                rows[name] += f"{cosine:9.5f}"
            wall, processor = (1e3 * median(column) for column in zip(*seconds[name], strict=True))
            rows[name] += f"{f'{wall:.1f} ({processor:.1f})':>18}"
    print("\n".join(rows.values()))


if __name__ == "__main__":
    main()
