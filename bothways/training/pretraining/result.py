"""Result of a pre-training run: final checkpoint, held-out metrics, curves, cost."""

from collections.abc import Callable, Iterator, Mapping
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
from bothways.training.pretraining.card import card_of
from bothways.training.pretraining.heldout import HeldOut, next_sentence_verdict, on_plateau
from bothways.training.pretraining.initial_model import copy_to_global_projections
from bothways.training.pretraining.modules import ReplacedTokenModel
from bothways.training.pretraining.setup import PretrainingSetup
from bothways.training.results import RunComparison, RunResult, numbers_of, opened, side_by_side
from bothways.training.run import Run
from bothways.training.run_checkpoints import SavedCheckpoint
from bothways.training.run_lock import read_metrics
from bothways.training.schedule import TrainingOptions

# About the power of a CPU thread and of a GPU.
THREAD_WATTS = 10.0
GPU_WATTS = 300.0
JOULES_PER_KWH = 3.6e6

# The accuracies of objectives other than words, by their names for people.
OTHER_OBJECTIVES = {
    "next_sentence_accuracy": "next sentence",
    "sentence_order_accuracy": "sentence order",
    "replaced_accuracy": "replaced tokens",
}


@dataclass(frozen=True, repr=False)
class PretrainingResult(RunResult):
    """Result of a run: its directory, and the directory of the saved model.

    figures: held-out metrics, with the text that they were `measured_on`.
    cost: minutes, tokens and kWh.
    """

    figures: Mapping[str, Any]
    cost: Mapping[str, Any]

    def __repr__(self) -> str:
        """The held-out metrics and the directory; the attributes have the rest."""
        figures = ", ".join(f"{name} {value:.4g}" for name, value in self.reported.items())
        return f"{type(self).__name__}({figures}; {self.directory})"

    def to_json(self) -> dict[str, Any]:
        return {
            "model": str(self.model_directory),
            "heldout": dict(self.figures),
            "cost": dict(self.cost),
        }

    def lines(self) -> Iterator[str]:
        figures = self.figures
        if "perplexity" in figures:
            words = "masked words" if "masked_lm" in figures else "next words"
            words += " (generator)" if "replaced_accuracy" in figures else ""
            unigram = f"(word frequencies alone: {figures['unigram_perplexity']:.1f})"
            yield f"{words}, held out: perplexity {figures['perplexity']:.1f} {unigram}"
        if "vector_cosine" in figures:
            yield f"text vectors, held out: mean cosine to the teacher's {figures['vector_cosine']:.3f}"
        for key, name in OTHER_OBJECTIVES.items():
            if key in figures:
                yield f"{name}, held out: {next_sentence_verdict(figures)}"
        yield f"held out: {figures['measured_on']}; computed in {figures['dtype']}"

        cost = self.cost
        time = f"{cost['tokens']:,} tokens in {cost['minutes']:.1f} minutes"
        yield f"{time}, about {cost['kwh']:.2g} kWh at {cost['watts']:g} W per CPU thread or GPU"
        yield f"model in {self.model_directory}, curves in {self.directory / 'curves.svg'}"

    @property
    def reported(self) -> dict[str, float]:
        return numbers_of(self.figures)

    @property
    def metrics(self) -> Any:
        """The held-out metrics, as a table with the columns metric and value."""
        reported = self.reported
        return as_table({"metric": list(reported), "value": list(reported.values())})

    def compare(self, other: RunResult | AnyPath) -> RunComparison:
        """This run beside another, or its directory. Perplexities have a difference only if both are of the same
        text."""
        other = opened(other)
        text = _held_out_facts(self)
        is_same = text is not None and text == _held_out_facts(other)
        if is_same:
            note = "both are measured on the same held-out text"
        elif isinstance(other, PretrainingResult):
            note = "the held-out texts differ: no differences"
        else:
            note = "the tasks differ: no differences"
        return RunComparison(
            runs=(str(self.directory), str(other.directory)),
            scores=side_by_side(self.reported, other.reported, comparable=is_same),
            note=note,
        )

    def plot(self, file: str | Path | None = None) -> Picture:
        """Loss, held-out metrics and learning rate over steps as a picture, which is also written to `file` (.svg)."""
        curves = draw_curves(
            read_metrics(self.directory),
            title=self.directory.name,
            levels=baseline_levels(self.figures),
        )
        return curves.write(file)


def _held_out_facts(run: RunResult) -> Mapping[str, Any] | None:
    """The record of a run about its held-out text; None if it has none."""
    data = read_metadata(run.directory / METADATA_FILE).get("data", {})
    facts: Mapping[str, Any] | None = data.get("heldout")
    return facts


def baseline_levels(figures: Mapping[str, Any]) -> dict[str, float]:
    """The levels that curves are drawn against."""
    return {name: figures[name] for name in ("unigram_perplexity", "chance") if name in figures}


def finish(setup: PretrainingSetup, run: Run, processes: Processes) -> PretrainingResult:
    """Evaluate and save the model, plot the curves, record metrics and cost.

    setup: model and held-out text.
    run: the directory that all is written to.
    processes: all of them get the result.
    """
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
    model_directory = run.directory / "model"
    trained = replace(setup.initial, metadata={**run.origin, "heldout": figures})
    last = run.metrics()[-1]
    card = card_of(trained, figures=figures, steps=run.metadata["steps"], tokens=last["tokens"])
    checkpoint.save(trained, model_directory, card=card)

    curves = draw_curves(run.metrics(), title=setup.title, levels=baseline_levels(figures))
    curves.write(run.directory / "curves.svg")
    cost = compute_cost(run.directory, setup.options.device, processes.world_size)
    run.update_metadata(heldout=figures, cost=cost, recipe=setup.recipe)
    result = PretrainingResult(
        directory=run.directory,
        model_directory=model_directory,
        figures=figures,
        cost=cost,
    )
    return processes.broadcast(result)


def compute_cost(directory: Path, device: torch.device, processes: int = 1) -> dict[str, Any]:
    """Minutes of training, tokens, and an energy estimate (kWh) from the power per CPU thread or GPU."""
    last = read_metrics(directory)[-1]
    units = 1 if device.type == "cuda" else torch.get_num_threads()
    watts = GPU_WATTS if device.type == "cuda" else THREAD_WATTS
    return {
        "minutes": last["seconds"] / 60,
        "tokens": last["tokens"],
        "kwh": last["seconds"] * units * processes * watts / JOULES_PER_KWH,
        "watts": watts,
    }


def warn_on_plateau(
    record: Callable[[dict[str, Any]], None], heldout: HeldOut, options: TrainingOptions, start: SavedCheckpoint | None
) -> Callable[[dict[str, Any]], None]:
    """Wrap `record`: after a tenth of the run, warn if the model is no better than word frequencies alone.

    record: takes each row of metrics.
    heldout: has the perplexity of word frequencies.
    options: have the number of steps.
    start: the checkpoint that the run resumes from, perhaps after the warning.
    """
    due = options.steps / 10
    is_over = start is not None and start.progress.step >= due

    def watch(row: dict[str, Any]) -> None:
        nonlocal is_over
        record(row)
        if row["split"] != "heldout" or row["step"] < due or is_over:
            return

        is_over = True
        if on_plateau(row, heldout.unigram_perplexity):
            logger.warning(
                f"step {row['step']:,}: held-out perplexity {row['perplexity']:.0f} is close to "
                f"{heldout.unigram_perplexity:.0f}, that of word frequencies alone. The model has not started to "
                f"learn from context; stop, drop options such as {flag('learning_rate')} and {flag('family')}, or "
                "train for longer"
            )

    return watch
