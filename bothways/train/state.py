"""What a run leaves on disk: `bothways.json` (what it is and how it was made) and `metrics.jsonl` (one object a
line)."""

import json
import os
import platform
import shutil
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy
import torch

import bothways
from bothways.checkpoint import MADE, refuse_strangers
from bothways.disk import as_json, write_whole
from bothways.errors import InputError
from bothways.tokenizer.files import read_json
from bothways.train.checkpoints import differences
from bothways.train.signals import Stopped

METRICS = "metrics.jsonl"
# Settings that may differ when a run goes on: they change no number.
FREE = ("out", "resume", "json", "device", "processes", "store", "keep", "tensorboard")
Tell = Callable[[str], None]


def silent(line: str) -> None:
    """Tell nobody."""


class Run:
    """A run's directory. Made new: InputError where something stands there already.

    resume: go on with the run that is there, if one is. Its settings must be the same but for FREE ones and a larger
    number of steps (told); InputError shows the difference, and refuses a run that is still at work. leads: whether
    this process is the one of several that writes.

    As a context it notes how the run ended: done, stopped, or failed and why.
    """

    def __init__(
        self,
        directory: Path,
        verb: str,
        settings: Any,
        *,
        resume: bool = False,
        leads: bool = True,
        tell: Tell = silent,
    ) -> None:
        self.directory, self.leads = directory, leads
        given = {key: _plain(value) for key, value in asdict(settings).items()}
        self.made: dict[str, Any] = {"verb": verb, "settings": given, "versions": versions(), "started": now()}
        self.before: dict[str, Any] | None = None  # the facts of a run that goes on, as they were
        self.has_stepped = False
        if not leads:
            return
        if not (directory / MADE).exists():
            _remove(directory.glob(f".{MADE}.*"))  # of a first write that was killed
        refuse_strangers(directory, holds=MADE)
        if (directory / MADE).exists():
            if not resume:
                raise InputError(f"{directory}: holds a run already; name a new directory, or delete that one")
            self.before = read_json(directory / MADE)
            if "status" not in self.before:
                raise InputError(f"{directory}: holds a model, not a run to go on with; name the run's directory")
            self.made = _resumed(directory, self.before, self.made, tell)
            # Of killed writes; `.model.old` is whole, the one that was to be replaced.
            _remove([*directory.glob(f".{MADE}.*"), *set(directory.glob(".model.*")) - {directory / ".model.old"}])
        directory.mkdir(parents=True, exist_ok=True)
        self.note(status="running", process=this_process())

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.note(status="done")
        elif isinstance(error, Stopped):
            self.note(status="stopped")
        elif not self.has_stepped and self.before is not None:
            self.made = self.before  # refused: what was there is as it was
            self.note()
        elif not self.has_stepped and self.leads:
            shutil.rmtree(self.directory, ignore_errors=True)  # leave nothing in a second try's way
        elif isinstance(error, KeyboardInterrupt):
            self.note(status="stopped")
        else:
            self.note(status="failed", reason=str(error).split("\n")[0] or type(error).__name__)

    def note(self, **facts: Any) -> None:
        """Add facts to bothways.json; a failed write leaves the old file."""
        self.made |= {key: _plain(value) for key, value in facts.items()}
        if self.leads:
            write_whole(self.directory / MADE, as_json(self.made, 2) + "\n")

    @property
    def origin(self) -> dict[str, Any]:
        """How what the run made came to be: the facts so far but the run's own status, for a checkpoint to keep."""
        return {key: value for key, value in self.made.items() if key not in ("status", "process", "reason")}

    def metric(self, **row: Any) -> None:
        """Append one object to metrics.jsonl."""
        self.has_stepped = True
        if self.leads:
            with (self.directory / METRICS).open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        return read_metrics(self.directory)

    def cut_back(self, step: int, seed: int | None = None) -> None:
        """Forget the metrics after a step, from which the run goes on; where it has a training for each of several
        seeds, those of one."""
        if self.leads and (self.directory / METRICS).exists():
            kept = [row for row in self.metrics() if row["step"] <= step or row.get("seed") != seed]
            rows = [json.dumps(row) + "\n" for row in kept]
            write_whole(self.directory / METRICS, "".join(rows))


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
    if process["host"] != socket.gethostname():
        return f"running or killed, on {process['host']}"
    return "running" if process == _process(process["id"]) else "killed"


def this_process() -> dict[str, Any]:
    """This process, so that no later one can be taken for it."""
    found = _process(os.getpid())
    assert found is not None
    return found


def _process(number: int) -> dict[str, Any] | None:
    """A living process of this machine. began: in clock ticks since the machine started, where the system tells."""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass  # it lives, and is somebody else's
    file = Path(f"/proc/{number}/stat")
    began = file.read_text().rpartition(")")[2].split()[19] if file.exists() else None  # field 22: man 5 proc
    return {"host": socket.gethostname(), "id": number, "began": began}


def _resumed(directory: Path, old: dict[str, Any], new: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """The facts of a run that goes on."""
    if status_of(old) == "running" and old["process"] != this_process():
        raise InputError(
            f"{directory}: its run is still at work, as process {old['process']['id']}; stop that one first"
        )
    if old["verb"] != new["verb"]:
        raise InputError(f"{directory}: holds a run of {old['verb']}, not of {new['verb']}; name another directory")
    was, now_given = ({key: value for key, value in made["settings"].items() if key not in FREE} for made in (old, new))
    longer = now_given.get("steps") or 0
    if "steps" in old and longer > old["steps"]:
        tell(f"steps: {old['steps']:,} -> {longer:,}; from here on the rate is that of the longer run")
        now_given |= {key: was[key] for key in ("steps", "minutes") if key in was}
    if changed := differences({key: was.get(key, value) for key, value in now_given.items()}, now_given):
        raise InputError(f"{directory}: begun with other settings ({changed}); give the same, or name a new directory")
    return {
        **{key: value for key, value in old.items() if key != "reason"},
        "settings": new["settings"],
        "versions": new["versions"],
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
    return str(value) if isinstance(value, Path) else value
