"""Fine-tuning against transformers' Trainer: same checkpoint, examples and settings; scores and seconds.

    python -m benchmarks.finetune_speed [--only CoNLL SST-2 SQuAD] [--seeds N] [--epochs 1] [--keep NAME]

MiniLM-L6 on CoNLL-2003 (three seeds, one sentence per example), 5,000 rows of SST-2 and 2,000 questions of SQuAD
(one seed each, or --seeds): 32 examples per step, AdamW at 5e-5, linear schedule, 10 % warm-up, dropout 0.1. Trainer
gets the encodings of Bothways (the same windows and targets) and pads each batch to its longest, in float32 (its
default) and in bf16 autocast. Each side runs in its own process, because Bothways changes the C library's memory
settings, which affects Trainer's speed too. Seconds are of training steps alone; scores are on dev, computed by
Bothways for both. Data: $BOTHWAYS_DATA (default: ../shared/data).
"""

import argparse
import dataclasses
import json
import os
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import Trainer

from benchmarks import measurements
from benchmarks.finetune_scores import minilm
from bothways.measure import metrics
from bothways.model.checkpoint import checkpoint
from bothways.settings import Answer, Classify, FineTune, Tag
from bothways.tasks.answer.examples import AnswerWindows
from bothways.tasks.answer.training import Answering
from bothways.tasks.classify.training import Classification
from bothways.tasks.tag.files import read_splits
from bothways.tasks.tag.training import Tagging
from bothways.tasks.training_task import TrainingTask
from bothways.text.data.split_tables import read_tables
from bothways.training.finetuning.finetune import follow
from bothways.training.finetuning.plan import plan_of
from bothways.training.finetuning.scored_rows import ScoredRows
from bothways.training.run import Run, read_metrics

DATA = Path(os.environ.get("BOTHWAYS_DATA", "../shared/data"))
ROWS = {"SST-2": 5000, "SQuAD": 2000}
SETS: dict[str, tuple[type, dict[str, Any]]] = {
    "CoNLL": (Tag, {"train": "conll2003/eng.train", "dev": "conll2003/eng.testa", "context": False}),
    "SST-2": (Classify, {"train": "glue/SST-2/train.tsv", "dev": "glue/SST-2/dev.tsv"}),
    "SQuAD": (Answer, {"train": "squad/train-v1.1.json", "dev": "squad/dev-v1.1.json", "on_error": "skip"}),
}
PEERS = {"CoNLL": "Token", "SST-2": "Sequence", "SQuAD": "Question"}


def settings_of(name: str, out: Path, epochs: float) -> FineTune:
    kind, options = SETS[name]
    files = {key: DATA / value if key in ("train", "dev") else value for key, value in options.items()}
    common: dict[str, Any] = {"batch_size": 32, "learning_rate": 5e-5, "evaluations_per_epoch": 1 / epochs}
    settings: FineTune = kind(model=minilm(), out=out, epochs=epochs, **common, **files)
    return settings


def task_of(settings: FineTune) -> TrainingTask:
    start = checkpoint.load(settings.model)
    if isinstance(settings, Tag):
        return Tagging.build(settings, start, read_splits(settings))
    if isinstance(settings, Classify):
        tables = read_tables(settings)
        tables["train"] = tables["train"].take(range(ROWS["SST-2"]))
        return Classification.build(settings, start, tables)
    assert isinstance(settings, Answer)
    task = Answering.build(settings, start)
    number = sum(map(len, task.windows["train"][: ROWS["SQuAD"]]))
    short = AnswerWindows(task.data["train"].windows[:number], task.data["train"].rows[:number])
    return dataclasses.replace(task, data={**task.data, "train": short})


def ours(settings: FineTune, task: TrainingTask, seed: int) -> tuple[float, float]:
    """(score on dev, seconds of training)."""
    settings = dataclasses.replace(settings, seed=seed, out=settings.out / f"ours-{seed}")
    with Run(settings.out, "finetune", settings) as run:
        result = follow(plan_of(ScoredRows(settings, task)), run)
    seconds = max(row["seconds"] for row in read_metrics(settings.out) if row["split"] == "train")
    return result.mean, seconds


class Clock(transformers.TrainerCallback):
    def __init__(self) -> None:
        self.seconds, self.began = 0.0, 0.0

    def on_step_begin(self, *arguments: Any, **options: Any) -> None:
        self.began = time.perf_counter()

    def on_step_end(self, *arguments: Any, **options: Any) -> None:
        self.seconds += time.perf_counter() - self.began


