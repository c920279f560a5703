"""Text classification, single-label and multi-label (Devlin 2018, section 4.1)."""
