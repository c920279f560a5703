"""Locations of inputs and outputs: paths of the file system, for now.

A `Location` in settings is where something is read or written. Other places, such as s3://, are refused by name.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from bothways.errors import InputError
from bothways.settings.accepted import AnyPath, Converted

Location = Converted[Path, AnyPath]
OptionalLocation = Converted[Path | None, AnyPath | None]
Locations = Converted[tuple[Path, ...], AnyPath | Iterable[AnyPath]]
REMOTE = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+):/{1,2}([^/].*)", re.DOTALL)  # Path makes s3:/x of s3://x


def local_path(location: str) -> Path:
    """The path of a location. InputError for other places than the file system, such as object storage."""
    if remote := REMOTE.match(location):
        scheme, place = remote.groups()
        raise InputError(f"{scheme}://{place}: {scheme}:// is not supported yet; copy it to a local path")
    return Path(location)
