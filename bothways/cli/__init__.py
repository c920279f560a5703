"""The command line: `bothways VERB ...`."""
