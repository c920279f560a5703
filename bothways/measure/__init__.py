"""Measuring: metrics and intervals, linear baselines, evaluation, reports."""
