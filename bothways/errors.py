"""The one error a user's mistake raises: what was found, what was expected, and the way out, in one line."""


class InputError(ValueError):
    """Something given to Bothways cannot be used. The command line prints the message alone and exits with status 1."""


class MissingFile(InputError, FileNotFoundError):
    """A file or directory that was named is not there."""
