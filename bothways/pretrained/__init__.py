"""Models that come with the package: their names and directories."""

from os import PathLike
from pathlib import Path

DEFAULT = "bothways-en"
STATIC = "bothways-en-static"
NAMES = (DEFAULT, STATIC)


def locate(path: str | PathLike[str]) -> Path | None:
    """The directory of a packaged model of this name; None if there is none."""
    name = Path(path).as_posix()
    return Path(__file__).parent / name if name in NAMES else None
