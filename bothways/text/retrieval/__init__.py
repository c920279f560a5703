"""Search by words: terms of texts, BM25 over inverted lists, fusion with vectors, and collections in memory."""
