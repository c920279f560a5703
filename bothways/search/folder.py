"""The files of a folder that can be searched: without hidden and ignored ones, and without links that lead outside."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bothways.data.text_files import file_type, is_compressed
from bothways.search.globs import matches

IGNORE_FILES = (".gitignore", ".ignore")
# Files that hold no text, by their suffix: they are not even opened.
BINARY = frozenset(
    ".7z .a .aac .avi .bin .bmp .bz2 .class .db .dll .dmg .doc .dylib .ear .egg .eot .exe .f32 .flac .gif .gz .heic "
    ".ico .iso .jar .jpeg .jpg .lib .m4a .mkv .mov .mp3 .mp4 .mpeg .npy .npz .o .ods .odt .ogg .onnx .otf .pickle .pkl "
    ".png .ppt .pptx .psd .pt .pth .pyc .rar .rpm .safetensors .so .sqlite .svg .tar .tgz .tif .tiff .ttf .wasm .wav "
    ".webm .webp .whl .wmv .woff .woff2 .xls .xlsx .xz .zip .zst".split()
)


@dataclass(frozen=True)
class FoundFile:
    """A file. relative: its path in the folder, with /; "" if it was named itself. modified_ns: nanoseconds."""

    path: Path
    relative: str
    size: int
    modified_ns: int


def find_documents(folder: Path, *, globs: Sequence[str] = (), skip: Path | None = None) -> Iterator[FoundFile]:
    """The files of a folder in the order of their paths, or the one file that it is. globs: see `matches`. skip: a
    folder that is left out, such as that of the index.

    Hidden files and those that .gitignore or .ignore names are left out. A link is followed if it leads to a place
    inside the folder, and a place is read once.
    """
    root = folder.resolve()
    if root.is_file():
        state = root.stat()
        yield FoundFile(root, "", state.st_size, state.st_mtime_ns)
        return
    seen: set[tuple[int, int]] = set()
    yield from _walk(root, root, "", [], seen, globs, skip.resolve() if skip else None)


def _walk(
    root: Path,
    folder: Path,
    prefix: str,
    ignores: list[tuple[str, Any]],
    seen: set[tuple[int, int]],
    globs: Sequence[str],
    skip: Path | None,
) -> Iterator[FoundFile]:
    """ignores: (prefix of their folder, patterns) of the ignore files above."""
    try:
        state = folder.stat()
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    if (state.st_dev, state.st_ino) in seen or folder == skip:
        return
    seen.add((state.st_dev, state.st_ino))
    ignores = [*ignores, *((prefix, patterns) for patterns in _patterns(folder, {entry.name for entry in entries}))]
    for entry in entries:
        relative = prefix + entry.name
        if entry.name.startswith(".") or (entry.is_symlink() and not _leads_inside(entry.path, root)):
            continue
        try:
            is_folder = entry.is_dir()
            if _is_ignored(relative, is_folder, ignores):
                continue
            if is_folder:
                yield from _walk(root, Path(entry.path), f"{relative}/", ignores, seen, globs, skip)
            elif entry.is_file() and _is_text(entry.name) and matches(relative, globs):
                state = entry.stat()
                if (state.st_dev, state.st_ino) not in seen or not entry.is_symlink():
                    seen.add((state.st_dev, state.st_ino))
                    yield FoundFile(Path(entry.path), relative, state.st_size, state.st_mtime_ns)
        except OSError:  # it was removed meanwhile
            continue


def _is_text(name: str) -> bool:
    path = Path(name)
    suffix = path.suffix.lower()
    if is_compressed(path):  # notes.txt.gz is text, archive.gz is not known to be
        suffix = file_type(path)
        return bool(suffix) and suffix not in BINARY
    return suffix not in BINARY


def _leads_inside(path: str, root: Path) -> bool:
    try:
        return Path(path).resolve(strict=True).is_relative_to(root)
    except (OSError, RuntimeError):
        return False


def _patterns(folder: Path, names: set[str]) -> Iterator[Any]:
    for name in IGNORE_FILES:
        if name in names:
            from pathspec import GitIgnoreSpec

            try:
                lines = (folder / name).read_text(encoding="utf-8", errors="replace").splitlines()
                yield GitIgnoreSpec.from_lines(lines)
            except (OSError, ValueError):
                continue


def _is_ignored(relative: str, is_folder: bool, ignores: Sequence[tuple[str, Any]]) -> bool:
    """Whether the ignore files above name it; the nearest one that says anything decides."""
    for prefix, patterns in reversed(ignores):
        result = patterns.check_file(relative.removeprefix(prefix) + ("/" if is_folder else ""))
        if result.include is not None:
            return bool(result.include)
    return False
