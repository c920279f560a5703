"""Peer libraries: sentence-transformers, transformers, ONNX Runtime, OpenVINO.

Each computes the same outputs from the same checkpoint and texts, truncated to the same length, including tokenization,
with the same number of threads. Texts are sorted by length and padded to the longest in their batch.
Letters: N texts of a batch, S tokens of the longest. The output for a text is its vector, [H], or its scores, [C].
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.speed import peer_files

Work = peer_files.Work
Device = Literal["cpu", "cuda"]
Outputs = NDArray[np.float32]
Ids = NDArray[np.int64]
Calls = Callable[[Sequence[str], int], object]  # (texts, batch size)
Side = Callable[[Sequence[str], int], Outputs]  # (texts, batch size) -> outputs, a row per text
BATCH_SIZES = {"cpu": (4, 8, 16, 32, 64), "cuda": (32, 128, 512)}  # candidates, by type of device


@dataclass(frozen=True)
class PeerConfig:
    """Configuration of a peer: the checkpoint directory, a directory for converted files, and options."""

    directory: Path
    files: Path
    work: Work
    pooling: str = "mean"
    longest: int = 512  # tokens, special tokens included
    threads: int = 1
    device: str = "cpu"


@dataclass(frozen=True)
class Peer:
    """A peer library in one setup. modules: required packages; setup: a description for the reader."""

    modules: tuple[str, ...]
    works: tuple[Work, ...]
    setup: str
    start: Callable[[PeerConfig], Side]
    devices: tuple[Device, ...] = ("cpu",)

    @property
    def missing(self) -> list[str]:
        return [name for name in self.modules if find_spec(name) is None]


def best_batch_size(side: Calls, texts: Sequence[str], sizes: Sequence[int]) -> int:
    """The fastest batch size for these texts; each is tried once after a warm-up call."""
    side(texts[: min(sizes)], min(sizes))
    seconds = {}
    for size in sizes:
        start = time.perf_counter()
        side(texts, size)
        seconds[size] = time.perf_counter() - start
    return min(seconds, key=seconds.__getitem__)


def sentence_transformers(config: PeerConfig, dtype: str) -> Side:
    with peer_files.quiet():
        from sentence_transformers import SentenceTransformer

        model = SentenceTransformer(str(config.directory), device=config.device, model_kwargs={"dtype": dtype})
    model.max_seq_length = config.longest

    def side(texts: Sequence[str], batch_size: int) -> Outputs:
        vectors = model.encode(
            list(texts),
            batch_size=batch_size,
            show_progress_bar=False,
            normalize_embeddings=True,
            convert_to_numpy=True,
        )
        return np.asarray(vectors, np.float32)

    return side


def transformers(config: PeerConfig, dtype: str) -> Side:
    import torch

    with peer_files.quiet():
        from transformers import AutoModelForSequenceClassification

        model = AutoModelForSequenceClassification.from_pretrained(config.directory, dtype=dtype)
    model = model.eval().to(config.device)

    def forward(ids_NS: Ids, mask_NS: Ids) -> Outputs:
        ids, mask = (torch.from_numpy(rows).to(config.device) for rows in (ids_NS, mask_NS))
        with torch.inference_mode():
            scores: Outputs = model(input_ids=ids, attention_mask=mask).logits.float().cpu().numpy()
            return scores

    return padded(config, forward)


def onnx_runtime(config: PeerConfig, kind: Literal["fused", "int8"]) -> Side:
    file = peer_files.onnx(config.directory, config.files, config.work, config.pooling, kind)
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = config.threads
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])

    def forward(ids_NS: Ids, mask_NS: Ids) -> Outputs:
        outputs: Outputs = session.run(None, {"input_ids": ids_NS, "attention_mask": mask_NS})[0]
        return outputs

    return padded(config, forward)


def openvino(config: PeerConfig) -> Side:
    file = peer_files.openvino(config.directory, config.files, config.work, config.pooling)
    from openvino import Core

    hints = {"INFERENCE_PRECISION_HINT": "bf16", "PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": config.threads}
    model = Core().compile_model(str(file), "CPU", hints)
    request = model.create_infer_request()

    def forward(ids_NS: Ids, mask_NS: Ids) -> Outputs:
        return np.array(request.infer([ids_NS, mask_NS])[0], np.float32)

    return padded(config, forward)


def padded(config: PeerConfig, forward: Callable[[Ids, Ids], Outputs]) -> Side:
    """A forward pass over padded batches as a function of texts: sorted by length, padded, in the original order."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(config.directory / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(config.longest)

    def side(texts: Sequence[str], batch_size: int) -> Outputs:
        rows = [encoding.ids for encoding in tokenizer.encode_batch_fast(list(texts))]
        order = sorted(range(len(rows)), key=lambda row: len(rows[row]))
        outputs = np.concatenate(
            [
                forward(*pad_rows([rows[row] for row in order[start : start + batch_size]]))
                for start in range(0, len(order), batch_size)
            ]
        )
        restored = np.empty_like(outputs)
        restored[order] = outputs
        return restored

    return side


def pad_rows(rows: Sequence[Sequence[int]]) -> tuple[Ids, Ids]:
    """Padded ids and attention mask, [N, S] each."""
    ids_NS = np.zeros((len(rows), max(map(len, rows))), np.int64)
    mask_NS = np.zeros_like(ids_NS)
    for row, ids in enumerate(rows):
        ids_NS[row, : len(ids)] = ids
        mask_NS[row, : len(ids)] = 1
    return ids_NS, mask_NS


VECTORS: tuple[Work, ...] = ("vectors",)
CLASSES: tuple[Work, ...] = ("classes",)
CPU_AND_GPU: tuple[Device, ...] = ("cpu", "cuda")
TORCH = ("torch", "transformers")
SENTENCE_TRANSFORMERS, ONNX, OPENVINO = (
    (*TORCH, "sentence_transformers"),
    (*TORCH, "onnx", "onnxruntime"),
    (*TORCH, "openvino"),
)
PEERS: dict[str, Peer] = {
    "sentence-transformers float32": Peer(
        SENTENCE_TRANSFORMERS, VECTORS, "default settings", partial(sentence_transformers, dtype="float32"), CPU_AND_GPU
    ),
    "sentence-transformers bf16": Peer(
        SENTENCE_TRANSFORMERS,
        VECTORS,
        "with dtype='bfloat16'",
        partial(sentence_transformers, dtype="bfloat16"),
        CPU_AND_GPU,
    ),
    "transformers float32": Peer(
        TORCH, CLASSES, "AutoModelForSequenceClassification", partial(transformers, dtype="float32"), CPU_AND_GPU
    ),
    "transformers bf16": Peer(
        TORCH, CLASSES, "the same with dtype='bfloat16'", partial(transformers, dtype="bfloat16"), CPU_AND_GPU
    ),
    "ONNX Runtime float32": Peer(
        ONNX,
        VECTORS + CLASSES,
        "exported by torch, fused by onnxruntime.transformers.optimizer",
        partial(onnx_runtime, kind="fused"),
    ),
    "ONNX Runtime int8": Peer(
        ONNX,
        VECTORS + CLASSES,
        "the fused model after quantize_dynamic, QInt8, per channel",
        partial(onnx_runtime, kind="int8"),
    ),
    "OpenVINO bf16": Peer(
        OPENVINO,
        VECTORS + CLASSES,
        "converted from torch; INFERENCE_PRECISION_HINT bf16, PERFORMANCE_HINT LATENCY",
        openvino,
    ),
}
