"""Run directory: metadata (bothways.json), metrics (metrics.jsonl), status, resume."""

import json
import platform
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy
import torch

import bothways
from bothways.base.device import describe_hardware
from bothways.base.errors import InputError, flag
from bothways.base.io import check_target, full_disk_named, list_entries, remove_leftovers, to_json, write_atomic
from bothways.base.log import logger
from bothways.base.progress import working
from bothways.model.checkpoint import hub
from bothways.model.checkpoint.description import METADATA_FILE, read_metadata
from bothways.model.parameters import CPU
from bothways.settings.fields import OwnObjective
from bothways.settings.tables_in_memory import MemoryTable
from bothways.training.callbacks import Callbacks as Callbacks  # exported to whatever starts a run
from bothways.training.callbacks import call_with_row, list_callbacks
from bothways.training.run_checkpoints import differences, log_changes
from bothways.training.run_lock import LOCK, METRICS, Lock, current_process, read_metrics
from bothways.training.signals import Stopped

# Data that a verb has prepared in the directory before its run: mined rows, and how they were mined.
PREPARED = ("rows.jsonl", "rows.json")
# Settings that may differ on resume, because they do not change results.
CHANGEABLE_SETTINGS = (
    "out",
    "resume",
    "json",
    "device",
    "processes",
    "token_store",
    "tensorboard",
)


class Run:
    """A new run directory (InputError if it exists), or an existing one to resume.

    directory: of the run.
    verb: of the command line; a run can be resumed by the same verb only.
    settings: a dataclass, as bothways.json records it.
    resume: continue the run in the directory, if any. Its settings must be equal, except CHANGEABLE_SETTINGS and a
        larger number of steps. Changed versions, hardware or number of threads are logged, since they change rounding.
    is_main_process: only the main process writes.
    device: of the computation.
    callbacks: called with each row of metrics plus `steps`, the total number of steps.

    InputError names the settings that differ; it is also raised for a run that is still active, on this or another host
    (run_lock.py).

    As a context manager it keeps the directory locked and records the final status: done, stopped or failed.
    """

    def __init__(
        self,
        directory: Path,
        verb: str,
        settings: Any,
        *,
        resume: bool = False,
        is_main_process: bool = True,
        device: torch.device = CPU,
        callbacks: Callbacks = (),
    ) -> None:
        self.directory = directory
        self.is_main_process = is_main_process
        self.callbacks = list_callbacks(callbacks)
        # Not by `asdict`, which would copy an own objective, with all that it has.
        values = {field.name: getattr(settings, field.name) for field in fields(settings)}
        self.metadata: dict[str, Any] = {
            "verb": verb,
            "settings": {key: plain_value(value) for key, value in values.items()},
            "versions": versions(),
            "hardware": describe_hardware(device),
            "started": now(),
        }
        commits = hub.commits(values)
        if commits:
            self.metadata["hub"] = commits

        self.previous: dict[str, Any] | None = None  # metadata of the run before it was resumed
        self.has_stepped = False
        self.lock: Lock | None = None
        if not is_main_process:
            return

        # Refused before the directory or its lock is made.
        if not _is_fresh(directory):
            check_target(directory, holds=METADATA_FILE)
        self._refuse_unless(resume)

        directory.mkdir(parents=True, exist_ok=True)
        self.lock = Lock(directory)
        try:
            self._open(resume)
        except BaseException:
            self.close()
            raise

    def _refuse_unless(self, resume: bool) -> None:
        if not resume and (self.directory / METADATA_FILE).exists():
            raise InputError(
                f"{self.directory}: already contains a run; choose another directory, delete it, or add "
                f"{flag('resume', True)}"
            )

    def _open(self, resume: bool) -> None:
        """Start or resume, while holding the lock."""
        # Again: another process may have started a run before this one had the lock.
        self._refuse_unless(resume)
        for name in (METADATA_FILE, "model"):
            remove_leftovers(self.directory / name)

        if (self.directory / METADATA_FILE).exists():
            self.previous = read_metadata(self.directory / METADATA_FILE)
            if "status" not in self.previous:
                raise InputError(f"{self.directory}: contains a model, not a run; name the run directory")
            self.metadata = _resumed(self.directory, self.previous, self.metadata)
        self.update_metadata(status="running", process=current_process())

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            self._note_end(error)
        finally:
            self.close()

    def close(self) -> None:
        """Release the lock of the directory."""
        if self.lock:
            self.lock.release()

    def _note_end(self, error: BaseException | None) -> None:
        if error is None:
            self.update_metadata(status="done")
        elif isinstance(error, Stopped):
            self.update_metadata(status="stopped")
        elif not self.has_stepped and self.previous is not None:
            # The resume was refused, so the directory is as it was.
            self.metadata = self.previous
            self.update_metadata()
        elif not self.has_stepped and self.is_main_process:
            self._remove_directory()
        elif isinstance(error, KeyboardInterrupt):
            self.update_metadata(status="stopped")
        else:
            self.update_metadata(status="failed", reason=str(error).split("\n")[0] or type(error).__name__)

    def _remove_directory(self) -> None:
        """Delete all but prepared data, so that a retry can use the directory, and that data."""
        with suppress(OSError):  # a link, a mount point, or already gone
            leftovers = (entry for entry in list_entries(self.directory) if entry.name not in PREPARED)
            _remove(leftovers)
            self.directory.rmdir()

    def update_metadata(self, **facts: Any) -> None:
        """Add entries to bothways.json, atomically."""
        self.metadata |= {key: plain_value(value) for key, value in facts.items()}
        if self.lock:
            write_atomic(self.directory / METADATA_FILE, to_json(self.metadata, 2) + "\n")

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Add the duration of a part of the run to `seconds` in bothways.json."""
        start = time.perf_counter()
        with working(part.replace("_", " ")):
            yield

        # A part may run several times, such as once for each seed.
        seconds = self.metadata.get("seconds", {})
        total = seconds.get(part, 0.0) + time.perf_counter() - start
        self.update_metadata(seconds={**seconds, part: total})

    @property
    def origin(self) -> dict[str, Any]:
        """The run's metadata without its status, to be stored in a checkpoint."""
        return {key: value for key, value in self.metadata.items() if key not in ("status", "process", "reason")}

    def log_metrics(self, **row: Any) -> None:
        """Append a row to metrics.jsonl and call the callbacks."""
        self.has_stepped = True
        if self.lock:
            path = self.directory / METRICS
            with full_disk_named(path), path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            call_with_row(self.callbacks, {**row, "steps": self.metadata.get("steps")})

    def metrics(self) -> list[dict[str, Any]]:
        return read_metrics(self.directory)

    def truncate_metrics(self, step: int, seed: int | None = None) -> None:
        """Delete the metrics after a step, before resuming from it. seed: only the metrics of this seed."""
        if self.is_main_process and (self.directory / METRICS).exists():
            rows = [row for row in self.metrics() if row["step"] <= step or row.get("seed") != seed]
            lines = [json.dumps(row) + "\n" for row in rows]
            write_atomic(self.directory / METRICS, "".join(lines))


