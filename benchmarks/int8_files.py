"""Vectors of a published int8 ONNX file of all-MiniLM-L6-v2, on STS-B test and BEIR SciFact.

    python -m benchmarks.int8_files model.onnx

For docs/pictures/quality.png (tools/draw_quality.py). Reads the file with onnxruntime, and texts with the tokenizer of
MiniLM-L6, cut at 256 tokens; the mean of the hidden states, of length 1. Data: $BOTHWAYS_DATA.
"""

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime

import bothways
from benchmarks.embedding_students import sts_benchmark
from benchmarks.english import SCIFACT_TOKENS
from benchmarks.finetune_scores import minilm
from benchmarks.finetune_sets import DATA
from benchmarks.search import cosine_rows, measure
from bothways.tasks.embed.scoring import pair_scores
from bothways.text.data.beir import BeirDataset

BATCH = 16


class OnnxVectors:
    """The `embed` of an ONNX file."""

    def __init__(self, file: str) -> None:
        self.session = onnxruntime.InferenceSession(file)
        self.tokenizer = bothways.load(minilm(), dtype="float32").tokenizer

    def embed(self, texts: Sequence[str], **_: Any) -> np.ndarray:
        assert self.tokenizer is not None
        rows = [self.tokenizer.encode(text).ids for text in texts]
        rows = [[*row[: SCIFACT_TOKENS - 1], row[-1]] if len(row) > SCIFACT_TOKENS else row for row in rows]
        order, vectors_NH = (
            sorted(range(len(rows)), key=lambda row: len(rows[row])),
            np.zeros((len(rows), 384), np.float32),
        )
        for start in range(0, len(rows), BATCH):
            part = order[start : start + BATCH]
            ids_NS = np.zeros((len(part), max(len(rows[row]) for row in part)), np.int64)
            for place, row in enumerate(part):
                ids_NS[place, : len(rows[row])] = rows[row]
            mask_NS = (np.arange(ids_NS.shape[1]) < np.array([[len(rows[row])] for row in part])).astype(np.int64)
            inputs = {"input_ids": ids_NS, "attention_mask": mask_NS, "token_type_ids": np.zeros_like(ids_NS)}
            (states_NSH,) = self.session.run(None, inputs)
            vectors_NH[part] = (states_NSH * mask_NS[..., None]).sum(1) / mask_NS.sum(1, keepdims=True)
        return vectors_NH / np.linalg.norm(vectors_NH, axis=1, keepdims=True)


def main() -> None:
    model: Any = OnnxVectors(sys.argv[1])
    first, second, gold = sts_benchmark()
    cosines = (model.embed(first) * model.embed(second)).sum(1)
    print("STS-B", pair_scores(gold, cosines.tolist(), [*zip(first, second, strict=True)])["spearman"], flush=True)
    scifact = BeirDataset.read(DATA / "retrieval/beir-scifact")
    measure(scifact, {"SciFact": cosine_rows(model.embed, scifact)})


if __name__ == "__main__":
    main()
