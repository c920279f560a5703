"""Training: loop, optimizers, learning rate schedules, checkpoints, distributed."""
