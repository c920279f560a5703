"""ONNX export, with a check that the scores are the same."""
