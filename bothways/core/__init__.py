"""The encoder in C, for inference on a CPU: its sources, the build, and the modules that call it."""
