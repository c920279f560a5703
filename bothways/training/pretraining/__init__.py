"""Pre-training: objectives, recipes, training from corpus to checkpoint."""
