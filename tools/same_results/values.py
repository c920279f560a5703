"""Values that are compared: outputs, files and results of calls, without what depends on time, machine or place."""

import csv
import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

MEASURED = {  # keys of values that depend on time or machine
    "began",
    "created",
    "date",
    "energy",
    "gpu_seconds",
    "host",
    "hours",
    "kwh",
    "machine",
    "memory",
    "minutes",
    "mb",
    "ms",
    "peak_flops",
    "process",
    "processor",
    "seconds",
    "seconds_per_step",
    "speed",
    "started",
    "threads",
    "tokens_per_second",
    "texts_per_second",
    "torch",
    "utilization",
    "versions",
    "watts",
    "watt_hours",
}
SPEEDS = re.compile(r"(?<=MB)\s+\d+(?=\s)|\b\d+(?= against )|(?<=%)\s+\d\.\d\d(?=\s)")  # in printed tables
LARGE = 100_000  # bytes; of a larger file the hash is compared
TIMES = re.compile(r"\b\d[\d.,]*\s?(?:ms|s|seconds?|minutes?|min|hours?|h|(?:tokens|texts|MB|rows|KB)/s|W|Wh|J)(?!\w)")
SKIPPED = {".png", ".svg", ".html", ".pt", ".lock", ".log", ".db", ".sqlite"}


def scrub(value: Any) -> Any:
    """The value without what depends on time, machine or place."""
    if isinstance(value, Mapping):
        return {str(key): scrub(one) for key, one in value.items() if key not in MEASURED}
    if isinstance(value, list | tuple):
        return [scrub(one) for one in value]
    return scrub_text(value) if isinstance(value, str) else value


def scrub_text(text: str) -> str:
    for path, name in ((Path.cwd(), "PLACE"), (Path(os.environ["SAME_RESULTS_CHECKOUT"]), "CHECKOUT")):
        text = text.replace(str(path.resolve()), name).replace(str(path), name)
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", text)
    text = re.sub(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)?)?", "DATE", text)
    return SPEEDS.sub(" SPEED", TIMES.sub("TIME", text))


def contents(file: Path) -> Any:
    """The part of a file that is compared."""
    if file.stat().st_size > LARGE:
        return f"sha256 {hashlib.sha256(file.read_bytes()).hexdigest()}"
    if file.suffix == ".json":
        return scrub(json.loads(file.read_text(encoding="utf-8")))
    if file.suffix == ".jsonl":
        return [scrub(json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]
    if file.suffix in (".csv", ".tsv"):
        with file.open(encoding="utf-8", newline="") as lines:
            return [[number(cell) for cell in row] for row in csv.reader(lines)]
    if file.suffix == ".npy":
        import numpy as np

        array = np.load(file)
        return {"dtype": str(array.dtype), "rows": array.tolist()}
    if file.suffix in (".txt", ".md"):
        return [scrub_text(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return f"sha256 {hashlib.sha256(file.read_bytes()).hexdigest()}"


def number(cell: str) -> Any:
    try:
        return float(cell)
    except ValueError:
        return scrub_text(cell)


def files(directory: Path) -> dict[str, Any]:
    """Contents of all files of a run, by path."""
    found = sorted(path for path in directory.rglob("*") if path.is_file())
    return {
        str(path.relative_to(directory)): "" if path.suffix in SKIPPED else contents(path)
        for path in found
        if "checkpoint" not in path.relative_to(directory).parts[0] or path.suffix == ".safetensors"
    }


def plain(value: Any) -> Any:
    """The value of a public call as JSON."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value if isinstance(value, str | int | float | bool | None) else scrub_text(str(value))
