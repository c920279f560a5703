"""Does splitting a step into micro-batches change its gradient? Does a resumed run repeat the losses? Bothways against
transformers' Trainer.

    python -m benchmarks.splitting

One step of masked-word training of a small BERT, float32, no dropout, on 8 texts with 0 to 20 masks each: as one
batch and as 2, 4 and 8 micro-batches. The distance is the relative L2 norm over the whole gradient. Then 12 steps
with dynamic masks and dropout 0.1, uninterrupted and resumed after step 6.
"""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from bothways.base.errors import InputError
from bothways.model.config import EncoderConfig
from bothways.model.losses import forward_losses
from bothways.model.model import Model, initialize
from bothways.settings import Pretrain
from bothways.text.batch import Batch
from bothways.text.corpus.documents import sample
from bothways.training.distributed import Replica
from bothways.training.pretraining import pretrain
from bothways.training.pretraining.objectives import PretrainingObjective
from bothways.training.run import read_metrics
from bothways.training.step import backward

SIZES = {
    "vocab_size": 499, "hidden_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 200,
    "max_position_embeddings": 64,
}  # fmt: skip
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
LENGTH, TEXTS, STEPS = 48, 8, 12
MASKS = (20, 1, 7, 0, 3, 15, 2, 11)


def text_of(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Ids [S] and masked positions of a text."""
    rng = np.random.default_rng(number)
    return rng.integers(5, 499, LENGTH), np.sort(rng.permutation(LENGTH)[: MASKS[number]])


def distance(actual: torch.Tensor, expected: torch.Tensor) -> float:
    return float((actual.double() - expected.double()).norm() / expected.double().norm())


def flat_gradient(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([value.grad.flatten() for value in model.parameters() if value.grad is not None])


def ours(parts: int) -> tuple[torch.Tensor, float]:
    """Gradient and loss of one step split into `parts` micro-batches."""
    model = Model(EncoderConfig(**SIZES, **NO_DROPOUT), {"masked_words": 0})
    initialize(model, 0.1, torch.Generator().manual_seed(0))
    batches = []
    for rows in np.array_split(np.arange(TEXTS), parts):
        texts = [text_of(row) for row in rows.tolist()]
        ids = np.concatenate([ids for ids, _ in texts])
        positions = np.concatenate([positions + number * LENGTH for number, (_, positions) in enumerate(texts)])
        batch = Batch.from_arrays(ids, np.zeros_like(ids), np.full(len(texts), LENGTH))
        masked, labels = torch.from_numpy(positions), torch.from_numpy(ids[positions])
        batches.append(
            replace(
                batch,
                masked_positions=masked,
                masked_labels=labels,
                labels=torch.zeros(len(texts), dtype=torch.long),
            )
        )
    objective = PretrainingObjective("next")
    means = backward(Replica(model, forward_losses(objective)), objective.counts, batches)
    return flat_gradient(model), sum(mean.item() for part in means for mean in part.values())


def rows_of(number: int) -> dict[str, Any]:
    ids, positions = text_of(number)
    labels = np.full(LENGTH, -100)
    labels[positions] = ids[positions]
    return {"input_ids": ids.tolist(), "labels": labels.tolist(), "attention_mask": [1] * LENGTH}


def theirs(parts: int) -> tuple[torch.Tensor, float]:
    """The same for Trainer with gradient accumulation."""
    torch.manual_seed(0)
    model = transformers.BertForMaskedLM(transformers.BertConfig(**SIZES, **NO_DROPOUT))
    kept: list[torch.Tensor] = []

    class Watch(transformers.TrainerCallback):
        def on_pre_optimizer_step(self, *arguments: Any, **options: Any) -> None:
            kept.append(flat_gradient(model).clone())

    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            output_dir=folder, per_device_train_batch_size=TEXTS // parts, gradient_accumulation_steps=parts,
            max_steps=1, max_grad_norm=0.0, use_cpu=True, report_to=[], disable_tqdm=True, logging_steps=1,
            save_strategy="no",
        )  # fmt: skip
        trainer = transformers.Trainer(
            model, arguments, train_dataset=[rows_of(number) for number in range(TEXTS)], callbacks=[Watch()],
            data_collator=transformers.default_data_collator,
        )  # fmt: skip
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
        return kept[0], trainer.state.log_history[0]["loss"]


def resumed_ours() -> tuple[int, int]:
    """(number of losses after the resume that are identical bit for bit, number of losses)."""
    with tempfile.TemporaryDirectory() as folder:
        folder_path = Path(folder)
        (folder_path / "novels.txt").write_text("\n\n".join(book["text"][:9000] for book in sample()), encoding="utf-8")
        settings = Pretrain(
            corpus=(folder_path / "novels.txt",),
            out=folder_path / "whole",
            token_store=folder_path / "store",
            model="tiny",
            vocab_size=900,
            steps=STEPS,
            batch_tokens=1024,
            max_length=64,
            checkpoint_every=STEPS // 2,
            dropout=0.1,
        )
        pretrain.run(settings)
        pretrain.run(Pretrain(**{**vars(settings), "out": folder_path / "cut"}))
        for newer in (folder_path / "cut" / "checkpoints").glob(f"step-*{STEPS}"):
            (newer / "state.json").unlink()  # simulates a kill before this checkpoint
        pretrain.run(Pretrain(**{**vars(settings), "out": folder_path / "cut", "resume": True}))
        runs = [
            [row["loss"] for row in read_metrics(folder_path / name) if row["split"] == "train"][STEPS // 2 :]
            for name in ("whole", "cut")
        ]
    return sum(map(float.__eq__, *runs)), STEPS // 2


def resumed_theirs() -> tuple[int, int]:
    tokenizer = transformers.BertTokenizerFast(vocab=_vocabulary())
    dataset = [{"input_ids": text_of(number % TEXTS)[0].tolist()} for number in range(64)]
    collator = transformers.DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)

    def run(folder: str, resume: str | None, steps: int) -> list[float]:
        torch.manual_seed(0)
        model = transformers.BertForMaskedLM(transformers.BertConfig(**SIZES))
        arguments = transformers.TrainingArguments(
            output_dir=folder, per_device_train_batch_size=TEXTS, max_steps=steps, use_cpu=True, report_to=[],
            disable_tqdm=True, logging_steps=1, save_steps=STEPS // 2, lr_scheduler_type="constant",
        )  # fmt: skip
        trainer = transformers.Trainer(model, arguments, train_dataset=dataset, data_collator=collator)
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train(resume_from_checkpoint=resume)
        return [row["loss"] for row in trainer.state.log_history if "loss" in row]

    with tempfile.TemporaryDirectory() as folder:
        whole = run(f"{folder}/whole", None, STEPS)[STEPS // 2 :]
        run(f"{folder}/cut", None, STEPS // 2)
        again = run(f"{folder}/cut", f"{folder}/cut/checkpoint-{STEPS // 2}", STEPS)[STEPS // 2 :]
    return sum(map(float.__eq__, whole, again)), STEPS // 2


def _vocabulary() -> dict[str, int]:
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(494))]
    return {token: index for index, token in enumerate(tokens)}


def main() -> None:
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    print(f"{'':26}{'micro-batches':>14}{'loss':>10}{'gradient: relative distance, norm':>38}")
    for name, step in (("bothways", ours), ("transformers Trainer", theirs)):
        whole, loss = step(1)
        print(f"{name:26}{1:14}{loss:10.4f}{0:25.1e}{float(whole.norm()):13.3f}")
        for parts in (2, 4, 8):
            cut, loss = step(parts)
            print(f"{name:26}{parts:14}{loss:10.4f}{distance(cut, whole):25.1e}{float(cut.norm()):13.3f}")
    for name, resume in (("bothways", resumed_ours), ("transformers Trainer", resumed_theirs)):
        try:
            same, number = resume()
            print(f"{name}: {same} of {number} losses after a resume are identical, bit for bit")
        except InputError as error:
            print(f"{name}: {error}")


if __name__ == "__main__":
    main()
