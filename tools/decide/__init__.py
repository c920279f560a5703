"""The recipe of the head of statements in the package: `python -m tools.decide -o DIR`."""
