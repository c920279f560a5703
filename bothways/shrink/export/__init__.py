"""ONNX export, verified by comparing scores with the original."""
