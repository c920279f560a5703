"""Speed benchmark against other libraries, on the same model and texts."""
