"""Writing so that a failure leaves the old file or the new one, never half of it."""

import errno
import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

SURROGATES = re.compile("[\ud800-\udfff]")


def sync(path: Path) -> None:
    """Have the system put a file, or a directory's names, on the disk now."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def reserve(file: Path, size: int) -> None:
    """Take up `size` bytes of the disk, for what is written much later once this file is removed. OSError if there is
    no room."""
    with file.open("wb") as opened:
        try:
            if hasattr(os, "posix_fallocate"):  # not on macOS
                os.posix_fallocate(opened.fileno(), 0, size)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):  # a file system that cannot promise room
                return
            file.unlink()
            raise OSError(f"{file}: {size / 1e6:,.0f} MB cannot be reserved ({error.strerror}); make room") from None


def write_whole(file: Path, text: str) -> None:
    """Write beside, sync, rename."""
    descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as beside:
            beside.write(text)
            beside.flush()
            os.fsync(descriptor)
        os.chmod(name, 0o644)
        os.replace(name, file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def as_json(content: Any, indent: int | None = None) -> str:
    """As JSON that UTF-8 can hold: in ASCII where half of a character is in it, as names of files may have."""
    text = json.dumps(content, indent=indent, ensure_ascii=False)
    return text if text.isprintable() or not SURROGATES.search(text) else json.dumps(content, indent=indent)


def write_json(file: Path, content: Any) -> None:
    """Into a directory that is not in its place yet."""
    file.write_text(as_json(content, 2) + "\n", encoding="utf-8")
