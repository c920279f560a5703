"""A pre-training step: Bothways against transformers' model of the family in its fastest setting, on the same examples.

    python -m benchmarks.pretrain [--families bert modernbert] [--sizes mini small base] [--dropout 0 0.1] [--rounds 3]
    python -m benchmarks.pretrain --device cuda --sizes base --lengths 128 512 --batch-tokens 65536

Wikipedia, 15 % of the tokens masked; bert trains on next-sentence pairs, modernbert on single texts. A step is
forward pass, backward pass, clipping to norm 1 and AdamW; batches are built in advance. Speed is counted in real
tokens. transformers: batches padded to their longest text, SDPA, fused AdamW, bf16 autocast (or float32); on a GPU
also compiled. `memory kept` is transformers in a process that retains freed memory as Bothways does
(bothways.base.device.retain_freed_memory), which is not its default. Each timing has its own process; the sides take
turns. The matrix peak is the highest measured in any of them.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, product
from pathlib import Path
from typing import Any

DATA = Path(os.environ.get("BOTHWAYS_DATA", Path(__file__).parent.parent.parent / "shared" / "data"))
OURS = "bothways"
PEER, PEER_KEPT, PEER_EXACT = "transformers bf16", "transformers bf16, memory kept", "transformers float32"
PEER_COMPILED = "transformers bf16, compiled"
SECONDS, STEPS, READY = 12.0, 4, 8  # minimum seconds and steps of a timing; number of batches built in advance
ARTICLES = 400


def wikipedia() -> Iterator[str]:
    from bothways.text.corpus.documents import documents

    first = sorted((DATA / "wikipedia-2015-en").glob("train-*.parquet"))[:1]
    return islice(documents(first), ARTICLES)


def masked_batches(texts: Iterable[str], *, family: str, length: int, batch_tokens: int) -> Iterator[Any]:
    """Batches of masked texts or pairs for both sides, without end."""
    import numpy as np

    from bothways.text.batching import sort_by_length
    from bothways.text.corpus.masking import MaskRule
    from bothways.text.corpus.sampler import StepSampler
    from bothways.text.corpus.token_store import build_in_memory
    from bothways.training.pretraining.objectives import PretrainingObjective, example_batch

    tokenizer = packaged_tokenizer()
    store = build_in_memory(texts, tokenizer)
    order = StepSampler(
        store, np.arange(store.num_documents), length=length, pairs="next" if family == "bert" else "none",
        batch_tokens=batch_tokens, seed=0, separators=tokenizer.backend.num_separators,
    )  # fmt: skip
    rule = MaskRule.from_tokenizer(tokenizer, 0.15)
    for step in order.steps():
        rows = sort_by_length(step.rows, step.examples.sizes)
        yield PretrainingObjective().mask(example_batch(store, step, rows, tokenizer), step, rows, rule, seed=0)


def packaged_tokenizer() -> Any:
    """Google's uncased vocabulary, from the package."""
    from bothways.model.checkpoint.directory import Directory
    from bothways.pretrained import DEFAULT
    from bothways.text.tokenizer.tokenizer import Tokenizer

    return Tokenizer.load(Directory(DEFAULT).path)


def new_model(options: argparse.Namespace) -> Any:
    import torch

    from bothways.model.config import SIZES
    from bothways.model.families import FAMILIES
    from bothways.model.model import Model, initialize

    config = (
        FAMILIES[options.family]
        .new_config(SIZES[options.size])
        .replace(vocab_size=30522, hidden_dropout_prob=options.rate, attention_probs_dropout_prob=options.rate)
    )
    pairs = options.family == "bert"
    model = Model(config, {"masked_words": 0, **({"next_sentence": 2} if pairs else {})}, pooler=pairs)
    initialize(model, 0.02, torch.Generator().manual_seed(0))
    return model


