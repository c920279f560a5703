"""What a run leaves on disk: `bothways.json` (what it is and how it was made) and `metrics.jsonl` (one object a
line)."""

import json
import platform
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy
import torch

import bothways
from bothways.checkpoint.checkpoint import METADATA_FILE, check_target
from bothways.checkpoint.metadata import read_metadata
from bothways.device import describe_hardware
from bothways.errors import InputError
from bothways.io import list_entries, remove_leftovers, to_json, write_atomic
from bothways.log import logger
from bothways.tables_in_memory import MemoryTable
from bothways.training.run_checkpoints import differences, log_changes
from bothways.training.run_lock import LOCK, Lock, lives, this_process
from bothways.training.signals import Stopped

METRICS = "metrics.jsonl"
# Settings that may differ when a run goes on: they change no number.
FREE = ("out", "resume", "json", "device", "processes", "token_store", "keep_checkpoints", "tensorboard")
Callback = Callable[[Mapping[str, Any]], None]


class Run:
    """A run's directory. Made new: InputError where something stands there already.

    resume: go on with the run that is there, if one is. Its settings must be the same but for FREE ones and a larger
    number of steps (told); InputError shows the difference, and refuses a run that is still at work, on this host or
    on another one that shares the directory (train/lock.py). Other versions, another processor or number of threads
    are told, since sums are then added in another order. leads: whether this process is the one of several that writes.
    progress: called with each row of the metrics, and how many `steps` there are.

    As a context it keeps the directory locked, and notes how the run ended: done, stopped, or failed and why.
    """

    def __init__(
        self,
        directory: Path,
        verb: str,
        settings: Any,
        *,
        resume: bool = False,
        leads: bool = True,
        progress: Callback | None = None,
    ) -> None:
        self.directory, self.leads, self.progress = directory, leads, progress
        given = {key: _plain(value) for key, value in asdict(settings).items()}
        self.made: dict[str, Any] = {
            "verb": verb, "settings": given, "versions": versions(), "hardware": describe_hardware(), "started": now(),
        }  # fmt: skip
        self.before: dict[str, Any] | None = None  # the facts of a run that goes on, as they were
        self.has_stepped = False
        self.lock: Lock | None = None
        if not leads:
            return
        if not _is_just_begun(directory):
            check_target(directory, holds=METADATA_FILE)
        self._refuse_unless(resume)
        directory.mkdir(parents=True, exist_ok=True)
        self.lock = Lock(directory)
        try:
            self._begin(resume)
        except BaseException:
            self.close()
            raise

    def _refuse_unless(self, resume: bool) -> None:
        if not resume and (self.directory / METADATA_FILE).exists():
            raise InputError(f"{self.directory}: holds a run already; name a new directory, or delete that one")

    def _begin(self, resume: bool) -> None:
        """Begin, or take up what is there, now that nobody else can."""
        self._refuse_unless(resume)
        for name in (METADATA_FILE, "model"):
            remove_leftovers(self.directory / name)
        if (self.directory / METADATA_FILE).exists():
            self.before = read_metadata(self.directory / METADATA_FILE)
            if "status" not in self.before:
                raise InputError(f"{self.directory}: holds a model, not a run to go on with; name the run's directory")
            self.made = _resumed(self.directory, self.before, self.made)
        self.note(status="running", process=this_process())

    def __enter__(self) -> "Run":
        if self.lock:
            self.lock.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self.lock:
            self.lock.stop()
        try:
            if not (self.lock and self.lock.lost_to):
                self._note_end(error)
        finally:
            self.close()

    def close(self) -> None:
        """Let other processes have the directory."""
        if self.lock:
            self.lock.release()

    def _note_end(self, error: BaseException | None) -> None:
        if error is None:
            self.note(status="done")
        elif isinstance(error, Stopped):
            self.note(status="stopped")
        elif not self.has_stepped and self.before is not None:
            self.made = self.before  # refused: what was there is as it was
            self.note()
        elif not self.has_stepped and self.leads:
            with suppress(OSError):  # a link, a mount point, or already gone
                _remove(list_entries(self.directory))  # leave nothing in a second try's way
                self.directory.rmdir()
        elif isinstance(error, KeyboardInterrupt):
            self.note(status="stopped")
        else:
            self.note(status="failed", reason=str(error).split("\n")[0] or type(error).__name__)

    def note(self, **facts: Any) -> None:
        """Add facts to bothways.json; a failed write leaves the old file."""
        self.made |= {key: _plain(value) for key, value in facts.items()}
        if self.lock:
            self.lock.check()
            write_atomic(self.directory / METADATA_FILE, to_json(self.made, 2) + "\n")

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Add the time that a part of the run takes to its `seconds` in bothways.json."""
        began = time.perf_counter()
        yield
        seconds = self.made.get("seconds", {})
        self.note(seconds={**seconds, part: seconds.get(part, 0.0) + time.perf_counter() - began})

    @property
    def origin(self) -> dict[str, Any]:
        """How what the run made came to be: the facts so far but the run's own status, for a checkpoint to keep."""
        return {key: value for key, value in self.made.items() if key not in ("status", "process", "reason")}

    def metric(self, **row: Any) -> None:
        """Append one object to metrics.jsonl."""
        self.has_stepped = True
        if self.lock:
            self.lock.check()
            with (self.directory / METRICS).open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            if self.progress:
                self.progress({**row, "steps": self.made.get("steps")})

    def metrics(self) -> list[dict[str, Any]]:
        return read_metrics(self.directory)

    def cut_back(self, step: int, seed: int | None = None) -> None:
        """Forget the metrics after a step, from which the run goes on; where it has a training for each of several
        seeds, those of one."""
        if self.leads and (self.directory / METRICS).exists():
            kept = [row for row in self.metrics() if row["step"] <= step or row.get("seed") != seed]
            rows = [json.dumps(row) + "\n" for row in kept]
            write_atomic(self.directory / METRICS, "".join(rows))


