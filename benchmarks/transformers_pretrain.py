"""Pre-training the same model on the same text with transformers for a given time, plotted against a Bothways run.

    python -m benchmarks.transformers_pretrain RUN -o DIR [--minutes 30] [--learning-rate 5e-4]

RUN is a finished `bothways pretrain` run: its vocabulary, token store, held-out text, model size and length are
used. transformers: Trainer, its own model of the run's config with its own initial weights and dropout, masked words
only, texts concatenated and cut into blocks as in its examples, DataCollatorForLanguageModeling, bf16 autocast,
SDPA, fused AdamW, linear schedule. Bothways computes the held-out figures of both: the weights of transformers are
loaded into its model at intervals, with the clock stopped. Writes DIR/metrics.jsonl and DIR/beside.png.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers import (
    AutoConfig,
    AutoModelForMaskedLM,
    BertTokenizerFast,
    DataCollatorForLanguageModeling,
    Trainer,
)  # fmt: skip

from bothways.model.checkpoint import checkpoint
from bothways.settings import Pretrain
from bothways.text.tokenizer.tokenizer import Tokenizer
from bothways.training.pretraining.heldout import HeldOut
from bothways.training.pretraining.setup import open_text
from bothways.training.pretraining.text_data import PretrainingData, read_data
from bothways.training.run import read_metrics

TIMED_STEPS, FIGURES = 6, 20  # steps that measure the speed; number of held-out evaluations


class Blocks(torch.utils.data.Dataset[dict[str, Any]]):
    """All training documents concatenated and cut into blocks of one length, each with [CLS] and [SEP]."""

    def __init__(self, text: PretrainingData, length: int) -> None:
        bounds = text.store.sentences[text.store.documents]
        parts = [text.store.ids[bounds[number] : bounds[number + 1]] for number in text.training]
        self.ids, self.room, self.tokenizer = np.concatenate(parts), length - 2, text.tokenizer

    def __len__(self) -> int:
        return len(self.ids) // self.room

    def __getitem__(self, index: int) -> dict[str, Any]:
        ids = self.ids[index * self.room : (index + 1) * self.room].astype(np.int64)
        return {"input_ids": [self.tokenizer.cls_id, *ids.tolist(), self.tokenizer.sep_id]}


class Clock(transformers.TrainerCallback):
    """Counts the seconds of training steps only, and computes held-out figures between them."""

    def __init__(self, held: HeldOut, directory: Path, length: int, rows: int, every: int) -> None:
        self.held, self.directory, self.every = held, directory, every
        self.tokens, self.seconds, self.began = rows * length, 0.0, time.perf_counter()

    def on_step_begin(self, *arguments: Any, **options: Any) -> None:
        self.began = time.perf_counter()

    def on_step_end(self, arguments: Any, state: Any, control: Any, model: Any = None, **options: Any) -> None:
        self.seconds += time.perf_counter() - self.began
        if self.every and (state.global_step % self.every == 0 or state.global_step == state.max_steps):
            model.save_pretrained(self.directory / "model")
            figures = self.held.measure(checkpoint.load(self.directory / "model").model)
            row = {"step": state.global_step, "tokens": state.global_step * self.tokens, "seconds": self.seconds}
            with (self.directory / "metrics.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps({**row, "split": "heldout", **figures}) + "\n")
            print(
                f"{self.seconds / 60:5.1f} min, step {row['step']}: perplexity {figures['perplexity']:.1f}", flush=True
            )


def trained(
    settings: Pretrain, text: PretrainingData, held: HeldOut, out: Path, *, steps: int, rate: float, figures: int
) -> tuple[Clock, Any]:
    torch.manual_seed(0)
    config = AutoConfig.from_pretrained(settings.out / "model")
    model = AutoModelForMaskedLM.from_config(config, attn_implementation="sdpa")
    rows = settings.batch_tokens // settings.max_length
    clock = Clock(held, out, settings.max_length, rows, max(1, steps // figures) if figures else 0)
    tokenizer = BertTokenizerFast(str(settings.out / "model" / "vocab.txt"))
    arguments = transformers.TrainingArguments(
        output_dir=str(out / "trainer"), max_steps=steps, per_device_train_batch_size=rows, learning_rate=rate,
        lr_scheduler_type="linear", warmup_steps=steps // 10, weight_decay=0.01, bf16=True, optim="adamw_torch_fused",
        use_cpu=not torch.cuda.is_available(), save_strategy="no", report_to=[], disable_tqdm=True, logging_steps=10**9,
    )  # fmt: skip
    collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=settings.mask_rate)
    trainer = Trainer(
        model, arguments, train_dataset=Blocks(text, settings.max_length), data_collator=collator, callbacks=[clock]
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()
    return clock, model


def draw(sides: dict[str, list[dict[str, Any]]], file: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(10.5, 4))
    for axis, unit, divisor in ((axes[0], "seconds", 60), (axes[1], "tokens", 1e6)):
        for side, rows in sides.items():
            axis.plot(
                [row[unit] / divisor for row in rows], [row["perplexity"] for row in rows], marker="o", markersize=3,
                label=side,
            )  # fmt: skip
        axis.set_xlabel("minutes of training" if unit == "seconds" else "million tokens")
        axis.set_yscale("log")
        axis.grid(alpha=0.3, which="both")
        axis.legend()
    axes[0].set_ylabel("perplexity of masked words, held out")
    figure.tight_layout()
    figure.savefig(file, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--learning-rate", type=float, default=5e-4)
    options = parser.parse_args()
    options.out.mkdir(parents=True)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    notes = json.loads((options.run / "bothways.json").read_text(encoding="utf-8"))
    recipe = {**notes["settings"], **notes["recipe"]}
    paths = {name: tuple(map(Path, recipe[name])) for name in ("corpus", "heldout")}
    settings = Pretrain(
        **{
            **recipe,
            **paths,
            "out": options.run,
            "tokenizer": None,
            "from_checkpoint": None,
            "token_store": recipe["token_store"],
        }
    )
    text = read_data(open_text(settings), Tokenizer.load(options.run / "model"))
    heldout = HeldOut(
        text.unseen,
        text.heldout,
        text.tokenizer,
        settings.max_length,
        pairs=settings.pairs,
        most=settings.heldout_examples,
    )
    timed, _ = trained(settings, text, heldout, options.out, steps=TIMED_STEPS, rate=options.learning_rate, figures=0)
    steps = int(options.minutes * 60 / (timed.seconds / TIMED_STEPS))
    print(f"{options.minutes:g} minutes are {steps} steps of {timed.seconds / TIMED_STEPS * 1000:.0f} ms", flush=True)
    trained(settings, text, heldout, options.out, steps=steps, rate=options.learning_rate, figures=FIGURES)
    sides = {"bothways": read_metrics(options.run), "transformers": read_metrics(options.out)}
    draw(
        {side: [row for row in rows if row["split"] == "heldout"] for side, rows in sides.items()},
        options.out / "beside.png",
    )


if __name__ == "__main__":
    main()
