"""Distillation of a smaller encoder from a teacher, on unlabelled text."""
