"""Changes of a checkpoint."""
