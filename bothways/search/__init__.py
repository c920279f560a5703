"""Search in folders: readers of files, passages, a store of words and vectors, ranking; without torch, but for encoders."""
