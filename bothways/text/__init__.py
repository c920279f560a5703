"""Text: tokenizers, rows and files, corpora, batches."""
