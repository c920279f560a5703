"""The C sources of this folder, and the name of the library that they make: a library of other sources is never loaded.

build.py loads this file by its path, so that it imports the standard library alone.
"""

import hashlib
from pathlib import Path


def sources(folder: Path) -> list[Path]:
    """The C files of the folder, sorted by name."""
    return sorted([*folder.glob("*.c"), *folder.glob("*.h")], key=lambda path: path.name)


def digest(folder: Path) -> str:
    """12 hex digits that depend on the names and the bytes of the C files."""
    hashed = hashlib.sha256()
    for path in sources(folder):
        content = path.read_bytes()
        # With the lengths, so that no byte can pass from a name or a file to the next.
        hashed.update(f"{path.name}\n{len(content)}\n".encode())
        hashed.update(content)
    return hashed.hexdigest()[:12]


def library_name(folder: Path, suffix: str) -> str:
    """The name of the library that these sources make. suffix: ".so", ".dylib" or ".dll"."""
    return f"libcore-{digest(folder)}{suffix}"
