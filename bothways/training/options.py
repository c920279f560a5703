"""What a training run is told: how long, how fast, in which numbers, where."""

from dataclasses import dataclass

import torch

from bothways.training.schedule import Schedule

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Plan:
    """How long and how fast.

    rate: the peak learning rate. warmup: the fraction of the steps that rise to it. decay: the fraction that falls, in
    warm-up-stable-decay. beta2: AdamW's decay of squared
    gradients. muon_rate: the peak rate of the layers' matrices, if Muon steps them. checkpoint_every: steps;
    0 is never but at the end. best_by: the held-out figure whose highest value marks the weights to be kept; without it
    the last ones are. evaluate_first: before the first step too, so that the weights training begins with can be the
    best; of equally good ones those of the lower loss are kept then, else the earliest. patience: end after so many
    evaluations in a row without a new best. shard: share weights and moments out over the processes. rehearse: show a
    compiler the first step before any other, so that what it makes does not depend on where a run goes on.
    """

    steps: int
    rate: float
    schedule: Schedule = "linear"
    warmup: float = 0.1
    decay: float = 0.1
    weight_decay: float = 0.01
    layer_decay: float = 1.0
    beta2: float = 0.999
    muon_rate: float | None = None
    clip: float = 1.0
    evaluate_every: int = 100
    evaluate_first: bool = False
    checkpoint_every: int = 0
    best_by: str | None = None
    patience: int | None = None
    seed: int = 0
    device: torch.device = CPU
    dtype: torch.dtype = torch.float32
    shard: bool = False
    rehearse: bool = False
