"""How good a model is: one evaluator a task."""
