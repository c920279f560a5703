"""Smaller and faster models: candidates that are cut or quantized, measured alike, and chosen from."""
