"""Settings of `prune` and `shrink`."""

from dataclasses import fields
from pathlib import Path
from typing import Annotated, Literal

from bothways.errors import InputError
from bothways.settings.base import (
    Checked,
    Compute,
    Model,
    OptionalData,
    Output,
    Printed,
    TextColumns,
    settings,
)
from bothways.settings.fields import Converted, Locations, Several, arg, default
from bothways.settings.tables_in_memory import Table, TableSource

LabelledTexts = Annotated[Converted[TableSource, Table], arg(constructor=Path, name="with")]
TARGETS = "size", "speed", "max_drop"


@settings
class Prune(TextColumns, Checked, Compute, Printed):
    """Prune a fine-tuned model: fewer layers, heads, feed-forward neurons or vocabulary entries, in steps with training
    between, in which the model as it was is the teacher."""

    own_bounds = {"size": (0.01, 0.99)}  # noqa: RUF012

    model: Model
    """A fine-tuned model: a checkpoint or a run."""
    texts: LabelledTexts
    """Labelled data to train on, such as that of the fine-tuning; dev and test are split off it, unless given."""
    out: Output
    """Output directory."""
    size: float | None = None
    """Target: this share of the weights of the layers, such as 0.5."""
    speed: float | None = None
    """Target: this many times as fast, such as 2."""
    max_drop: float | None = None
    """Target: as small as possible with at most this drop of the score, in percentage points."""
    parts: Several[Literal["layers", "feed-forward", "heads"]] = default(())
    """What may be cut. [layers as far as possible, then feed-forward neurons; only these where layers differ]"""
    drop_layers: Literal["top", "importance"] = "top"
    """Which layers are cut first: the last ones (Sajjad 2023), or those of the least first-order importance."""
    vocabulary_from: Annotated[Locations, arg(metavar="FILE ...")] = default(())
    """Keep only the vocabulary entries that these texts and those of --with need; other words are split smaller."""
    cuts: int | None = None
    """Number of cuts to the target, with training after each. [one for each layer; else 2]"""
    dev: OptionalData = default(None)
    """Data for the selection of weights. [a tenth of --with]"""
    test: OptionalData = default(None)
    """Data for the reported score. [without --dev, a tenth of --with]"""
    alpha: float = 0.5
    """Weight of the teacher's outputs in the loss, from 0 to 1; the labels have the rest."""
    epochs: float | None = None
    """Passes over the training data after the last cut; after the others a third of them. [as in fine-tuning]"""
    seed: int = 0
    """Random seed."""
    resume: bool = False
    """Continue in the output directory."""

    def __post_init__(self) -> None:
        super().__post_init__()
        targets = [name for name in TARGETS if getattr(self, name) is not None]
        if len(targets) > 1:
            raise InputError(f"{targets[0]} and {targets[1]} exclude each other; name one target")
        if not targets and not self.vocabulary_from:
            raise InputError("prune needs a target: size, speed, max_drop or vocabulary_from")


@settings
class Shrink(TextColumns, Checked, Compute, Printed):
    """Shrink a fine-tuned model: cut it layer by layer with training between, each also in int8, and keep the fastest
    that loses no more than allowed. Writes a picture of quality against speed."""

    model: Model
    """A fine-tuned model: a checkpoint or a run."""
    texts: LabelledTexts
    """Labelled data to train on, such as that of the fine-tuning; dev and test are split off it, unless given."""
    out: Output
    """Output directory."""
    max_drop: float = 1.0
    """Largest allowed drop of the score on dev, in percentage points."""
    best: Literal["speed", "size"] = "speed"
    """Which of the models within the drop is kept: the fastest or the smallest."""
    dev: OptionalData = default(None)
    """Data for the selection of weights, and of the model. [a tenth of --with]"""
    test: OptionalData = default(None)
    """Data for the reported score. [without --dev, a tenth of --with]"""
    alpha: float = 0.5
    """Weight of the teacher's outputs in the loss, from 0 to 1; the labels have the rest."""
    epochs: float | None = None
    """Passes over the training data after each cut. [as in fine-tuning]"""
    seed: int = 0
    """Random seed."""
    resume: bool = False
    """Continue in the output directory."""

    @property
    def pruning(self) -> Prune:
        """The settings of its cuts."""
        shared = {field.name for field in fields(Shrink)} & {field.name for field in fields(Prune)}
        return Prune(**{name: getattr(self, name) for name in shared})
