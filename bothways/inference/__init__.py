"""Predictor: texts in; labels, entities, answers and vectors out."""