def _is_fresh(directory: Path) -> bool:
    """Whether a directory contains only what was prepared for a run, the lock and the unfinished first write."""
    if not directory.is_dir():
        return False
    harmless = (LOCK, f".{METADATA_FILE}.", *PREPARED)
    return all(entry.name.startswith(harmless) for entry in directory.iterdir())


def _remove(leftovers: Iterable[Path]) -> None:
    for path in leftovers:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _resumed(directory: Path, old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Metadata of a resumed run. old: its metadata; new: of a run with the settings now. InputError if they differ."""
    if old["verb"] != new["verb"]:
        raise InputError(
            f"{directory}: contains a run of {old['verb']}, not of {new['verb']}; choose another directory"
        )
    old_settings = _compared_settings(old)
    new_settings = _compared_settings(new)

    # A run may be made longer: its number of steps is then no difference, nor the minutes that it came from.
    steps = new_settings.get("steps") or 0
    if "steps" in old and steps > old["steps"] and steps != old_settings.get("steps"):
        logger.info(f"steps: {old['steps']:,} -> {steps:,}; from here on the learning rate follows the longer schedule")
        new_settings |= {key: old_settings[key] for key in ("steps", "minutes") if key in old_settings}
        old = {**old, "steps": steps}

    # A setting that the run does not record is newer than the run.
    recorded = {key: old_settings.get(key, value) for key, value in new_settings.items()}
    changed = differences(recorded, new_settings)
    if changed:
        raise InputError(
            f"{directory}: started with other settings ({changed}); use the same, or choose a new directory"
        )
    for part in ("versions", "hardware"):
        log_changes(old.get(part, {}), new[part])

    resumed = {key: value for key, value in old.items() if key != "reason"}
    resumed["settings"] = new["settings"]
    resumed["versions"] = new["versions"]
    resumed["hardware"] = new["hardware"]
    resumed["resumed"] = [*old.get("resumed", []), now()]
    return resumed


def _compared_settings(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that must be equal on resume."""
    return {key: value for key, value in metadata["settings"].items() if key not in CHANGEABLE_SETTINGS}


def versions() -> dict[str, str]:
    return {
        "bothways": bothways.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
    }


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def plain_value(value: Any) -> Any:
    """A setting or fact as bothways.json has it."""
    if isinstance(value, Mapping):
        return {key: plain_value(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_value(inner) for inner in value]
    if isinstance(value, MemoryTable):
        return value.record()
    if isinstance(value, OwnObjective):
        return type(value).__name__
    return str(value) if isinstance(value, Path) else value
