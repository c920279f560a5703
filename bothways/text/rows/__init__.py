"""Reading sources: files, datasets and tables in memory -> located rows of values."""
