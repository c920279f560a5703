"""`python -m bothways`."""

from bothways.cli import main

main()
