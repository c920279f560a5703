"""`python -m bothways`."""

from bothways.cli import entry

entry()
