"""`python -m bothways`."""

from bothways.cli.main import entry

entry()
