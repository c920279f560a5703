"""Training options: learning rate, warmup, schedule, gradient clipping, early stopping."""

from dataclasses import dataclass

import torch

from bothways.device import CPU
from bothways.training.schedule import Schedule


@dataclass(frozen=True)
class TrainingOptions:
    """Options of the training loop.

    learning_rate: peak learning rate. warmup: fraction of the steps. decay: fraction of the steps, for
    warm-up-stable-decay. beta2: AdamW's beta2. muon_learning_rate: peak learning rate of the layers' matrices, if Muon
    trains them. checkpoint_every: steps between checkpoints; 0: only at the end. best_by: metric whose highest held-out
    value selects the weights; None keeps the last weights. best_rows: number of held-out rows; the last weights are
    kept, too, if those of an earlier step are better by at most a standard error (of that many rows). evaluate_first:
    also evaluate before the first step, so that the initial weights can be the best, if keeps_initial; ties go to the
    lower loss. patience: stop after this many evaluations without a better metric or a lower loss. negligible_loss:
    stop, too, at an evaluation once the mean training loss is lower. cooldown: after the decision to stop, the learning
    rate falls to 0 in this fraction of the steps so far. shard: use FSDP. compile_warmup: compile for the first step's
    batch before training, so that compiled code does not depend on where a run resumes.
    """

    steps: int
    learning_rate: float
    schedule: Schedule = "linear"
    warmup: float = 0.1
    decay: float = 0.1
    weight_decay: float = 0.01
    layer_decay: float = 1.0
    beta2: float = 0.999
    muon_learning_rate: float | None = None
    max_grad_norm: float = 1.0
    evaluate_every: int = 100
    evaluate_first: bool = False
    keeps_initial: bool = True
    checkpoint_every: int = 0
    best_by: str | None = None
    best_rows: int = 0
    patience: int | None = None
    negligible_loss: float = 0.0
    cooldown: float = 0.0
    seed: int = 0
    device: torch.device = CPU
    dtype: torch.dtype = torch.float32
    shard: bool = False
    compile_warmup: bool = False
