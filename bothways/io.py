"""Writing so that a failure leaves the old file or directory, or the new one, never half of it."""

import errno
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

Made = TypeVar("Made")
SURROGATES = re.compile("[\ud800-\udfff]")
NOT_OURS = "lost+found"  # in the root of a new ext4 disk
OLD = ".old"  # ends the name of what a new directory is to replace


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
    beside, opened = _new(file, lambda path: path.open("x", encoding="utf-8", newline="\n"))
    try:
        with opened:
            opened.write(text)
            opened.flush()
            os.fsync(opened.fileno())
        os.replace(beside, file)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


@contextmanager
def atomic_directory(target: Path, *, marker: str = "config.json") -> Iterator[Path]:
    """A new directory, which replaces the target when the block ends well and is removed otherwise. OSError where it
    cannot be written.

    Everything in it is synced first; a link is followed. A directory that cannot be renamed (a mount point, or one
    whose parent cannot be written) or that is the working directory keeps its place, and its entries are replaced:
    the marker, the file without which nobody reads the others, leaves first and arrives last.
    """
    target = target.resolve()
    beside, stays = _new_directory(target)
    try:
        yield beside
        for path in (*beside.rglob("*"), beside):
            sync(path)
        if stays:
            _replace_entries(target, beside, marker)
        else:
            _replace(target, beside)
        sync(target if stays else target.parent)
        for old in _set_aside(target):
            shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def set_aside(target: Path) -> Path | None:
    """What stood at a target before a replacement that was cut off; None if nothing is left of one."""
    places = _set_aside(target.resolve())
    return max(places, key=lambda place: place.stat().st_ctime_ns, default=None)  # which renaming sets


def remove_unfinished(target: Path) -> None:
    """Remove what killed writes of a target left beside it. Only for a caller that knows that nobody is writing it."""
    for place in _leftovers(target, target.parent):
        if place.suffix != OLD or target.exists():
            shutil.rmtree(place, ignore_errors=True) if place.is_dir() else place.unlink(missing_ok=True)


def entries(directory: Path) -> list[Path]:
    """What a directory holds, but for what the system or a write that was cut off left in it."""
    left = {directory / NOT_OURS, *_leftovers(directory.resolve(), directory)}
    return sorted(place for place in directory.iterdir() if place not in left)


def stamps(folders: Iterable[Path], endings: tuple[str, ...]) -> list[tuple[object, ...]]:
    """What changes when a file with such a name in one of these folders is written, moved or replaced."""
    found: list[tuple[object, ...]] = []
    for folder in folders:
        with suppress(OSError), os.scandir(folder) as files:
            for file in files:
                if file.name.endswith(endings):
                    now = file.stat()
                    found.append((file.path, now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns))
    return sorted(found)


def as_json(content: Any, indent: int | None = None) -> str:
    """As JSON that UTF-8 can hold: in ASCII where half of a character is in it, as names of files may have."""
    text = json.dumps(content, indent=indent, ensure_ascii=False)
    return text if text.isprintable() or not SURROGATES.search(text) else json.dumps(content, indent=indent)


def write_json(file: Path, content: Any) -> None:
    """Into a directory that is not in its place yet."""
    file.write_text(as_json(content, 2) + "\n", encoding="utf-8")


# --- inside -----------------------------------------------------------------------------------------------------------


def _new(target: Path, make: Callable[[Path], Made]) -> tuple[Path, Made]:
    """`.NAME.xxxxxxxx` beside a target, with the permissions the umask leaves (those of `tempfile` are the owner's)."""
    while True:
        path = target.with_name(f".{target.name}.{os.urandom(4).hex()}")
        try:
            return path, make(path)
        except FileExistsError:
            continue


def _leftovers(target: Path, *folders: Path) -> list[Path]:
    """What writes of a target that were cut off may have left in these folders."""
    name, places = re.compile(re.escape(f".{target.name}.") + r"[0-9a-f]{8}(\.old)?"), []
    for folder in folders:
        with suppress(OSError):  # not there, or not to be listed
            places += [place for place in folder.iterdir() if name.fullmatch(place.name)]
    return places


def _new_directory(target: Path) -> tuple[Path, bool]:
    """Where to write what is to become the target, and whether the target has to keep its place."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        beside, _ = _new(target, Path.mkdir)
    except OSError:
        if not target.is_dir():
            raise
    else:
        if not target.is_dir() or (_can_be_renamed(target, beside) and not _holds_working_directory(target)):
            return beside, False
        beside.rmdir()
    beside, _ = _new(target / target.name, Path.mkdir)
    return beside, True


def _can_be_renamed(target: Path, beside: Path) -> bool:
    """Asks the system without a change: a directory never takes the place of one that is not empty, which is found out
    last."""
    (beside / "entry").mkdir()
    try:
        os.rename(target, beside)
    except OSError as error:
        return error.errno in (errno.ENOTEMPTY, errno.EEXIST)
    finally:
        (beside / "entry").rmdir()
    raise AssertionError(f"{target} was renamed to {beside}, which was not empty")


def _holds_working_directory(target: Path) -> bool:
    try:
        return Path.cwd().is_relative_to(target)
    except FileNotFoundError:  # it was deleted
        return False


def _replace(target: Path, beside: Path) -> None:
    if not target.exists() or not any(target.iterdir()):
        beside.replace(target)
        return
    old = beside.with_name(beside.name + OLD)
    target.rename(old)
    try:
        beside.rename(target)
    except OSError:
        old.rename(target)
        raise


def _replace_entries(target: Path, beside: Path, marker: str) -> None:
    """By way of a whole copy of what stood there (of links, where the file system has them), so that one of the two is
    whole at any time."""
    new, old = [*beside.iterdir()], beside.with_name(beside.name + OLD)
    stood = entries(target)
    copy = beside / old.name
    copy.mkdir()
    for place in stood:
        if place.is_dir():
            shutil.copytree(place, copy / place.name, copy_function=_link)
        else:
            _link(place, copy / place.name)
    copy.rename(old)
    try:
        for place in sorted(stood, key=lambda place: place.name != marker):
            _remove(place)
        for place in sorted(new, key=lambda place: place.name == marker):
            place.rename(target / place.name)
    except OSError:
        for place in entries(target):
            _remove(place)
        for place in sorted(old.iterdir(), key=lambda place: place.name == marker):
            place.rename(target / place.name)
        old.rmdir()
        raise


def _link(source: str | Path, place: str | Path) -> None:
    try:
        os.link(source, place)
    except OSError:
        shutil.copy2(source, place)


def _remove(place: Path) -> None:
    shutil.rmtree(place) if place.is_dir() and not place.is_symlink() else place.unlink()


def _set_aside(target: Path) -> list[Path]:
    return [place for place in _leftovers(target, target.parent, target) if place.suffix == OLD]
