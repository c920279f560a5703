"""Smaller and faster models: int8 quantization."""
