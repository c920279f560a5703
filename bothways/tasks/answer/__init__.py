"""Extractive question answering on SQuAD 1.1 and 2.0 (Devlin 2018, sections 4.2 and 4.3)."""