def _is_just_begun(directory: Path) -> bool:
    """Whether it holds nothing but the lock and the unfinished first write of a run."""
    return directory.is_dir() and all(
        entry.name.startswith((LOCK, f".{METADATA_FILE}.")) for entry in directory.iterdir()
    )


def _remove(leftovers: Iterable[Path]) -> None:
    for path in leftovers:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def read_metrics(directory: Path) -> list[dict[str, Any]]:
    """The rows of metrics.jsonl, without a last one that a killed process left half written."""
    file = directory / METRICS
    lines = file.read_text(encoding="utf-8").split("\n")[:-1] if file.exists() else []
    return [json.loads(line) for line in lines]


def status_of(made: Mapping[str, Any]) -> str:
    """What bothways.json says of a run, but "killed" where it says "running" and its process is gone."""
    process = made.get("process")
    if made["status"] != "running" or process is None:
        return str(made["status"])
    alive = lives(process)
    if alive is None:
        return f"running or killed, on {process['host']}"
    return "running" if alive else "killed"


def _resumed(directory: Path, old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The facts of a run that goes on."""
    if old["verb"] != new["verb"]:
        raise InputError(f"{directory}: holds a run of {old['verb']}, not of {new['verb']}; name another directory")
    was, now_given = ({key: value for key, value in made["settings"].items() if key not in FREE} for made in (old, new))
    longer = now_given.get("steps") or 0
    if "steps" in old and longer > old["steps"]:
        logger.info(f"steps: {old['steps']:,} -> {longer:,}; from here on the rate is that of the longer run")
        now_given |= {key: was[key] for key in ("steps", "minutes") if key in was}
    if changed := differences({key: was.get(key, value) for key, value in now_given.items()}, now_given):
        raise InputError(f"{directory}: begun with other settings ({changed}); give the same, or name a new directory")
    for facts in ("versions", "hardware"):
        log_changes(old.get(facts, {}), new[facts])
    return {
        **{key: value for key, value in old.items() if key != "reason"},
        "settings": new["settings"],
        "versions": new["versions"],
        "hardware": new["hardware"],
        "resumed": [*old.get("resumed", []), now()],
    }


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
    if isinstance(value, MemoryTable):
        return value.record()
    return str(value) if isinstance(value, Path) else value
