"""Backends of Predictor; `BACKENDS` (inference/load.py) has them by the format of a directory."""
