"""Models as ONNX, compared with ours."""
