"""Search in folders: readers of files, passages, a store of words and vectors, ranking; torch only for encoders."""
