"""Small training runs in separate processes, to be killed, stopped and resumed by tests.

Reads one JSON object a line: {"runs": [what each process is to do], "signal": [after how many steps, which],
"impatient": whether to end them all with the first} and answers with the processes' exit codes. All are forked from
this one, so that torch is imported once.
"""

import faulthandler
import json
import os
import signal
import socket
import sys
import time
import traceback
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
import torch._dynamo  # what DDP, FSDP and Muon import when first used: here once for all
import torch.distributed.fsdp
from safetensors.torch import save_file

from bothways.base.log import messages_to
from bothways.model.config import EncoderConfig
from bothways.model.losses import forward_losses
from bothways.model.model import Model, initialize
from bothways.text.batch import Batch
from bothways.training import run_checkpoints as saving
from bothways.training.distributed import gather_shards, local_shard, process_group
from bothways.training.loop import fit
from bothways.training.optimizer import Optimizer
from bothways.training.pretraining.objectives import PretrainingObjective
from bothways.training.run import Run
from bothways.training.run_checkpoints import Checkpoints
from bothways.training.schedule import TrainingOptions
from bothways.training.signals import Stopped

TEXTS, LENGTHS = 11, (3, 5, 7, 8, 11, 13, 17)
objective = PretrainingObjective("next")
losses, counts = forward_losses(objective), objective.counts
CONFIG = EncoderConfig(
    vocab_size=97, hidden_size=24, num_hidden_layers=3, num_attention_heads=3, intermediate_size=40,
    max_position_embeddings=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
)  # fmt: skip
SECONDS = 250  # a hang fails a test before pytest's own limit


@dataclass(frozen=True)
class Task:
    """parts: the micro-batches of a step over all processes. die: where SIGKILL strikes the first process, [in what,
    when]. spoil: the step whose loss is not finite."""

    out: Path
    steps: int = 8
    dtype: str = "float32"
    dropout: float = 0.1
    parts: int = 2
    evaluate_every: int = 3
    checkpoint_every: int = 2
    best_by: str | None = None
    shard: bool = False
    resume: bool = False
    pause: float = 0.0
    spoil: int | None = None
    keep_gradient: bool = False
    die: list = field(default_factory=list)


@dataclass(frozen=True)
class RunSettings:
    """What counts as settings of such a run."""

    dtype: str
    dropout: float
    steps: int
    resume: bool


def batch_of(step, rows):
    """These texts of a step; every choice follows from where they stand."""
    draws = [np.random.default_rng([step, row]) for row in rows]
    lengths = np.array([rng.choice(LENGTHS) for rng in draws])
    ids = np.concatenate([rng.integers(5, 97, length) for rng, length in zip(draws, lengths, strict=True)])
    batch = Batch.from_arrays(ids, np.zeros_like(ids), lengths)
    places = np.flatnonzero(np.concatenate([rng.random(n) < 0.3 for rng, n in zip(draws, lengths, strict=True)]))
    labels = torch.tensor([int(rng.integers(2)) for rng in draws])
    return replace(
        batch, masked_positions=torch.from_numpy(places), masked_labels=torch.from_numpy(ids[places]), labels=labels
    )


