"""Whether a text follows another (next-sentence prediction, Devlin 2018), which pre-training teaches."""
