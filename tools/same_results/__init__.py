"""Compares the results of two checkouts of this repository; see `__main__`."""
