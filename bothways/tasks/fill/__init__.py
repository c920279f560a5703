"""Filling masked words (cloze), which pre-training teaches."""
