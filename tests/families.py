"""The families that tests go through."""

from bothways.model.families import FAMILIES

# Static vectors have no layers, and are not pre-trained.
WITH_LAYERS = [name for name in FAMILIES if name != "static"]
# XLM-RoBERTa is RoBERTa with another vocabulary; a one-way model fills no masks.
ENCODERS = [name for name in WITH_LAYERS if name not in ("xlm-roberta", "bothways-oneway")]
ABSOLUTE = [name for name in ENCODERS if not name.startswith("deberta")]  # without relative positions
