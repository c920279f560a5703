"""Pre-training: objectives, recipes, the walk from text to loss."""
