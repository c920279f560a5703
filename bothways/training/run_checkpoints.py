"""Training checkpoints, from which a run can resume: optimizer state and training state.

RUN/checkpoints/step-00000123/ contains `state.safetensors` (master weights, moments) and `state.json` (training state).
It is written atomically, with a checksum. For models see checkpoint/checkpoint.py.
"""

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from bothways.base.errors import InputError
from bothways.base.errors import differences as differences  # beside log_changes
from bothways.base.io import atomic_directory, remove_leftovers
from bothways.base.log import logger
from bothways.model.checkpoint.weights import write_weights
from bothways.training.distributed import SINGLE_PROCESS, Processes
from bothways.training.optimizer import LossScale
from bothways.training.run_lock import FOLDER as FOLDER
from bothways.training.run_lock import STATE

TENSORS = "state.safetensors"
FORMAT = 1


@dataclass(frozen=True)
class TrainingState:
    """Progress of a run.

    step: optimizer steps so far.
    tokens: read so far.
    seconds: training time so far.
    best: highest value of TrainingOptions.best_by so far.
    scale: of the losses, in float16.
    stale: evaluations since the last one with a better metric or a lower loss.
    best_loss: of the evaluation with the best metric.
    best_step: of the evaluation with the best metric.
    lowest_loss: of the evaluations.
    recent_loss: moving average of the training loss.
    stopped_at: step at which early stopping was decided; 0: not yet.
    """

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    best: float | None = None
    scale: LossScale = field(default_factory=LossScale)
    stale: int = 0
    best_loss: float = 0.0
    best_step: int = 0
    lowest_loss: float | None = None
    recent_loss: float | None = None
    stopped_at: int = 0

    @property
    def row(self) -> dict[str, Any]:
        """The first entries of each row of metrics."""
        return {"step": self.step, "tokens": self.tokens, "seconds": self.seconds}


@dataclass(frozen=True)
class SavedCheckpoint:
    """A valid checkpoint: its path and the content of state.json."""

    path: Path
    state: Mapping[str, Any]

    @property
    def progress(self) -> TrainingState:
        """The state to continue from; an older version of the package may have stored fewer fields."""
        names = [field.name for field in fields(TrainingState) if field.name in self.state]
        stored = {name: self.state[name] for name in names}
        stored["scale"] = LossScale(**self.state["scale"])
        return TrainingState(**stored)

    def tensors(self) -> dict[str, Tensor]:
        return load_file(self.path / TENSORS)


