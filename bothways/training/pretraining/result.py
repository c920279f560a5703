"""Result of a pre-training run: final checkpoint, held-out metrics, curves, cost."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from bothways.base.errors import flag
from bothways.base.log import logger
from bothways.measure.report.chart import Picture
from bothways.measure.report.result_tables import as_table
from bothways.measure.report.training_curves import draw_curves
from bothways.model.checkpoint import checkpoint
from bothways.model.checkpoint.description import METADATA_FILE, read_metadata
from bothways.settings.fields import AnyPath
from bothways.training.distributed import Processes
from bothways.training.pretraining.heldout import HeldOut, on_plateau
from bothways.training.pretraining.initial_model import copy_to_global_projections
from bothways.training.pretraining.modules import ReplacedTokenModel
from bothways.training.pretraining.setup import PretrainingSetup
from bothways.training.results import RunComparison, RunResult, numbers_of, opened, side_by_side
from bothways.training.run import Run
from bothways.training.run_checkpoints import SavedCheckpoint
from bothways.training.run_lock import read_metrics
from bothways.training.schedule import TrainingOptions

THREAD_WATTS, GPU_WATTS = 10.0, 300.0  # power of a CPU thread and of a GPU, about


@dataclass(frozen=True, repr=False)
class PretrainingResult(RunResult):
    """Result of a run: its directory, that of the saved model, held-out metrics with the text that they were
    `measured_on`, and cost in minutes, tokens and kWh."""

    figures: Mapping[str, Any]
    cost: Mapping[str, Any]

    def __repr__(self) -> str:
        """The held-out metrics and the directory; the attributes have the rest."""
        figures = ", ".join(f"{name} {value:.4g}" for name, value in self.reported.items())
        return f"{type(self).__name__}({figures}; {self.directory})"

    @property
    def reported(self) -> dict[str, float]:
        return numbers_of(self.figures)

    @property
    def metrics(self) -> Any:
        """The held-out metrics, as a table with the columns metric and value."""
        return as_table({"metric": [*self.reported], "value": [*self.reported.values()]})

    def compare(self, other: RunResult | AnyPath) -> RunComparison:
        """This run beside another, or its directory. Perplexities have a difference only if both are of the same
        text."""
        other = opened(other)
        runs = str(self.directory), str(other.directory)
        facts = [read_metadata(run.directory / METADATA_FILE).get("data", {}).get("heldout") for run in (self, other)]
        is_same = facts[0] is not None and facts[0] == facts[1]
        differ = "held-out texts" if isinstance(other, PretrainingResult) else "tasks"
        note = "both are measured on the same held-out text" if is_same else f"the {differ} differ: no differences"
        return RunComparison(runs, side_by_side(self.reported, other.reported, comparable=is_same), note)

    def plot(self, file: str | Path | None = None) -> Picture:
        """Loss, held-out metrics and learning rate over steps as a picture, which is also written to `file` (.svg)."""
        rows, levels = read_metrics(self.directory), baseline_levels(self.figures)
        return draw_curves(rows, title=self.directory.name, levels=levels).write(file)


def baseline_levels(figures: Mapping[str, Any]) -> dict[str, float]:
    return {name: figures[name] for name in ("unigram_perplexity", "chance") if name in figures}


def finish(setup: PretrainingSetup, run: Run, processes: Processes) -> PretrainingResult:
    """Evaluate and save the model, plot the curves, record metrics and cost. All processes get the result."""
    if not run.is_main_process:
        return processes.broadcast(None)
    heldout = setup.heldout
    figures = {
        **heldout.measure(setup.module),
        "unigram_perplexity": heldout.unigram_perplexity,
        "dtype": str(next(setup.module.parameters()).dtype).removeprefix("torch."),
        "measured_on": run.metadata["data"]["heldout"]["measured_on"],
    }
    if isinstance(setup.module, ReplacedTokenModel):
        setup.module.finish()
    if setup.has_untrained_globals:
        copy_to_global_projections(setup.initial.model)
    checkpoint.save(replace(setup.initial, metadata={**run.origin, "heldout": figures}), run.directory / "model")
    draw_curves(run.metrics(), title=setup.title, levels=baseline_levels(figures)).write(run.directory / "curves.svg")
    cost = compute_cost(run.directory, setup.options.device, processes.world_size)
    run.update_metadata(heldout=figures, cost=cost, recipe=setup.recipe)
    return processes.broadcast(PretrainingResult(run.directory, run.directory / "model", figures, cost))


def compute_cost(directory: Path, device: torch.device, processes: int = 1) -> dict[str, Any]:
    """Minutes of training, tokens, and an energy estimate (kWh) from the power per CPU thread or GPU."""
    last = read_metrics(directory)[-1]
    units, watts = (1, GPU_WATTS) if device.type == "cuda" else (torch.get_num_threads(), THREAD_WATTS)
    kwh = last["seconds"] * units * processes * watts / 3.6e6
    return {"minutes": last["seconds"] / 60, "tokens": last["tokens"], "kwh": kwh, "watts": watts}


def warn_on_plateau(
    record: Callable[[dict[str, Any]], None], heldout: HeldOut, options: TrainingOptions, start: SavedCheckpoint | None
) -> Callable[[dict[str, Any]], None]:
    """Wrap `record`: after a tenth of the run, warn if the model is no better than word frequencies alone."""
    due = options.steps / 10
    is_over = start is not None and start.progress.step >= due

    def watch(row: dict[str, Any]) -> None:
        nonlocal is_over
        record(row)
        if row["split"] == "heldout" and row["step"] >= due and not is_over:
            is_over = True
            if on_plateau(row, heldout.unigram_perplexity):
                logger.warning(
                    f"step {row['step']:,}: held-out perplexity {row['perplexity']:.0f} is close to "
                    f"{heldout.unigram_perplexity:.0f}, that of word frequencies alone. The model has not started to "
                    f"learn from context; stop, drop options such as {flag('learning_rate')} and {flag('family')}, or "
                    "train for longer"
                )

    return watch
