"""Reranking: a cross-encoder reads a query and a passage together and gives one score (Nogueira and Cho 2019)."""
