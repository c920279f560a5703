"""Evaluation of models and predictions: one evaluator per task."""
