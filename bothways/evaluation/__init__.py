"""Evaluation of models, of predictions in files and of search, by the evaluators of the tasks."""
