"""Memory and time of a training step: everything, and adapters, beside peft.

    python -m benchmarks.adapter_steps [--model DIR] [--steps 20] [--rows 32] [--threads 2]

A classifier on texts of SST-2 and IMDb, 32 examples per step, LoRA of rank 8 on all linear maps. Each system runs in
its own process. MB: the peak of memory above that after the model was loaded in float32. Seconds: the median step. Ours
computes a step in micro-batches of 1,024 tokens, as `bothways finetune` does; peft pads to the longest text of a batch,
in float32 and in bf16 autocast. Data: $BOTHWAYS_DATA (default: ../shared/data).
"""

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import torch

from benchmarks import measurements
from benchmarks.finetune_scores import minilm
from benchmarks.finetune_sets import DATA, glue, rows_of
from bothways.text.data.examples import read_table

OURS = "full", "lora", "bitfit"
SYSTEMS = (*OURS, "peft, bf16", "peft, float32")
TARGETS = {"target_modules": ["query", "key", "value", "dense"], "exclude_modules": ["pooler.dense"]}
MAX_TOKENS = 256


class Peak:
    """The largest memory of this process while the block runs, above that at its start, in bytes."""

    def __enter__(self) -> "Peak":
        self.process, self.ended = psutil.Process(), threading.Event()
        self.start = self.most = self.process.memory_info().rss
        self.watcher = threading.Thread(target=self.watch)
        self.watcher.start()
        return self

    def watch(self) -> None:
        while not self.ended.wait(0.002):
            self.most = max(self.most, self.process.memory_info().rss)

    def __exit__(self, *error: object) -> None:
        self.ended.set()
        self.watcher.join()

    @property
    def megabytes(self) -> float:
        return (self.most - self.start) / 1e6


def texts_of(name: str, number: int) -> list[str]:
    if name == "SST-2":
        return [row["text"] for row in rows_of(glue("SST-2").arguments, "train")[:number]]
    return [*read_table(DATA / "imdb/train.parquet", label="label", need_labels=True).texts][:number]


def ours(kind: str, model: Path, batches: Sequence[list[str]]) -> tuple[float, list[float]]:
    from bothways.base.device import choose_dtype, retain_freed_memory
    from bothways.model.adapters.install import install
    from bothways.model.adapters.spec import AdapterSpec
    from bothways.model.checkpoint import checkpoint
    from bothways.model.checkpoint.changes.new_head import with_head
    from bothways.model.families import FAMILIES
    from bothways.model.losses import classification_loss
    from bothways.tasks.texts import MAX_TOKENS as MICRO_BATCH
    from bothways.tasks.windows import WindowPolicy
    from bothways.text.batch import Batch
    from bothways.text.batching import token_batches
    from bothways.training.loop import fit
    from bothways.training.schedule import TrainingOptions

    loaded = with_head(checkpoint.load(model), "classes", ("0", "1"), seed=0, dropout=0.1)
    encoded, policy = [], WindowPolicy(MAX_TOKENS, 0, "truncate")
    for texts in batches:
        encodings = [parts[0] for parts in policy.split(loaded.need_tokenizer().encode_many(texts))]
        encodings.sort(key=len)
        sizes = [*map(len, encodings)]
        parts = [
            Batch.from_encodings([encodings[row] for row in rows])
            for rows in token_batches(range(len(sizes)), sizes, MICRO_BATCH)
        ]
        encoded.append([replace(part, labels=torch.arange(len(part)) % 2) for part in parts])
    retain_freed_memory()
    times = []
    with Peak() as peak:
        if kind != "full":
            install(loaded.model, AdapterSpec(kind), FAMILIES["bert"])  # type: ignore[arg-type]

        def losses(module: Any, batch: Batch) -> Any:
            scores = module.text_scores("classes", module.text_states(module(batch), batch))
            return {"classes": classification_loss(scores, batch.labels)}  # type: ignore[arg-type]

        def record(row: dict[str, Any]) -> None:
            times.append(time.perf_counter())

        dtype = choose_dtype("auto", torch.device("cpu"))
        options = TrainingOptions(steps=len(encoded), learning_rate=1e-4, dtype=dtype, device=torch.device("cpu"))
        fit(
            loaded.model, losses, lambda batch: {"classes": len(batch)},
            lambda first: iter(encoded), options, evaluate=lambda: {"loss": 0.0}, record=record,
        )  # fmt: skip
    return peak.megabytes, [after - before for before, after in pairwise(times)]


def theirs(kind: str, model: Path, batches: Sequence[list[str]]) -> tuple[float, list[float]]:
    import peft
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    base = transformers.AutoModelForSequenceClassification.from_pretrained(model, num_labels=2)
    encoded = [
        tokenizer(one, truncation=True, max_length=MAX_TOKENS, padding=True, return_tensors="pt") for one in batches
    ]
    times = []
    with Peak() as peak:
        config = peft.LoraConfig(task_type="SEQ_CLS", r=8, lora_alpha=16, **TARGETS)
        trained = peft.get_peft_model(base, config).train()
        optimizer = torch.optim.AdamW([one for one in trained.parameters() if one.requires_grad], lr=1e-4, fused=True)
        for batch in encoded:
            start = time.perf_counter()
            labels = torch.arange(len(batch["input_ids"])) % 2
            with torch.autocast("cpu", torch.bfloat16, enabled="bf16" in kind):
                loss = trained(**batch, labels=labels).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(trained.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            times.append(time.perf_counter() - start)
    return peak.megabytes, times[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=minilm())
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--systems", nargs="+", default=[*SYSTEMS], choices=SYSTEMS)
    parser.add_argument("--sets", nargs="+", default=["SST-2", "IMDb"])
    parser.add_argument("--keep", metavar="NAME", help="write the figures to docs/measurements/NAME.json")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        torch.set_num_threads(arguments.threads)
        name, kind = arguments.one.split("/")
        texts = texts_of(name, arguments.steps * arguments.rows)
        batches = [texts[start : start + arguments.rows] for start in range(0, len(texts), arguments.rows)]
        side: Callable[..., tuple[float, list[float]]] = ours if kind in OURS else theirs
        print(json.dumps(side(kind, arguments.model, batches)))
        return
    print("| set | system | MB above the loaded model | of full | ms a step | full / this |\n|---|---|---|---|---|---|")
    figures: dict[str, dict[str, dict[str, Any]]] = {}
    for name in arguments.sets:
        full: tuple[float, float] | None = None
        for kind in arguments.systems:
            command = [sys.executable, "-m", "benchmarks.adapter_steps", "--one", f"{name}/{kind}"]
            options = [f"--{key}={getattr(arguments, key)}" for key in ("model", "steps", "rows", "threads")]
            done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(done.stderr[-2000:])
            megabytes, times = json.loads(done.stdout.strip().split("\n")[-1])
            figures.setdefault(name, {})[kind] = {"megabytes": megabytes, "seconds": times}
            step = 1000 * median(times)
            full = full or (megabytes, step)
            share, speed = megabytes / full[0], full[1] / step
            print(f"| {name} | {kind} | {megabytes:.0f} | {share:.0%} | {step:.0f} | {speed:.2f} |", flush=True)
    if arguments.keep:
        measures = ["bothways/model", "bothways/training/loop.py"]
        measurements.write(arguments.keep, {}, model=arguments.model.name, measures=measures, figures=figures)


if __name__ == "__main__":
    main()
