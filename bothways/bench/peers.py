"""Peer libraries (sentence-transformers, transformers, ONNX Runtime, OpenVINO), imported on use.

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

from bothways.bench import peer_files

Work = peer_files.Work
Device = Literal["cpu", "cuda"]
Numbers = NDArray[np.float32]
Ids = NDArray[np.int64]
Calls = Callable[[Sequence[str], int], object]  # (texts, texts a batch)
Side = Callable[[Sequence[str], int], Numbers]  # the same -> numbers, one row a text
BATCH_SIZES: dict[Device, tuple[int, ...]] = {"cpu": (4, 8, 16, 32, 64), "cuda": (32, 128, 512)}  # those that are tried


@dataclass(frozen=True)
class Place:
    """The setup of a peer: a checkpoint directory, a directory for files converted from it once, and options."""

    directory: Path
    files: Path
    work: Work
    pooling: str = "mean"
    longest: int = 512  # tokens, special tokens included
    threads: int = 1
    device: Device = "cpu"


@dataclass(frozen=True)
class Peer:
    """A peer library in one configuration. modules: required packages; setup: its description for the reader."""

    modules: tuple[str, ...]
    works: tuple[Work, ...]
    setup: str
    start: Callable[[Place], Side]
    devices: tuple[Device, ...] = ("cpu",)

    @property
    def missing(self) -> list[str]:
        return [name for name in self.modules if find_spec(name) is None]


def tuned(side: Calls, texts: Sequence[str], sizes: Sequence[int]) -> int:
    """The fastest batch size for these texts; each is tried once after a warm-up call."""
    side(texts[: min(sizes)], min(sizes))
    seconds = {}
    for size in sizes:
        began = time.perf_counter()
        side(texts, size)
        seconds[size] = time.perf_counter() - began
    return min(seconds, key=seconds.__getitem__)


def sentence_transformers(place: Place, dtype: str) -> Side:
    with peer_files.quiet():
        from sentence_transformers import SentenceTransformer

        model = SentenceTransformer(str(place.directory), device=place.device, model_kwargs={"dtype": dtype})
    model.max_seq_length = place.longest

    def side(texts: Sequence[str], batch_size: int) -> Numbers:
        found = model.encode(
            list(texts), batch_size=batch_size, show_progress_bar=False, normalize_embeddings=True,
            convert_to_numpy=True,
        )  # fmt: skip
        return np.asarray(found, np.float32)

    return side


def transformers(place: Place, dtype: str) -> Side:
    import torch

    with peer_files.quiet():
        from transformers import AutoModelForSequenceClassification

        model = AutoModelForSequenceClassification.from_pretrained(place.directory, dtype=dtype)
    model = model.eval().to(place.device)

    def forward(ids_NS: Ids, mask_NS: Ids) -> Numbers:
        ids, mask = (torch.from_numpy(rows).to(place.device) for rows in (ids_NS, mask_NS))
        with torch.inference_mode():
            scores: Numbers = model(input_ids=ids, attention_mask=mask).logits.float().cpu().numpy()
            return scores

    return padded(place, forward)


def onnx_runtime(place: Place, kind: Literal["fused", "int8"]) -> Side:
    file = peer_files.onnx(place.directory, place.files, place.work, place.pooling, kind)
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = place.threads
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])

    def forward(ids_NS: Ids, mask_NS: Ids) -> Numbers:
        found: Numbers = session.run(None, {"input_ids": ids_NS, "attention_mask": mask_NS})[0]
        return found

    return padded(place, forward)


def openvino(place: Place) -> Side:
    file = peer_files.openvino(place.directory, place.files, place.work, place.pooling)
    from openvino import Core

    hints = {"INFERENCE_PRECISION_HINT": "bf16", "PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": place.threads}
    model = Core().compile_model(str(file), "CPU", hints)
    request = model.create_infer_request()

    def forward(ids_NS: Ids, mask_NS: Ids) -> Numbers:
        return np.array(request.infer([ids_NS, mask_NS])[0], np.float32)

    return padded(place, forward)


def padded(place: Place, forward: Callable[[Ids, Ids], Numbers]) -> Side:
    """A forward pass over padded batches as a function of texts: sorted by length, padded, in the original order."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(place.directory / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(place.longest)

    def side(texts: Sequence[str], batch_size: int) -> Numbers:
        rows = [encoding.ids for encoding in tokenizer.encode_batch_fast(list(texts))]
        order = sorted(range(len(rows)), key=lambda row: len(rows[row]))
        found = np.concatenate(
            [
                forward(*rectangle([rows[row] for row in order[start : start + batch_size]]))
                for start in range(0, len(order), batch_size)
            ]
        )
        restored = np.empty_like(found)
        restored[order] = found
        return restored

    return side


def rectangle(rows: Sequence[Sequence[int]]) -> tuple[Ids, Ids]:
    """Padded ids and attention mask, [N, S] each."""
    ids_NS = np.zeros((len(rows), max(map(len, rows))), np.int64)
    mask_NS = np.zeros_like(ids_NS)
    for row, ids in enumerate(rows):
        ids_NS[row, : len(ids)] = ids
        mask_NS[row, : len(ids)] = 1
    return ids_NS, mask_NS


VECTORS: tuple[Work, ...] = ("vectors",)
CLASSES: tuple[Work, ...] = ("classes",)
GPU_TOO: tuple[Device, ...] = ("cpu", "cuda")
TORCH = ("torch", "transformers")
SENTENCES, ONNX, OPENVINO = (*TORCH, "sentence_transformers"), (*TORCH, "onnx", "onnxruntime"), (*TORCH, "openvino")
PEERS: dict[str, Peer] = {
    "sentence-transformers float32": Peer(
        SENTENCES, VECTORS, "as it comes", partial(sentence_transformers, dtype="float32"), GPU_TOO
    ),
    "sentence-transformers bf16": Peer(
        SENTENCES, VECTORS, "with dtype='bfloat16'", partial(sentence_transformers, dtype="bfloat16"), GPU_TOO
    ),
    "transformers float32": Peer(
        TORCH, CLASSES, "AutoModelForSequenceClassification", partial(transformers, dtype="float32"), GPU_TOO
    ),
    "transformers bf16": Peer(
        TORCH, CLASSES, "the same with dtype='bfloat16'", partial(transformers, dtype="bfloat16"), GPU_TOO
    ),
    "ONNX Runtime float32": Peer(
        ONNX, VECTORS + CLASSES, "exported by torch, fused by onnxruntime.transformers.optimizer",
        partial(onnx_runtime, kind="fused"),
    ),
    "ONNX Runtime int8": Peer(
        ONNX, VECTORS + CLASSES, "the fused model after quantize_dynamic, QInt8, per channel",
        partial(onnx_runtime, kind="int8"),
    ),
    "OpenVINO bf16": Peer(
        OPENVINO, VECTORS + CLASSES,
        "converted from torch; INFERENCE_PRECISION_HINT bf16, PERFORMANCE_HINT LATENCY", openvino,
    ),
}  # fmt: skip
