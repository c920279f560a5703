"""The facts that a result depends on, besides its input: settings, model files, hardware and versions."""

import hashlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

import bothways
from bothways.base.device import num_cores, num_threads
from bothways.core.build import library_name
from bothways.core.library import FOLDER, SUFFIX, Core, find_core
from bothways.inference.jobs.blocks import block_limits
from bothways.inference.jobs.columns import num_scores
from bothways.inference.predictor import Predictor
from bothways.model.checkpoint.directory import Directory
from bothways.model.checkpoint.weights import OLD_WEIGHTS, WEIGHTS
from bothways.settings.predict import Embed, Predict

# Settings that do not change the results, or are compared in another way.
IGNORED_SETTINGS = {
    "model",
    "file",
    "text",
    "pair",
    "out",
    "resume",
    "on_error",
    "dtype",
    "device",
    "json",
    "workers",
    "ray",
    "mixed",
    "dry_run",
}


def threads_of(settings: Embed | Predict) -> int:
    """The threads of each worker: its share of the cores, or one under Ray; without workers, of this process."""
    if settings.workers is None and settings.ray is None:
        return num_threads()
    return 1 if settings.ray else max(1, num_cores() // (settings.workers or 1))


def reproduction_facts(settings: Embed | Predict, model: Predictor, threads: int | None = None) -> dict[str, Any]:
    """Everything except the input that a result depends on: settings, model files, hardware and versions. threads: of
    the process that computes; None: of this one."""
    return {
        "verb": type(settings).__name__.lower(),
        "block": block_limits(),
        **{
            name: [*value] if isinstance(value, tuple) else value  # as JSON returns it
            for name, value in asdict(settings).items()
            if name not in IGNORED_SETTINGS
        },
        # The forms of a table must not be mixed: with more labels it once had a column for each.
        **({"top": num_scores(settings, model)} if isinstance(settings, Predict) else {}),
        "model": _fingerprint(Directory(settings.model).path),
        "dtype": model.dtype,
        "device": model.device.partition(":")[0],
        "threads": threads or num_threads(),
        **_library_facts(model.backend.library),
        "bothways": bothways.__version__,
    }


def _library_facts(library: str) -> dict[str, str]:
    """The version of the library that computes, and the instructions of the processor that it uses."""
    if library == "torch":
        import torch

        return {"processor": torch.backends.cpu.get_cpu_capability(), "torch": torch.__version__}
    config: Any = np.show_config(mode="dicts")
    facts = {"processor": " ".join(config["SIMD Extensions"].get("found", [])), "numpy": np.__version__}
    core = find_core()
    if library == "core" and isinstance(core, Core):
        # numpy computes the heads.
        facts |= {"core": f"{core.instruction_set} {library_name(FOLDER, SUFFIX)}"}
    return facts


def _fingerprint(directory: Path) -> str:
    """A hash of a checkpoint's files, 16 hexadecimal digits."""
    digest = hashlib.sha256()
    names = ("*.json", "*.txt", "*.model", "*.safetensors", "*/config.json", "*/*.safetensors")
    files = sorted(file for name in names for file in directory.glob(name) if not file.name.startswith("."))
    if not (directory / WEIGHTS).exists():
        files += sorted(directory.glob(OLD_WEIGHTS))
    for file in files:
        with file.open("rb") as opened:
            digest.update(repr((file.name, hashlib.file_digest(opened, "sha256").hexdigest())).encode())
    return digest.hexdigest()[:16]