def rows_for_peer(name: str, task: TrainingTask) -> list[dict[str, Any]]:
    """Our training examples as rows for Trainer's collator."""
    examples: Any = task.data["train"]
    rows = []
    for row in range(len(examples.sizes)):
        batch = examples.batch([row])
        one: dict[str, Any] = {"input_ids": batch.input_ids.tolist(), "token_type_ids": batch.segment_ids.tolist()}
        if name == "SQuAD":
            one["start_positions"], one["end_positions"] = batch.labels[0].tolist()
        else:
            one["labels"] = batch.labels.tolist() if name == "CoNLL" else int(batch.labels[0])
        rows.append(one)
    return rows


def padded(rows: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
    longest = max(len(row["input_ids"]) for row in rows)
    filled = {"input_ids": 0, "token_type_ids": 0, "labels": -100}
    columns: dict[str, list[Any]] = {"attention_mask": []}
    for row in rows:
        missing = longest - len(row["input_ids"])
        columns["attention_mask"].append([1] * len(row["input_ids"]) + [0] * missing)
        for key, value in row.items():
            columns.setdefault(key, []).append([*value, *[filled[key]] * missing] if isinstance(value, list) else value)
    return {key: torch.tensor(value) for key, value in columns.items()}


def theirs(name: str, settings: FineTune, task: TrainingTask, seed: int, *, bf16: bool) -> tuple[float, float]:
    initial = task.initial_checkpoint(seed)
    folder = settings.out / f"peer-{seed}-{bf16}"
    checkpoint.save(initial, folder / "start")
    model = getattr(transformers, f"BertFor{PEERS[name]}{'Answering' if name == 'SQuAD' else 'Classification'}")
    arguments = transformers.TrainingArguments(
        output_dir=str(folder / "trainer"),
        num_train_epochs=settings.epochs,
        per_device_train_batch_size=32,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="linear",
        warmup_steps=0.1,
        weight_decay=0.01,
        bf16=bf16,
        seed=seed,
        use_cpu=not torch.cuda.is_available(),
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        logging_steps=10**9,
        remove_unused_columns=False,
    )
    clock = Clock()
    trainer = Trainer(
        model.from_pretrained(folder / "start"), arguments, train_dataset=rows_for_peer(name, task),
        data_collator=padded, callbacks=[clock],
    )  # fmt: skip
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()
    trainer.model.save_pretrained(folder / "model")
    trained = checkpoint.load(folder / "model").model
    return task.scoring.evaluate(task.inference_copy(trained), "dev")[task.metric], clock.seconds


def side(name: str, side_name: str, seeds: int, epochs: float) -> tuple[str, list[tuple[float, float]]]:
    """The metric, and (score, seconds) of each seed."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as scratch:
        settings = settings_of(name, Path(scratch), epochs)
        task = task_of(settings)
        if side_name == "ours":
            return task.metric, [ours(settings, task, seed) for seed in range(seeds)]
        return task.metric, [theirs(name, settings, task, seed, bf16="bf16" in side_name) for seed in range(seeds)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--epochs", type=float, default=1.0)
    parser.add_argument("--keep", metavar="NAME", help="write the figures to docs/measurements/NAME.json")
    options = parser.parse_args()
    figures: dict[str, dict[str, list[tuple[float, float]]]] = {}  # (score, seconds) of each seed, by set and side
    print(f"{'set':6} {'side':18} {'metric':9} {'mean':>7} {'std':>6}  n  seconds  bothways is faster by")
    for name in options.only:
        our_seconds, seeds = 0.0, options.seeds or (3 if name == "CoNLL" else 1)
        for who in ("ours", "Trainer, bf16", "Trainer, float32"):
            with ProcessPoolExecutor(1, get_context("spawn")) as executor:
                metric, results = executor.submit(side, name, who, seeds, options.epochs).result()
            figures.setdefault(name, {})[who] = results
            (mean, std), seconds = metrics.mean_and_std([score for score, _ in results]), [time for _, time in results]
            average = sum(seconds) / len(seconds)
            our_seconds = our_seconds or average
            times = json.dumps([round(one, 1) for one in seconds])
            print(
                f"{name:6} {who:18} {metric:9} {mean:7.2%} {std:6.2%}  {len(results)} {average:8.1f}  "
                f"{average / our_seconds:.2f}x  {times}",
                flush=True,
            )
    if options.keep:
        measures = ["bothways/training", "bothways/model"]
        measurements.write(options.keep, {}, model="all-MiniLM-L6-v2", measures=measures, figures=figures)


if __name__ == "__main__":
    main()
