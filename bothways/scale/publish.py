"""The directory of a job in parts: what stands in it, and how files are put there once.

It has _plan.json, written once, with everything that the results depend on; part-00017-of-00400.parquet, which depends
on its part alone; _parts/part-00017-of-00400.json, written after it: the part is done when that exists; _skipped/, with
the rows that could not be used; and, when all parts are done, _manifest.json with their digests. Names that begin with
an underscore are ignored by readers of a directory of tables.
"""

import hashlib
import json
import os
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from bothways.base.errors import InputError, flag
from bothways.base.io import cache_directory, write_atomic
from bothways.base.paths import RemotePath
from bothways.inference.jobs.journal import Journal

PLAN = "_plan.json"
MANIFEST = "_manifest.json"
RECORDS = "_parts"
SKIPPED = "_skipped"
WORK = "_work"

REQUESTS = 32  # records that are read at a time


def check_directory(out: Path, *, resume: bool) -> None:
    """InputError if the directory is not for this job."""
    if (out / MANIFEST).is_file():
        raise InputError(f"{out}: is complete; name a new directory, or delete that one")
    if (out / PLAN).is_file():
        if not resume:
            raise InputError(f"{out}: was begun; continue with {flag('resume', True)}, or delete it to start again")
    elif out.is_dir() and (isinstance(out, RemotePath) or any(out.iterdir())):
        raise InputError(f"{out}: has other files; name a new directory")
    if not isinstance(out, RemotePath) and not out.parent.is_dir():
        raise InputError(f"{out.parent}: no such directory; make it, or name a directory elsewhere")


def done_parts(out: Path) -> set[str]:
    """The names of the parts that are done."""
    records = out / RECORDS
    files = records.files() if isinstance(records, RemotePath) else records.glob("part-*.json")
    return {file.stem for file in files}


def work_directory(out: Path) -> Path:
    """Where parts are unfinished: they are continued on the same machine."""
    key = hashlib.sha256(str(out).encode()).hexdigest()[:16]
    work = cache_directory() / "parts" / key if isinstance(out, RemotePath) else out / WORK
    work.mkdir(parents=True, exist_ok=True)
    return work


def publish(work: Path, target: Path, *, mixed: bool) -> tuple[int, str]:
    """Move a complete file to its place. Returns its size and digest; with `mixed`, of a file that is there already."""
    size = work.stat().st_size
    digest = digest_of(work)
    try:
        if isinstance(target, RemotePath):
            target.put(work, create=True)
        else:
            target.parent.mkdir(exist_ok=True)
            os.link(work, target)
    except FileExistsError:
        content = target.read_bytes()
        size = len(content)
        other = hashlib.sha256(content).hexdigest()
        if other != digest and not mixed:
            raise InputError(
                f"{target}: was computed before, with other bytes; use the same machines, or {flag('mixed', True)}"
            ) from None
        digest = other
    work.unlink()
    return size, digest


def create(path: Path, content: bytes) -> None:
    """Write a file as a whole. FileExistsError if it exists already; an object may exist with the same content."""
    if isinstance(path, RemotePath):
        path.put(content, create=True)
        return
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}")
    write_atomic(temporary, content.decode())
    try:
        os.link(temporary, path)
    finally:
        temporary.unlink()


def digest_of(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def write_manifest(out: Path, made_with: dict[str, Any], parts: Sequence[str]) -> Journal:
    """Write the manifest, with the records of all parts. Returns the counts of all parts."""
    files = [out / RECORDS / f"{part}.json" for part in parts]
    with ThreadPoolExecutor(REQUESTS) as pool:
        records = [json.loads(content) for content in pool.map(lambda file: file.read_bytes(), files)]
    totals = {name: sum(record[name] for record in records) for name in ("rows", "results", "skipped", "bytes")}
    manifest = {
        **totals,
        "is_mixed": any(record["differs"] for record in records),
        "made_with": made_with,
        "parts": records,
    }

    with suppress(FileExistsError):  # another process has ended at the same time
        create(out / MANIFEST, json.dumps(manifest, indent=1).encode())
    with suppress(OSError):  # another command is at work there
        work_directory(out).rmdir()
    return Journal(
        made_with,
        rows=totals["rows"],
        results=totals["results"],
        set_aside=totals["skipped"],
    )
