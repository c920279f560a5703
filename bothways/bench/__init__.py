"""Speed benchmark beside other libraries on the same model and texts."""
