"""Archives that depend on the commit alone: sorted, with its time, and without facts of the machine.

setuptools writes into archives when and where they were built: times and modes of files, the name of the user. The
bytes still depend on the versions of setuptools, which the file WHEEL names, and of zlib.
"""

import base64
import csv
import gzip
import hashlib
import io
import os
import re
import stat
import subprocess
import tarfile
import zipfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

VARIABLE = "SOURCE_DATE_EPOCH"  # of all reproducible builds; in a source archive, also the file with the time
EARLIEST = 315532800  # 1980-01-01, the first day that a zip file can name
ANY_PLATFORM = "any"  # in the name of a wheel


def source_date(root: Path) -> int:
    """Seconds since 1970 that a build gives to its files.

    The variable SOURCE_DATE_EPOCH; else the file of this name, in an unpacked source archive; else the time of the
    commit, in a checkout; else 1980.
    """
    if value := os.environ.get(VARIABLE):
        return max(EARLIEST, int(value))
    if (root / VARIABLE).is_file():
        return int((root / VARIABLE).read_text(encoding="ascii"))
    if (root / ".git").exists():  # a file, in a worktree
        command = ["git", "-C", str(root), "log", "-1", "--format=%ct"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return EARLIEST
        return max(EARLIEST, int(done.stdout))
    return EARLIEST


def add_files(wheel: Path, folder: Path, files: Mapping[str, bytes], platform: str = ANY_PLATFORM) -> Path:
    """A wheel in a folder: the given one with more files, and its list of files, RECORD, made anew.

    wheel: of all platforms; its name ends in "-any.whl".
    files: contents by name.
    platform: of the files, such as "linux_x86_64"; the name of the new wheel and its file WHEEL have it.
    """
    with zipfile.ZipFile(wheel) as archive:
        contents = {entry.filename: archive.read(entry) for entry in archive.infolist() if not entry.is_dir()}
    contents |= files

    (record,) = (name for name in contents if name.endswith(".dist-info/RECORD"))
    if platform != ANY_PLATFORM:
        facts = record.replace("/RECORD", "/WHEEL")
        text = contents[facts].decode("ascii")
        text = re.sub(r"^(Tag: .+)-any$", rf"\1-{platform}", text, flags=re.MULTILINE)
        text = re.sub(r"^Root-Is-Purelib: true$", "Root-Is-Purelib: false", text, flags=re.MULTILINE)
        contents[facts] = text.encode("ascii")
    contents[record] = _record(contents, record)

    target = folder / f"{wheel.name.removesuffix('-any.whl')}-{platform}.whl"
    with zipfile.ZipFile(target, "w") as archive:  # not compressed: rewrite_wheel does that
        for name, content in contents.items():
            archive.writestr(name, content)
    return target


def _record(contents: Mapping[str, bytes], record: str) -> bytes:
    """The file RECORD: each file with checksum and size, and itself without."""
    written = io.StringIO()
    lines = csv.writer(written, lineterminator="\n")
    for name in sorted(contents.keys() - {record}):
        checksum = base64.urlsafe_b64encode(hashlib.sha256(contents[name]).digest()).rstrip(b"=").decode("ascii")
        lines.writerow([name, f"sha256={checksum}", len(contents[name])])
    lines.writerow([record, "", ""])
    return written.getvalue().encode("utf-8")


def rewrite_wheel(wheel: Path, seconds: int) -> None:
    """Sort the files, those about the package last (as PEP 427 recommends), and leave out facts of this machine."""
    moment = datetime.fromtimestamp(seconds, UTC).timetuple()[:6]
    with zipfile.ZipFile(wheel) as archive:
        contents = {entry.filename: archive.read(entry) for entry in archive.infolist() if not entry.is_dir()}

    def place(name: str) -> tuple[bool, bool, str]:
        return ".dist-info/" in name, name.endswith(".dist-info/RECORD"), name

    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(contents, key=place):
            entry = zipfile.ZipInfo(name, moment)
            entry.create_system = 3  # Unix, wherever it was built
            entry.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(entry, contents[name], zipfile.ZIP_DEFLATED)


def rewrite_sdist(archive: Path, seconds: int) -> None:
    """Sort the files, add the file with the time, and leave out facts of this machine."""
    contents: dict[str, tuple[bytes, int]] = {}
    with tarfile.open(archive) as opened:
        for entry in opened:
            if entry.isfile():
                contents[entry.name] = (opened.extractfile(entry).read(), entry.mode)
    top = next(iter(contents)).partition("/")[0]
    contents[f"{top}/{VARIABLE}"] = (f"{seconds}\n".encode("ascii"), 0o644)

    written = io.BytesIO()
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=written, mtime=seconds) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as opened,
    ):
        for name in sorted(contents):
            content, mode = contents[name]
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            entry.mtime = seconds
            entry.mode = 0o755 if mode & stat.S_IXUSR else 0o644
            opened.addfile(entry, io.BytesIO(content))
    archive.write_bytes(written.getvalue())
