"""Checkpoints in the Hugging Face layout: load, save, convert."""
