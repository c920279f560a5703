"""Sentence embeddings from matching pairs (contrastive) or scored pairs (Reimers 2019)."""