def ours(options: argparse.Namespace, batches: list[Any]) -> tuple[Callable[[int], None], Any]:
    import torch

    from bothways.training.pretraining.objectives import build_objective
    from bothways.training.run_checkpoints import TrainingState
    from bothways.training.schedule import TrainingOptions
    from bothways.training.step import StepQueue
    from bothways.training.trainer import Trainer

    model = new_model(options)
    objective = build_objective("masked", "next" if options.family == "bert" else "none")
    device = torch.device(options.device)
    training = TrainingOptions(steps=10_000, learning_rate=1e-4, device=device, dtype=options.dtype)
    losses = lambda module, batch: objective.losses(module, batch, objective.forward(module, batch))  # noqa: E731
    trainer = Trainer(model, losses, objective.counts, training)
    progress = TrainingState()
    queue = StepQueue(trainer, progress.scale)

    def step(number: int) -> None:
        nonlocal progress
        queue.add(progress, [batches[number % len(batches)]])
        if queue.is_full:
            progress, _, _ = queue.read(progress)

    return step, model.config


def theirs(options: argparse.Namespace, batches: list[Any]) -> Callable[[int], None]:
    import torch
    import transformers
    from torch.nn.utils.rnn import pad_sequence

    from bothways.model.checkpoint import checkpoint
    from bothways.model.checkpoint.contents import Checkpoint

    tokenizer = packaged_tokenizer()
    with tempfile.TemporaryDirectory() as folder:
        checkpoint.save(Checkpoint(new_model(options), tokenizer, model_type=options.family), Path(folder) / "model")
        config = transformers.AutoConfig.from_pretrained(Path(folder) / "model")
    config._attn_implementation = "sdpa"
    device = torch.device(options.device)
    kind = transformers.BertForPreTraining if options.family == "bert" else transformers.ModernBertForMaskedLM
    model = kind(config).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    forward = torch.compile(model) if options.side == PEER_COMPILED else model

    def padded(batch: Any) -> dict[str, Any]:
        lengths = batch.lengths.tolist()
        labels = torch.full_like(batch.input_ids, -100)
        labels[batch.masked_positions] = batch.masked_labels
        columns = {
            "input_ids": (batch.input_ids, 0), "token_type_ids": (batch.segment_ids, 0),
            "attention_mask": (torch.ones_like(batch.input_ids), 0), "labels": (labels, -100),
        }  # fmt: skip
        rows = {
            name: pad_sequence(list(values.split(lengths)), batch_first=True, padding_value=fill).to(device)
            for name, (values, fill) in columns.items()
        }
        if options.family == "bert":
            return {**rows, "next_sentence_label": batch.labels.to(device)}
        del rows["token_type_ids"]
        return rows

    ready = [padded(batch) for batch in batches]

    def step(number: int) -> None:
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=options.side != PEER_EXACT):
            loss = forward(**ready[number % len(ready)]).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def run_side(options: argparse.Namespace) -> None:
    """Time one side in this process; prints tokens per second, matrix peak, operations per token and peak memory."""
    import torch

    from bothways.base.device import measure_peak_flops, retain_freed_memory
    from bothways.training.pretraining.objectives import PretrainingObjective
    from bothways.training.progress import training_flops

    if options.side in (OURS, PEER_KEPT):
        retain_freed_memory()
    device, options.dtype = torch.device(options.device), torch.bfloat16
    batches = torch.load(options.batches, weights_only=False)
    figures: dict[str, float] = {"peak": measure_peak_flops(device, torch.bfloat16, 1.0)}
    if options.side == OURS:
        step, config = ours(options, batches)
        rows = PretrainingObjective().rows
        work = sum(training_flops(config, batch, rows(batch)) for batch in batches)
        figures["work"] = work / sum(batch.num_tokens for batch in batches)
    else:
        step = theirs(options, batches)
    warm = READY if "compiled" in options.side else 2
    for number in range(warm):
        step(number)
    speeds: list[float] = []
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(speeds) < STEPS:
        number = len(speeds)
        start = time.perf_counter()
        step(number)
        if device.type == "cuda":
            torch.cuda.synchronize()
        speeds.append(batches[number % READY].num_tokens / (time.perf_counter() - start))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    if device.type == "cuda":
        memory = torch.cuda.max_memory_allocated() / 1e9
    print(json.dumps({**figures, "speed": statistics.median(speeds), "memory": memory}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="+", default=["bert", "modernbert"], choices=["bert", "modernbert"])
    parser.add_argument("--sizes", nargs="+", default=["mini", "small", "base"])
    parser.add_argument("--dropout", nargs="+", type=float, default=[0.0, 0.1])
    parser.add_argument("--lengths", nargs="+", type=int, default=[128])
    parser.add_argument("--batch-tokens", type=int, default=None, help="[4096; base 2048]")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--sides", nargs="+", default=None)
    parser.add_argument("--keep", metavar="NAME", help="write the figures to docs/measurements/NAME.json")
    for name in ("side", "family", "size", "batches"):
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    parser.add_argument("--rate", type=float, default=0.0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        return run_side(options)
    import torch

    if options.device != "cpu" and not torch.cuda.is_available():
        sys.exit(
            f"--device {options.device}: no GPU found. With a GPU this prints, for each size, length and dropout, real "
            f"tokens per second, the share of the bf16 matrix peak and peak memory of {OURS}, {PEER} and "
            f"{PEER_COMPILED}, and the speed-up of {OURS}"
        )
    sides = options.sides or [OURS, PEER, PEER_KEPT, PEER_EXACT]
    if options.device != "cpu" and not options.sides:
        sides = [OURS, PEER, PEER_COMPILED]
    figures: list[dict[str, Any]] = []
    for family, length, size in product(options.families, options.lengths, options.sizes):
        tokens = options.batch_tokens or (2048 if size == "base" else 4096)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "batches.pt"
            batches = masked_batches(wikipedia(), family=family, length=length, batch_tokens=tokens)
            torch.save([*islice(batches, READY)], file)
            for rate in options.dropout:
                title = f"{tokens} x {length}"
                rounds = compare(options, sides, family=family, size=size, rate=rate, file=file, title=title)
                figures.append({"family": family, "size": size, "tokens": title, "dropout": rate, "rounds": rounds})
    if options.keep:
        from benchmarks import measurements  # not at the top: a process of a peer imports nothing of ours

        measures = ["bothways/training", "bothways/model"]
        measurements.write(options.keep, {}, model="new models", measures=measures, figures=figures)


def compare(
    options: argparse.Namespace, sides: list[str], *, family: str, size: str, rate: float, file: Path, title: str
) -> dict[str, list[dict[str, float]]]:  # fmt: skip
    """Print a table; the measures of each round, by side."""
    rows_by_side: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    for _ in range(options.rounds):
        for side in sides:
            command = [sys.executable, "-m", "benchmarks.pretrain", "--side", side, "--family", family, "--size", size]
            command += ["--rate", str(rate), "--batches", str(file), "--device", options.device]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(f"{side}: {done.stderr.strip().splitlines()[-1]}")
            rows_by_side[side].append(json.loads(done.stdout.splitlines()[-1]))
    # The highest value: a lower one is due to other programs on the machine and would overstate the shares.
    peak = max(row["peak"] for rows in rows_by_side.values() for row in rows)
    work = rows_by_side[OURS][0]["work"]
    first = statistics.median(row["speed"] for row in rows_by_side[OURS])
    print(
        f"\n{family} {size}, {title} tokens, dropout {rate:g}; matrix peak {peak / 1e9:,.0f} GFLOP/s in bf16, "
        f"{work / 1e6:.1f} MFLOP per token: {peak / work:,.0f} tokens/s at the peak"
    )
    print(f"{'':32}{'tokens/s':>10}{'lowest to highest':>24}{'of the peak':>13}{'memory GB':>11}  speed-up")
    for side, rows in rows_by_side.items():
        speeds = [row["speed"] for row in rows]
        speed = statistics.median(speeds)
        print(
            f"{side:32}{speed:10,.0f}{f'{min(speeds):,.0f} to {max(speeds):,.0f}':>24}{speed * work / peak:13.1%}"
            f"{max(row['memory'] for row in rows):11.2f}  {first / speed:.2f} x",
            flush=True,
        )
    return rows_by_side


if __name__ == "__main__":
    main()
