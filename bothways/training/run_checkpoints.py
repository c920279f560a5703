"""Where a run can go on from: RUN/checkpoints/step-00000123/ with `state.safetensors` (masters, moments, ...) and
`state.json` (how far the run had come). Not a model to be used: that is bothways/checkpoint.py.

A checkpoint is written beside its place, synced and renamed, and carries a checksum, so it is whole or it is refused.
"""

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from bothways.checkpoint.weights import write_weights
from bothways.errors import InputError
from bothways.io import atomic_directory
from bothways.log import logger
from bothways.training.distributed import ALONE, Processes
from bothways.training.precision import LossScale

FOLDER, STATE, TENSORS = "checkpoints", "state.json", "state.safetensors"
FORMAT = 1


@dataclass(frozen=True)
class Progress:
    """How far a run has come. seconds: of training; best: the highest figure so far that Plan.best_by names, with the
    loss and the step it was reached with; stale: evaluations since."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    best: float | None = None
    scale: LossScale = field(default_factory=LossScale)
    stale: int = 0
    best_loss: float = 0.0
    best_step: int = 0

    @property
    def row(self) -> dict[str, Any]:
        """How every row of the metrics begins."""
        return {"step": self.step, "tokens": self.tokens, "seconds": self.seconds}


@dataclass(frozen=True)
class Saved:
    """A checkpoint that is whole: where it is and what its state.json says."""

    path: Path
    facts: Mapping[str, Any]

    @property
    def progress(self) -> Progress:
        told = {name: self.facts[name] for name in ("step", "tokens", "seconds", "best")}
        scale = LossScale(**self.facts["scale"])
        since = {name: self.facts[name] for name in ("best_loss", "best_step", "stale") if name in self.facts}
        return Progress(**told, **since, scale=scale)

    def tensors(self) -> dict[str, Tensor]:
        return load_file(self.path / TENSORS)


class Checkpoints:
    """The checkpoints of a run. The newest `keep` stay, and the best by held-out loss, which the newest one's
    state.json names (`best_checkpoint`). order: facts that decide which batch comes when, compared on resume. memo:
    numbers that save the caller work on resume, kept as they are when a checkpoint is written. at_end: whether the
    run's end is saved too.

    Every process calls every function; the first one writes and tells."""

    def __init__(
        self,
        run: Path | None,
        *,
        keep: int = 2,
        order: Mapping[str, Any] | None = None,
        processes: Processes = ALONE,
        memo: Sequence[int] = (),
        at_end: bool = True,
    ) -> None:
        self.folder = run / FOLDER if run else None
        self.keep, self.processes, self.memo, self.at_end = max(1, keep), processes, memo, at_end
        self.order: dict[str, Any] = json.loads(json.dumps(dict(order or {}), default=str))
        self.best: dict[str, Any] | None = None
        self.last: Path | None = None

    def save(
        self, progress: Progress, tensors: Mapping[str, Tensor], heldout: float | None, dtype: torch.dtype
    ) -> None:
        """Write where the run is now; heldout: its held-out loss, if it was measured here."""
        if self.folder is None:
            return
        place = self.folder / f"step-{progress.step:08}"
        if heldout is not None and (self.best is None or heldout < self.best["loss"]):
            self.best = {"path": place.name, "loss": heldout}
        if self.processes.leads:
            facts = {
                **asdict(progress),
                "heldout": heldout,
                "best_checkpoint": self.best,
                "order": self.order,
                "memo": list(self.memo),
            }
            facts |= {"torch": torch.__version__, "dtype": _name(dtype), "processes": self.processes.world}
            self._write(place, facts, tensors)
            self._remove_old(place)
        self.last = place
        self.processes.wait()

    def newest_sound(self, dtype: torch.dtype | None = None) -> Saved | None:
        """The newest checkpoint that is whole, from which the run is to go on; tells which, and names broken ones.
        dtype: what it is to compute in now.

        None where there is none. InputError where the data's order has changed since.
        """
        saved: Saved | None = self.processes.share(self._newest_sound(dtype) if self.processes.leads else None)
        if saved is not None:
            self.last, best = saved.path, saved.facts["best_checkpoint"]
            self.best = best if best and (saved.path.parent / best["path"]).exists() else None
        return saved

    def _newest_sound(self, dtype: torch.dtype | None) -> Saved | None:
        if self.folder is None:
            return None
        _remove_unfinished(self.folder)
        for place in sorted(self.folder.glob("step-*"), reverse=True):
            try:
                saved = read(place)
            except InputError as error:
                logger.info(f"{error}; trying the one before")
                continue
            if {**self.order, **saved.facts["order"]} != self.order:  # an older run may not tell of all
                raise InputError(f"{place}: {differences(saved.facts['order'], self.order)}; start a new run")
            logger.info(f"going on from {place}, step {saved.facts['step']:,}")
            log_changes(saved.facts, ({"dtype": _name(dtype)} if dtype else {}) | {"processes": self.processes.world})
            return saved
        logger.info(f"{self.folder}: no sound checkpoint there; starting at step 0")
        return None

    def _write(self, place: Path, facts: dict[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """In place of a broken one, or of one that was newer than where the run goes on, if there is one."""
        with atomic_directory(place, marker=STATE) as beside:
            write_weights({name: value.contiguous() for name, value in tensors.items()}, beside / TENSORS)
            text = json.dumps({"format": FORMAT, **facts, "checksum": checksum(beside / TENSORS)}, indent=2)
            (beside / STATE).write_text(text + "\n", encoding="utf-8")

    def _remove_old(self, newest: Path) -> None:
        """Keep the newest ones up to this one and the best; what is newer is of a run that went on from before."""
        assert self.folder is not None
        places = sorted(place for place in self.folder.glob("step-*") if place.name <= newest.name)
        kept = {place.name for place in places[-self.keep :]} | ({self.best["path"]} if self.best else set())
        for place in self.folder.glob("step-*"):
            if place.name not in kept:
                shutil.rmtree(place, ignore_errors=True)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


NOWHERE = Checkpoints(None)


def read(place: Path) -> Saved:
    """A checkpoint, its checksum compared. InputError if it is not whole."""
    try:
        facts = json.loads((place / STATE).read_text(encoding="utf-8"))
        if facts["format"] != FORMAT:
            raise InputError(f"{place}: format {facts['format']}, this version reads {FORMAT}")
        found = checksum(place / TENSORS)
        if found != facts["checksum"]:
            raise InputError(f"{place / TENSORS}: broken (checksum {found[:12]}, not {facts['checksum'][:12]})")
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{place}: broken ({type(error).__name__}: {error})") from None
    return Saved(place, facts)


def checksum(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def log_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """A line for each fact that changes the last bits of a loss and is not what it was. old: may lack some."""
    for name, value in new.items():
        if old.get(name, value) != value:
            logger.info(f"{name} changed from {old[name]} to {value}: losses may differ in their last digits")


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """What differs, as "name: old -> new"."""
    names = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    return ", ".join(f"{name}: {old.get(name)!r} -> {new.get(name)!r}" for name in names)


def _remove_unfinished(folder: Path) -> None:
    """What killed writes left behind."""
    for place in folder.glob(".step-*"):
        shutil.rmtree(place, ignore_errors=True)
