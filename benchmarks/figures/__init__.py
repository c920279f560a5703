"""Scores from kept predictions, and the pages that state them: `make figures`.

scores.py turns arrays of labels into scores with intervals, by the metrics of the package. Each other module makes the
values and the tables of one kind of measurement. pages.py compares the pages with them.
"""
