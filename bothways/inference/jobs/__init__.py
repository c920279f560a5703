"""Batch prediction: files of any size through a model, resumable."""
