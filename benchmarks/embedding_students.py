"""Small sentence embedding models from all-MiniLM-L6-v2: `bothways distill --for vectors` beside sentence-transformers.

    python -m benchmarks.embedding_students -o DIR [--minutes 10] [--keep 0,2,5 0,5] [--learning-rate 5e-4]

Both keep the same layers of the teacher and train for the same time on the same Wikipedia articles, one after the other
on the same threads. sentence-transformers follows its own example for distillation: the trainer with MSELoss on the
teacher's vectors, single sentences, batches of 128, AdamW at 1e-4 with 10 % warmup, bf16 autocast. Its steps are chosen
after timing some, the teacher's vectors included. Prints STS-B test (Spearman of the cosine, without training on
STS-B) and texts/s of `embed` on the texts of STS-B test, median of five rounds that alternate between teacher and
student.
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow.parquet
import sentencex
import torch
from scipy.stats import spearmanr

import bothways
from benchmarks.finetune_scores import minilm
from benchmarks.inference_texts import DATA
from bothways.settings import Distill

WIKIPEDIA = DATA / "wikipedia-2015-en"
ROUNDS, TIMED_STEPS, BATCH = 5, 20, 128


def sts_benchmark() -> tuple[list[str], list[str], list[float]]:
    lines = (DATA / "glue" / "STS-B" / "sts-test.csv").read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines]
    return [row[5] for row in rows], [row[6] for row in rows], [float(row[4]) for row in rows]


def spearman(model: Any) -> float:
    first, second, gold = sts_benchmark()
    u_NH, v_NH = (np.asarray(model.embed(texts)) for texts in (first, second))
    cosines = (u_NH * v_NH).sum(1) / np.linalg.norm(u_NH, axis=1) / np.linalg.norm(v_NH, axis=1)
    return float(spearmanr(cosines, gold).statistic)


def speed_ratio(teacher: Any, student: Any) -> tuple[float, float, float]:
    """Texts per second of the student over the teacher's: median, least and most."""
    texts = [text for part in sts_benchmark()[:2] for text in part]
    seconds: dict[str, list[float]] = {"teacher": [], "student": []}
    for _ in range(ROUNDS + 1):
        for name, model in (("teacher", teacher), ("student", student)):
            start = time.perf_counter()
            model.embed(texts)
            seconds[name].append(time.perf_counter() - start)
    ratios = [slow / fast for slow, fast in zip(seconds["teacher"], seconds["student"], strict=True)][1:]
    return median(ratios), min(ratios), max(ratios)


def sentences() -> Iterator[str]:
    for file in sorted(WIKIPEDIA.glob("train-*.parquet")):
        for batch in pyarrow.parquet.ParquetFile(file).iter_batches(columns=["text"]):
            for text in batch.column(0).to_pylist():
                for line in text.splitlines():
                    yield from (sentence for sentence in sentencex.segment("en", line) if len(sentence) > 10)


def train_bothways(keep: tuple[int, ...], minutes: float, rate: float, out: Path) -> Path:
    settings = Distill(
        teacher=minilm(), corpus=tuple(sorted(WIKIPEDIA.glob("train-*.parquet"))),
        heldout=tuple(WIKIPEDIA.glob("validation-*.parquet")), out=out, purpose="vectors", keep_layers=keep,
        minutes=minutes, learning_rate=rate, evaluate_every=200,
    )  # fmt: skip
    return bothways.train(settings).model_directory


def train_peer(keep: tuple[int, ...], minutes: float, out: Path) -> Path:
    """The recipe of sentence-transformers' example model_distillation.py."""
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.losses import MSELoss

    teacher = SentenceTransformer(str(minilm()), device="cpu")

    def run(steps: int) -> float:
        """Seconds of `steps` steps, with the teacher's vectors for them."""
        torch.manual_seed(0)
        student = SentenceTransformer(str(minilm()), device="cpu")
        encoder = student[0].auto_model
        encoder.encoder.layer = torch.nn.ModuleList([encoder.encoder.layer[index] for index in keep])
        encoder.config.num_hidden_layers = len(keep)
        texts = [*islice(sentences(), steps * BATCH)]
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16):
            labels = teacher.encode(texts, batch_size=BATCH)
        data = Dataset.from_dict({"sentence": texts, "label": labels.astype(np.float32).tolist()})
        arguments = SentenceTransformerTrainingArguments(
            output_dir=str(out / "trainer"), max_steps=steps, per_device_train_batch_size=BATCH, learning_rate=1e-4,
            warmup_steps=steps // 10, bf16=True, use_cpu=True, save_strategy="no", report_to=[], disable_tqdm=True,
            logging_steps=10**9,
        )  # fmt: skip
        SentenceTransformerTrainer(student, arguments, train_dataset=data, loss=MSELoss(student)).train()
        seconds = time.perf_counter() - start
        student.save_pretrained(str(out / "model"))
        return seconds

    each = run(TIMED_STEPS) / TIMED_STEPS
    steps = int(minutes * 60 / each)
    print(f"sentence-transformers: {steps} steps of {each * 1000:.0f} ms, {steps * BATCH:,} sentences", flush=True)
    print(f"sentence-transformers: trained for {run(steps) / 60:.1f} minutes", flush=True)
    return out / "model"


def report(rows: Sequence[dict[str, Any]]) -> str:
    lines = ["| model | STS-B test | of the teacher's | texts/s, teacher = 1 |", "|---|---|---|---|"]
    for row in rows:
        low, high = row["least"], row["most"]
        lines.append(
            f"| {row['name']} | {row['sts']:.4f} | {row['sts'] / rows[0]['sts']:.1%} "
            f"| {row['speed']:.2f} ({low:.2f} to {high:.2f}) |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--keep", nargs="+", default=["0,2,5", "0,5"])
    parser.add_argument("--learning-rate", type=float, default=5e-4)
    options = parser.parse_args()
    options.out.mkdir(parents=True)
    teacher = bothways.load(minilm())
    rows = [{"name": "all-MiniLM-L6-v2", "sts": spearman(teacher), "speed": 1.0, "least": 1.0, "most": 1.0}]
    for kept in options.keep:
        keep = tuple(map(int, kept.split(",")))
        students = {
            "Bothways": train_bothways(keep, options.minutes, options.learning_rate, options.out / f"ours-{kept}"),
            "sentence-transformers": train_peer(keep, options.minutes, options.out / f"theirs-{kept}"),
        }
        for name, directory in students.items():
            student = bothways.load(directory)
            typical, least, most = speed_ratio(teacher, student)
            row = {"name": f"layers {kept}, {name}", "sts": spearman(student)}
            rows.append({**row, "speed": typical, "least": least, "most": most})
        (options.out / "scores.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
        print(report(rows), flush=True)


if __name__ == "__main__":
    main()
