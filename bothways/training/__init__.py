"""Training: loop, options, optimizers, learning rate schedules, checkpoints, distributed processes."""
