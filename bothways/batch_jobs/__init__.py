"""Files of any size through a model: rows in, results out, resumable."""
