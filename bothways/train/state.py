"""What a run leaves on disk: `bothways.json` (what it is and how it was made) and `metrics.jsonl` (one object a
line)."""

import json
import os
import platform
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy
import torch

import bothways
from bothways.checkpoint import MADE, refuse_strangers
from bothways.errors import InputError

METRICS = "metrics.jsonl"


class Run:
    """A run's directory. Made new: InputError where something stands there already."""

    def __init__(self, directory: Path, verb: str, settings: Any) -> None:
        refuse_strangers(directory, holds=MADE)
        if (directory / MADE).exists():
            raise InputError(f"{directory}: holds a run already; name a new directory, or delete that one")
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        given = {key: _plain(value) for key, value in asdict(settings).items()}
        self.made: dict[str, Any] = {"verb": verb, "settings": given, "versions": versions(), "started": now()}
        self.note(status="running")

    def note(self, **facts: Any) -> None:
        """Add facts to bothways.json; a failed write leaves the old file."""
        self.made |= {key: _plain(value) for key, value in facts.items()}
        write_whole(self.directory / MADE, json.dumps(self.made, indent=2, ensure_ascii=False) + "\n")

    @property
    def origin(self) -> dict[str, Any]:
        """How what the run made came to be: the facts so far but the run's own status, for a checkpoint to keep."""
        return {key: value for key, value in self.made.items() if key != "status"}

    def metric(self, **row: Any) -> None:
        """Append one object to metrics.jsonl."""
        with (self.directory / METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        return read_metrics(self.directory)


def read_metrics(directory: Path) -> list[dict[str, Any]]:
    file = directory / METRICS
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


def write_whole(file: Path, text: str) -> None:
    """Write beside, sync, rename: the file is the old one or the new one, never half of it."""
    descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as beside:
            beside.write(text)
            beside.flush()
            os.fsync(descriptor)
        os.chmod(name, 0o644)
        os.replace(name, file)
    except BaseException:
        os.unlink(name)
        raise


def versions() -> dict[str, str]:
    return {
        "bothways": bothways.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
    }


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return str(value) if isinstance(value, Path) else value
