"""The training loop and all around it: options, optimizers, schedules, run directories, several processes."""
