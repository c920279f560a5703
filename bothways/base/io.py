"""Files: JSON that is checked as it is read, and atomic writes of files and directories, of which readers see the old
version or the new one."""

import errno
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from os.path import exists
from pathlib import Path
from stat import S_ISREG
from typing import Any, TextIO, TypeVar

from bothways.base.errors import InputError, MissingFile

T = TypeVar("T")
SURROGATES = re.compile("[\ud800-\udfff]")
LOST_AND_FOUND = "lost+found"  # in the root of a new ext4 disk
BACKUP_SUFFIX = ".old"  # suffix of a directory that is being replaced
MAX_DEPTH = 100  # nesting of lists and objects in a JSON file
WRITTEN: list[Callable[[Path, str], None]] = []  # called with each file that is complete, or directory and its marker


# --- reading ----------------------------------------------------------------------------------------------------------


def is_same_file(one: Path, other: Path) -> bool:
    """Whether two paths, absolute, relative or links, are of one file."""
    return one.resolve() == other.resolve()


def check_regular_file(file: Path) -> None:
    """InputError for anything but a regular file: a directory, or a pipe or device, which may never end."""
    if not S_ISREG(file.stat().st_mode):
        raise InputError(f"{file}: not a regular file")


def read_bytes(file: Path) -> bytes:
    """The content of a regular file. InputError if it does not exist or is a pipe or device."""
    try:
        check_regular_file(file)
        return file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise MissingFile(f"{file}: no such file; check the path") from None


def read_text(file: Path) -> str:
    """The text of a UTF-8 file. InputError names the first invalid byte."""
    try:
        return read_bytes(file).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: not UTF-8 at byte {error.start}; convert it to UTF-8 first") from None


def read_json_value(file: Path) -> Any:
    """Read any JSON value. InputError names the line of a syntax error, or rejects values nested deeper than MAX_DEPTH
    and numbers with thousands of digits."""
    text = read_text(file)
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{file}:{error.lineno}: not valid JSON ({error.msg}); download the file again") from None
    except (ValueError, RecursionError):
        raise InputError(f"{file}: values nested too deeply or a number too long; download the file again") from None
    if _is_deeper(value, MAX_DEPTH):
        raise InputError(f"{file}: values nested deeper than {MAX_DEPTH}; download the file again")
    return value


def _is_deeper(value: Any, depth: int) -> bool:
    """Whether lists and objects are nested deeper than this; without recursion, whose limit they could exceed."""
    level = [value] if type(value) is dict or type(value) is list else []
    for _ in range(depth):
        inner: list[Any] = []
        for parent in level:
            for child in parent.values() if type(parent) is dict else parent:
                if type(child) is dict or type(child) is list:
                    inner.append(child)
        level = inner
    return bool(level)


def read_json(file: Path) -> dict[str, Any]:
    """Read a JSON object. InputError for any other value."""
    return _check_object(read_json_value(file), file)


def _check_object(value: Any, file: Path) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{file}: expected a JSON object, found {type(value).__name__}; download the file again")
    return value


def get_object(content: Mapping[str, Any], name: str, file: Path) -> dict[str, Any]:
    """The JSON object `name` of another; empty if it is missing or null."""
    value = content.get(name) or {}
    if not isinstance(value, dict):
        raise InputError(f"{file}: {name} must be a JSON object, found {type(value).__name__}")
    return value


class Files:
    """The files of a directory and its folders. A folder is listed once, and a JSON file is read once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._names: dict[str, set[str]] = {}  # by folder
        self._values: dict[Path, Any] = {}  # by JSON file

    def has(self, name: str) -> bool:
        """Whether there is a file NAME or FOLDER/NAME."""
        folder, _, last = name.rpartition("/")
        if folder not in self._names:
            self._names[folder] = set()
            with suppress(OSError, ValueError), os.scandir(self.path / folder) as entries:
                # A link to nothing is no file.
                self._names[folder] = {entry.name for entry in entries if not entry.is_symlink() or exists(entry)}
        return last in self._names[folder]

    def value(self, name: str) -> Any:
        """The value in a JSON file, which exists."""
        file = self.path / name
        if file not in self._values:
            self._values[file] = read_json_value(file)
        return self._values[file]

    def json(self, name: str) -> dict[str, Any]:
        """The object in a JSON file; empty if there is no such file. InputError for any other value."""
        if not self.has(name):
            return {}
        return _check_object(self.value(name), self.path / name)

    def read(self, file: Path) -> dict[str, Any]:
        """As `read_json`, of a file in the directory."""
        name = file.relative_to(self.path).as_posix()
        return _check_object(self.value(name), file)


# --- writing ----------------------------------------------------------------------------------------------------------


def fsync(path: Path) -> None:
    """Flush a file, or the entries of a directory, to disk."""
    is_directory = path.is_dir()
    try:
        # Windows flushes no file that is open for reading only.
        descriptor = os.open(path, os.O_RDONLY if is_directory else os.O_RDWR)
    except PermissionError:
        if is_directory:  # which Windows does not open, and writes itself
            return
        raise

    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def full_disk_named(target: Path) -> Iterator[None]:
    """Name the target in errors of a full disk or an exceeded quota, which have no path of their own."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT) or os.strerror(errno.ENOSPC) in reason
        if not is_full or error.filename is not None or str(target) in reason:
            raise

        named_error = OSError(f"{target}: cannot be written ({reason}); free some space, and run it again")
        named_error.errno = error.errno
        raise named_error from None