def model_of(dropout):
    config = CONFIG.replace(hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    model = Model(config, {"masked_words": 0, "next_sentence": 2})
    initialize(model, 0.2, torch.Generator().manual_seed(0))
    return model


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def keep_first_gradient(file):
    """Write the first gradient that the optimizer receives, gathered from all shards."""
    step = Optimizer.step

    def keeping(self, *arguments):
        if not file.exists():
            gradients = {name: (local_shard(value.grad), value) for name, value in self.parameters.items()}
            whole = {name: gather_shards(rows, parameter).clone() for name, (rows, parameter) in gradients.items()}
            if self.shards.is_main_process:
                save_file(whole, file)
        Optimizer.step = step
        return step(self, *arguments)

    Optimizer.step = keeping


def train(task):
    model = model_of(task.dropout)
    evaluations = []
    seen = []

    with messages_to(print), process_group(timeout=timedelta(seconds=SECONDS)) as processes:

        def steps(first):
            for step in range(first, 10_000):
                cuts = [round(TEXTS * part**2 / task.parts**2) for part in range(task.parts + 1)]  # of unequal size
                parts = [list(range(*ends)) for ends in pairwise(cuts)]
                yield [batch_of(step, rows) for rows in parts[processes.rank :: processes.world_size] if rows]

        def spoiled(module, batch):
            sums = losses(module, batch)
            value, number = sums["masked_lm"]
            return {**sums, "masked_lm": (value * float("nan") if len(seen) + 1 == task.spoil else value, number)}

        def evaluate():
            evaluations.append(1)
            if task.die[:1] == ["evaluation"] and len(evaluations) == task.die[1]:
                die()
            model(batch_of(77, range(5)))
            return {"loss": 1 / len(evaluations), "accuracy": -abs(len(evaluations) - 2.0)}

        def record(row):
            seen.extend([row] * (row["split"] == "train"))
            run.log_metrics(**row)
            time.sleep(task.pause)
            if task.die == ["step", row["step"]]:
                with (task.out / "metrics.jsonl").open("a") as file:
                    file.write('{"step": 9, "lo')
                die()

        if task.die[:1] == ["write"]:
            checksum = saving.checksum
            saving.checksum = lambda file: die() if f"{task.die[1]:08}" in str(file) else checksum(file)
        settings = RunSettings(task.dtype, task.dropout, task.steps, task.resume)
        run = Run(task.out, "pretrain", settings, resume=task.resume, is_main_process=processes.is_main_process)
        checkpoints = Checkpoints(task.out, order={"texts": TEXTS}, processes=processes)
        start = checkpoints.load_latest() if task.resume else None
        run.truncate_metrics(start.progress.step if start else 0)
        run.update_metadata(steps=task.steps)
        options = TrainingOptions(
            steps=task.steps, learning_rate=1e-2, evaluate_every=task.evaluate_every,
            checkpoint_every=task.checkpoint_every,
            seed=3, dtype=getattr(torch, task.dtype), shard=task.shard,
            best_by=task.best_by,
        )  # fmt: skip
        if task.keep_gradient and not task.resume:
            keep_first_gradient(
                task.out / ("gradient.safetensors" if processes.is_main_process else f"of-{processes.rank}")
            )
        with run:
            fit(
                model, spoiled if task.spoil else losses, counts, steps, options, evaluate=evaluate, record=record,
                checkpoints=checkpoints, start=start, processes=processes,
            )  # fmt: skip
        if processes.is_main_process:
            save_file(model.state_dict(), task.out / "weights.safetensors")


def child(task, rank, world, port, log):
    """Runs in a forked process, and never returns."""
    environment = {
        "RANK": rank,
        "WORLD_SIZE": world,
        "LOCAL_RANK": rank,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
    }
    os.environ.update({name: str(value) for name, value in environment.items()})
    os.dup2(log, 1), os.dup2(log, 2)
    faulthandler.dump_traceback_later(SECONDS, exit=True, file=sys.__stderr__)
    code = 1
    try:
        train(Task(**{**task, "out": Path(task["out"])}))
        code = 0
    except Stopped as stopped:
        print(stopped)
        code = 3
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(code)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def serve(order):
    tasks, port = order["runs"], free_port()
    folder = Path(tasks[0]["out"])
    log = os.open(f"{folder}.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    children = []
    for rank, task in enumerate(tasks):
        children.append(os.fork())
        if children[-1] == 0:
            child(task, rank, len(tasks), port, log)
    os.close(log)
    if order.get("signal"):
        rows, number = order["signal"]
        metrics = folder / "metrics.jsonl"
        while not metrics.exists() or metrics.read_text().count('"train"') < rows:
            time.sleep(0.01)
        os.kill(children[-1], number)
    codes = {}
    while len(codes) < len(children):
        number, status = os.wait()
        codes[number] = os.waitstatus_to_exitcode(status)
        if order.get("impatient"):
            for other in set(children) - codes.keys():
                os.kill(other, signal.SIGKILL)
    return [codes[number] for number in children]


if __name__ == "__main__":
    torch.set_num_threads(1)
    for line in sys.stdin:
        print(json.dumps(serve(json.loads(line))), flush=True)
