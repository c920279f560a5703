"""Measurements: what was predicted on public sets, kept in docs/measurements, so that anyone can compute the scores.

A measurement is two files. NAME.json says how it was made: the model, the command, the seeds, the date, the machine and
the commit of the code. NAME.npz has its arrays (numpy reads them): right labels and predicted ones as numbers, their
probabilities, ranks of documents. A figure of speed has no arrays: its numbers are in the field "figures" of NAME.json.

`make figures` (benchmarks/figures) computes the scores from these files, and compares the pages with them.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from bothways.base.device import num_cores, processor_name

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "measurements"
MOST_BYTES = 6_000_000  # of the whole folder


@dataclass(frozen=True)
class Measurement:
    """about: the fields of NAME.json. arrays: the arrays of NAME.npz by name."""

    name: str
    about: dict[str, Any]
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    def __getitem__(self, name: str) -> np.ndarray:
        return self.arrays[name]


def read(name: str, folder: Path = FOLDER) -> Measurement:
    about = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    if not (folder / f"{name}.npz").exists():
        return Measurement(name, about)

    with np.load(folder / f"{name}.npz") as arrays:
        return Measurement(name, about, {key: arrays[key] for key in arrays.files})


def write(
    name: str,
    arrays: Mapping[str, np.ndarray],
    *,
    model: str,
    seeds: Sequence[int] = (),
    measures: Sequence[str] = (),
    folder: Path | None = FOLDER,
    **others: Any,
) -> Measurement:
    """Write a measurement, with the command of this process, the commit, the date and the machine.

    name: the name of its two files.
    arrays: by name. Labels are small integers, probabilities float16 or float32.
    model: the models that predicted.
    seeds: of all random choices; empty if there are none.
    measures: files and folders of the repository whose change could change a figure of speed.
    folder: where the files are written; None: nowhere.
    others: further fields of NAME.json, such as the names of the labels, or figures of speed.
    """
    about = {
        "model": model,
        "command": command(),
        "seeds": [*seeds],
        "date": date.today().isoformat(),
        "machine": machine(),
        "commit": commit(),
        **({"measures": [*measures]} if measures else {}),
        **others,
    }
    measurement = Measurement(name, about, dict(arrays))
    if folder is None:
        return measurement

    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(about, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if arrays:
        np.savez_compressed(folder / f"{name}.npz", **dict(arrays))  # type: ignore[arg-type]
    return measurement


def codes(labels: Sequence[str | None], names: Sequence[str]) -> np.ndarray:
    """Each label as its index in names; -1 for a label that names lack. int16 [N]"""
    index_by_name = {name: index for index, name in enumerate(names)}
    return np.array([index_by_name.get(label, -1) if label is not None else -1 for label in labels], np.int16)


# --- how it was made --------------------------------------------------------------------------------------------------


def command() -> str:
    """The command of this process, as one would type it at the root of the repository."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    module = (spec.name if spec else Path(sys.argv[0]).stem).removesuffix(".__main__")
    return " ".join(["python -m", module, *map(without_folder, sys.argv[1:])])


def without_folder(argument: str) -> str:
    """An argument, and of an absolute path the last part alone: folders of a machine say nothing."""
    return Path(argument).name if os.path.isabs(argument) else argument


def machine() -> dict[str, Any]:
    return {"processor": processor_name(), "cores": num_cores(), "threads": os.environ.get("OMP_NUM_THREADS", "all")}


def commit() -> str:
    """The commit of the code, with "+" if files have changed since."""
    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", "bothways", "benchmarks")
        return git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()