def reserve_space(file: Path, size: int) -> None:
    """Allocate `size` bytes of disk space in a placeholder file; delete it to free them for a later write.

    OSError if the disk has too little space.
    """
    with file.open("wb") as opened:
        try:
            if hasattr(os, "posix_fallocate"):  # not on macOS
                os.posix_fallocate(opened.fileno(), 0, size)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):  # the file system does not support allocation
                return
            file.unlink()
            raise OSError(f"{file}: cannot reserve {size / 1e6:,.0f} MB ({error.strerror}); free some space") from None


def write_atomic(file: Path, text: str) -> None:
    """Write a UTF-8 text file atomically: to a temporary file in the same directory, flushed, then renamed."""

    def create(path: Path) -> TextIO:
        return path.open("x", encoding="utf-8", newline="\n")

    with full_disk_named(file):
        temporary, opened = _create_temporary(file, create)
        try:
            with opened:
                opened.write(text)
                opened.flush()
                os.fsync(opened.fileno())
            os.replace(temporary, file)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    for notify in WRITTEN:
        notify(file, "")


@contextmanager
def atomic_directory(target: Path, *, marker: str = "config.json") -> Iterator[Path]:
    """Yield a new directory that replaces the target if the block succeeds, and is removed if it fails.

    All files are flushed to disk first; symbolic links are followed. Some directories cannot be renamed: a mount point,
    one whose parent is read-only, and the working directory. Their entries are replaced instead. The marker, a file
    without which readers ignore the others, is then removed first and added last. OSError if writing fails.
    """
    target = target.resolve()
    temporary, in_place = _create_directory(target)
    try:
        with full_disk_named(target):
            yield temporary

        for path in (*temporary.rglob("*"), temporary):
            fsync(path)
        if in_place:
            _replace_entries(target, temporary, marker)
            fsync(target)
        else:
            _replace(target, temporary)
            fsync(target.parent)

        for backup in _find_backups(target):
            shutil.rmtree(backup, ignore_errors=True)
        for notify in WRITTEN:
            notify(target, marker)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def find_backup(target: Path) -> Path | None:
    """The latest backup of a target whose replacement was interrupted; None if there is none."""
    backups = _find_backups(target.resolve())
    return max(backups, key=lambda path: path.stat().st_ctime_ns, default=None)  # renaming sets ctime


def remove_leftovers(target: Path) -> None:
    """Remove temporary files of interrupted writes. The caller must ensure that no process is writing the target."""
    for path in _find_leftovers(target, target.parent):
        if path.suffix == BACKUP_SUFFIX and not target.exists():
            continue  # the only copy: the process was killed between two renames
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def list_entries(directory: Path) -> list[Path]:
    """The entries of a directory, without lost+found and temporary files of interrupted writes."""
    ignored = {directory / LOST_AND_FOUND, *_find_leftovers(directory.resolve(), directory)}
    return sorted(path for path in directory.iterdir() if path not in ignored)


def check_target(target: Path, *, holds: str) -> None:
    """InputError if a directory is not empty and lacks a file named `holds`, or cannot be written."""
    above = next(path for path in (target, *target.absolute().parents) if path.exists())
    if not above.is_dir():
        raise InputError(f"{above}: an existing file; pass a directory")

    directories = [above]
    if above == target:
        directories.append(target.resolve().parent)
        entries = list_entries(target)
        if entries and not (target / holds).exists():
            raise InputError(f"{target}: contains other files ({entries[0].name}); pass a new or empty directory")
    if not any(os.access(directory, os.W_OK | os.X_OK) for directory in directories):
        raise InputError(f"{target}: no permission to write in {above}; pass another directory")


def stat_files(directories: Iterable[Path], suffixes: tuple[str, ...]) -> list[tuple[object, ...]]:
    """Path, device, inode, size and mtime of all files with these suffixes, to detect changes by comparison."""
    stats: list[tuple[object, ...]] = []
    for directory in directories:
        with suppress(OSError), os.scandir(directory) as files:
            for file in files:
                if file.name.endswith(suffixes):
                    stat = file.stat()
                    stats.append((file.path, stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns))
    return sorted(stats)


def to_json(content: Any, indent: int | None = None) -> str:
    """JSON that UTF-8 can encode: escaped to ASCII if it has lone surrogates, as some file names do."""
    text = json.dumps(content, indent=indent, ensure_ascii=False)
    # Printable text has no surrogates, and is faster to test.
    if text.isprintable() or not SURROGATES.search(text):
        return text
    return json.dumps(content, indent=indent)