class Checkpoints:
    """Checkpoints of a run, of which all processes call all methods; the main process writes.

    run: its directory; None: nothing is saved.
    keep: number of the newest checkpoints that are kept, beside the best by held-out loss (`best_checkpoint` in
        state.json).
    order: values that determine the order of batches, compared on resume.
    processes: of the run.
    memo: numbers that the caller needs on resume.
    at_end: also save at the end of the run.
    """

    def __init__(
        self,
        run: Path | None,
        *,
        keep: int = 2,
        order: Mapping[str, Any] | None = None,
        processes: Processes = SINGLE_PROCESS,
        memo: Sequence[Any] = (),
        at_end: bool = True,
    ) -> None:
        self.folder = run / FOLDER if run else None
        self.keep = max(1, keep)
        self.processes = processes
        self.memo = memo
        self.at_end = at_end

        # As it is read again, so that a resumed run compares like with like.
        self.order: dict[str, Any] = json.loads(json.dumps(dict(order or {}), default=str))
        self.best: dict[str, Any] | None = None
        self.last: Path | None = None

    @property
    def exist(self) -> bool:
        """Whether anything was saved."""
        return self.folder is not None and self.folder.exists()

    def save(
        self, progress: TrainingState, tensors: Mapping[str, Tensor], heldout: float | None, dtype: torch.dtype
    ) -> None:
        """Save the state after a step.

        progress: the state of the training.
        tensors: the state of the optimizer.
        heldout: held-out loss, if evaluated at this step.
        dtype: number format of the run.
        """
        if self.folder is None:
            return

        path = self.folder / f"step-{progress.step:08}"
        if heldout is not None and (self.best is None or heldout < self.best["loss"]):
            self.best = {"path": path.name, "loss": heldout}
        if self.processes.is_main_process:
            state = {
                **asdict(progress),
                "heldout": heldout,
                "best_checkpoint": self.best,
                "order": self.order,
                "memo": list(self.memo),
                "torch": torch.__version__,
                "dtype": _name(dtype),
                "processes": self.processes.world_size,
            }
            self._write(path, state, tensors)
            self._remove_old(path)

        self.last = path
        self.processes.barrier()

    def load_latest(self, dtype: torch.dtype | None = None) -> SavedCheckpoint | None:
        """The newest valid checkpoint, to resume from; None if there is none. Broken ones are logged.

        dtype: number format of the resumed run. InputError if the order of the data has changed.
        """
        latest = self._load_latest(dtype) if self.processes.is_main_process else None
        saved: SavedCheckpoint | None = self.processes.broadcast(latest)
        if saved is not None:
            self.last = saved.path
            best = saved.state["best_checkpoint"]
            self.best = best if best and (saved.path.parent / best["path"]).exists() else None
        return saved

    def _load_latest(self, dtype: torch.dtype | None) -> SavedCheckpoint | None:
        if self.folder is None:
            return None

        # An interrupted write of a checkpoint has its name behind a dot.
        for path in self.folder.glob(".step-*"):
            remove_leftovers(self.folder / path.name.split(".")[1])

        for path in sorted(self.folder.glob("step-*"), reverse=True):
            try:
                saved = read(path)
            except InputError as error:
                logger.info(f"{error}; trying the previous one")
                continue

            # Runs of an older version may lack some values.
            if {**self.order, **saved.state["order"]} != self.order:
                raise InputError(f"{path}: {differences(saved.state['order'], self.order)}; start a new run")

            logger.info(f"resuming from {path}, step {saved.state['step']:,}")
            current: dict[str, Any] = {"dtype": _name(dtype)} if dtype else {}
            current["processes"] = self.processes.world_size
            log_changes(saved.state, current)
            return saved

        logger.info(f"{self.folder}: no valid checkpoint; starting at step 0")
        return None

    def _write(self, path: Path, state: dict[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Replaces a broken or outdated checkpoint of the same step."""
        with atomic_directory(path, marker=STATE) as directory:
            write_weights({name: value.contiguous() for name, value in tensors.items()}, directory / TENSORS)
            stored = {"format": FORMAT, **state, "checksum": checksum(directory / TENSORS)}
            text = json.dumps(stored, indent=2)
            (directory / STATE).write_text(text + "\n", encoding="utf-8")

    def _remove_old(self, newest: Path) -> None:
        """Delete all but the newest `keep` up to this one, and the best. Later steps are from before a resume."""
        assert self.folder is not None
        paths = sorted(path for path in self.folder.glob("step-*") if path.name <= newest.name)
        names = {path.name for path in paths[-self.keep :]}
        if self.best:
            names.add(self.best["path"])
        for path in self.folder.glob("step-*"):
            if path.name not in names:
                shutil.rmtree(path, ignore_errors=True)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


NO_CHECKPOINTS = Checkpoints(None)


def read(path: Path) -> SavedCheckpoint:
    """Read a checkpoint and verify its checksum. InputError if it is broken."""
    try:
        state = json.loads((path / STATE).read_text(encoding="utf-8"))
        if state["format"] != FORMAT:
            raise InputError(f"{path}: format {state['format']}, this version reads {FORMAT}")

        actual = checksum(path / TENSORS)
        if actual != state["checksum"]:
            raise InputError(f"{path / TENSORS}: broken (checksum {actual[:12]}, not {state['checksum'][:12]})")
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: broken ({type(error).__name__}: {error})") from None
    return SavedCheckpoint(path, state)


def checksum(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def log_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Log each changed fact that affects rounding. old may lack some."""
    for name, value in new.items():
        if old.get(name, value) != value:
            logger.info(f"{name} changed from {old[name]} to {value}: losses may differ in the last digits")
