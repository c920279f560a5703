"""Checkpoints in the Hugging Face layout: load, save, check."""