def write_json(file: Path, content: Any) -> None:
    """Write indented JSON. Not atomic: meant for files inside an `atomic_directory`."""
    file.write_text(to_json(content, 2) + "\n", encoding="utf-8")


def cache_directory() -> Path:
    """The cache directory: $BOTHWAYS_CACHE, else `bothways` in $XDG_CACHE_HOME or ~/.cache."""
    path = os.environ.get("BOTHWAYS_CACHE")
    if path:
        return Path(path)
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "bothways"


def unpacked_directory() -> Path:
    """Where packed models have their weights in float32, each in a file named by the checksum of the packed ones."""
    return cache_directory() / "unpacked"


def cache_bytes() -> int:
    """How much of the token stores in object storage may be on the local disk: $BOTHWAYS_CACHE_GB of 10^9 bytes, else
    20. InputError if that is not a number."""
    text = os.environ.get("BOTHWAYS_CACHE_GB", "") or "20"
    try:
        return int(float(text) * 1e9)
    except ValueError:
        raise InputError(f"BOTHWAYS_CACHE_GB ({text}) must be a number of gigabytes, such as 20") from None


# --- helpers ----------------------------------------------------------------------------------------------------------


def _create_temporary(target: Path, create: Callable[[Path], T]) -> tuple[Path, T]:
    """Create `.NAME.xxxxxxxx` next to a target. Unlike with `tempfile`, its permissions follow the umask."""
    while True:
        path = target.with_name(f".{target.name}.{os.urandom(4).hex()}")
        try:
            return path, create(path)
        except FileExistsError:
            continue


def _find_leftovers(target: Path, *directories: Path) -> list[Path]:
    """Temporary files and backups of interrupted writes of a target."""
    pattern = re.compile(re.escape(f".{target.name}.") + r"[0-9a-f]{8}(\.old)?")
    paths: list[Path] = []
    for directory in directories:
        with suppress(OSError):  # missing or unreadable
            paths += [path for path in directory.iterdir() if pattern.fullmatch(path.name)]
    return paths


def _create_directory(target: Path) -> tuple[Path, bool]:
    """A temporary directory for the new content, and whether the target must be replaced entry by entry."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        temporary, _ = _create_temporary(target, Path.mkdir)
    except OSError:
        if not target.is_dir():
            raise
    else:
        if not target.is_dir():
            return temporary, False
        if _can_rename(target, temporary) and not _contains_working_directory(target):
            return temporary, False
        temporary.rmdir()

    temporary, _ = _create_temporary(target / target.name, Path.mkdir)
    return temporary, True


def _can_rename(target: Path, temporary: Path) -> bool:
    """Try to rename the target onto a non-empty directory, which always fails; the error shows whether it could move.

    "Not empty" is the last check of the system, so that error means that all others passed.
    """
    (temporary / "entry").mkdir()
    try:
        os.rename(target, temporary)
    except OSError as error:
        return error.errno in (errno.ENOTEMPTY, errno.EEXIST)
    finally:
        (temporary / "entry").rmdir()
    raise AssertionError(f"{target} was renamed to {temporary}, which was not empty")


def _contains_working_directory(target: Path) -> bool:
    try:
        return Path.cwd().is_relative_to(target)
    except FileNotFoundError:  # the working directory was deleted
        return False


def _replace(target: Path, temporary: Path) -> None:
    if not target.exists() or not any(target.iterdir()):
        temporary.replace(target)
        return

    backup = temporary.with_name(temporary.name + BACKUP_SUFFIX)
    target.rename(backup)
    try:
        temporary.rename(target)
    except OSError:
        backup.rename(target)
        raise


def _replace_entries(target: Path, temporary: Path, marker: str) -> None:
    """Replace the entries of a directory. A backup (hard links if possible) keeps one complete copy at any time."""
    new_entries = [*temporary.iterdir()]
    old_entries = list_entries(target)

    # The backup gets its name when it is complete.
    backup = temporary.with_name(temporary.name + BACKUP_SUFFIX)
    copy = temporary / backup.name
    copy.mkdir()
    for path in old_entries:
        if path.is_dir():
            shutil.copytree(path, copy / path.name, copy_function=_link)
        else:
            _link(path, copy / path.name)
    copy.rename(backup)

    try:
        for path in sorted(old_entries, key=lambda path: path.name != marker):
            _remove(path)
        for path in sorted(new_entries, key=lambda path: path.name == marker):
            path.rename(target / path.name)
    except OSError:
        for path in list_entries(target):
            _remove(path)
        for path in sorted(backup.iterdir(), key=lambda path: path.name == marker):
            path.rename(target / path.name)
        backup.rmdir()
        raise


def _link(source: str | Path, destination: str | Path) -> None:
    try:
        os.link(source, destination)
    except OSError:
        shutil.copy2(source, destination)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _find_backups(target: Path) -> list[Path]:
    return [path for path in _find_leftovers(target, target.parent, target) if path.suffix == BACKUP_SUFFIX]
