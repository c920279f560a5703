"""Search over folders: readers of files, passages, a store with words and vectors, ranking. Without torch, unless an encoder is used."""
