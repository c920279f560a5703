"""The families that tests go through."""

from bothways.model.families import FAMILIES

# XLM-RoBERTa is RoBERTa with another vocabulary; a one-way model fills no masks; static vectors have no layers.
ENCODERS = [name for name in FAMILIES if name not in ("xlm-roberta", "bothways-oneway", "static")]
ABSOLUTE = [name for name in ENCODERS if not name.startswith("deberta")]  # without relative positions
